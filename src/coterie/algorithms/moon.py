"""MOON: Li et al., Model-Contrastive Federated Learning (2021)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from coterie.config.arguments import CheckedFields, validated
from coterie.core import LocalTraining, Objective, Own, OwnTrained, Train, WithOwnModel
from coterie.core.vectors import classifier_name
from coterie.methods.method import Method
from coterie.rules.assigning import everyone

Weight = Annotated[float, Field(ge=0)]
Above = Annotated[float, Field(gt=0)]


def contrast(z: Tensor, shared: Tensor, previous: Tensor, temperature: float) -> Tensor:
    """The model-contrastive loss of a batch (eq. 3).

    ``-log(exp(sim(z, z_glob) / tau) / (exp(sim(z, z_glob) / tau) + exp(sim(z, z_prev) / tau)))``, where
    ``sim`` is the cosine.

    Args:
        shared: features of the shared model.
        previous: features of the client's network of its last round.
        temperature: ``tau``.

    Example:
        >>> z = torch.tensor([[1.0, 0.0]])
        >>> round(float(contrast(z, torch.tensor([[1.0, 1.0]]), torch.tensor([[0.0, 1.0]]), 0.5)), 4)
        0.2176
    """
    similar = [F.cosine_similarity(z.flatten(1), one.flatten(1)) for one in (shared, previous)]
    # The cross-entropy of two classes, of which the shared model is the right one.
    logits = torch.stack(similar, dim=1) / temperature
    return F.cross_entropy(logits, torch.zeros(len(z), dtype=torch.long))


class Listening:
    """Keeps what a network gives one of its layers, for as long as it is entered."""

    def __init__(self, module: nn.Module, layer: str) -> None:
        self.layer = module.get_submodule(layer)
        self.given = torch.empty(0)

    def __enter__(self) -> Listening:
        self.hook = self.layer.register_forward_pre_hook(self._keep)
        return self

    def __exit__(self, *error: object) -> None:
        self.hook.remove()

    def _keep(self, layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        self.given = given[0]


@dataclass(frozen=True, eq=False)
class Contrasted:
    """A loss with the model-contrastive one: ``l_sup + mu l_con`` (eq. 4).

    Args:
        base: the loss of the task.
        weight: ``mu`` of the paper.
        temperature: ``tau``.
        previous: the client's network of its last round, frozen.
    """

    base: Objective
    weight: float
    temperature: float
    previous: nn.Module

    @property
    def mu(self) -> float:
        """Weight of the proximal term, which is that of the loss of the task."""
        return self.base.mu

    def loss(
        self, module: nn.Module, x: Tensor, y: Tensor, received: Callable[[], nn.Module]
    ) -> Tensor:
        # The representation of a sample is what the classifier is given.
        layer = classifier_name(module)
        with Listening(module, layer) as listening:
            supervised = self.base.loss(module, x, y, received)
        shared = _represented(received(), layer, x)
        previous = _represented(self.previous, layer, x)
        distance = contrast(listening.given, shared, previous, self.temperature)
        return supervised + self.weight * distance


def _represented(module: nn.Module, layer: str, x: Tensor) -> Tensor:
    """What a frozen network gives its classifier for a batch, ``[n, ...]``."""
    with Listening(module, layer) as listening, torch.no_grad():
        module(x)
    return listening.given


@dataclass(frozen=True, slots=True)
class Moon(CheckedFields):
    """The network that the client trained last, from which its representations move away."""

    mu: Weight = 1.0
    temperature: Above = 0.5
    plain_sgd = False

    def lengths(self, d: int) -> Mapping[str, int]:
        return {"previous": d}

    def first(self, sent: Tensor) -> Own:
        return {"previous": sent}

    def train(self, training: LocalTraining, own: Own) -> OwnTrained:
        objective = None
        if self.mu:
            previous = training.network(own["previous"])
            objective = Contrasted(training.objective, self.mu, self.temperature, previous)
        # Alg. 1, l. 14-22: local training on l = l_sup + mu l_con.
        update, loss = training.run(training.start, objective=objective)
        return OwnTrained(update, loss, {"previous": training.start + update})


@validated
def moon(mu: Weight = 1.0, temperature: Above = 0.5) -> Method:
    """MOON: FedAvg whose clients keep features near the shared model's, and away from their last ones.

    Clients add ``mu`` times the contrastive loss of eq. 3 to their loss.

    Args:
        mu: weight of the contrastive loss; 0 is FedAvg.
        temperature: ``tau`` of that loss.

    Models: one.

    Source: Li et al., Model-Contrastive Federated Learning (2021).

    Example:
        >>> moon(mu=5.0).local.own_model.mu
        5.0
    """
    rule = Moon(mu, temperature)
    return Method(assign=everyone, local=Train(how=WithOwnModel(rule)), needs=())
