"""FedALA: Zhang et al., FedALA: Adaptive Local Aggregation for Personalized Federated Learning
(2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import pstdev
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from coterie.config.arguments import CheckedFields, validated
from coterie.core import Train, WithOwnModel
from coterie.core.own_model import Batch, LocalTraining, Own, OwnTrained
from coterie.methods.method import Method
from coterie.rules.assigning import everyone

Layers = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]
Rate = Annotated[float, Field(ge=0)]
Above = Annotated[float, Field(gt=0)]

# Losses whose standard deviation says whether the weights have converged, as in the released code.
LAST_LOSSES = 10
# The released code has no such limit, and never ends where losses do not settle.
MOST_PASSES = 100


@dataclass(frozen=True, slots=True)
class FedAla(CheckedFields):
    """The client's last model and, for each of its parameters, how much of the shared one goes
    in."""

    adaptive_layers: Layers = 1
    share: Share = 0.8
    eta: Rate = 1.0
    threshold: Above = 0.1
    plain_sgd = False

    def lengths(self, d: int) -> Mapping[str, int]:
        return {"v": d, "weights": d, "learned": 1}

    def first(self, sent: Tensor) -> Own:
        return {"v": sent, "weights": torch.ones_like(sent), "learned": torch.zeros(1)}

    def train(self, training: LocalTraining, own: Own) -> OwnTrained:
        # Alg. 1, l. 6-16: the start of local training, and the weights that made it.
        start, found = self._aggregate(training, own)
        # Then ordinary local training, whose end is sent and stored.
        step, loss = training.run(start)
        update = (start - training.start) + step
        return OwnTrained(update, loss, {**found, "v": start + step})

    def adapt(self, training: LocalTraining, own: Own) -> Tensor:
        return self._aggregate(training, own)[0]

    def _aggregate(self, training: LocalTraining, own: Own) -> tuple[Tensor, Own]:
        """The mixture of the model that was sent and the client's last one, and what it is made
        of."""
        sent = training.start
        at = training.layout.last_layers(self.adaptive_layers)
        # The last model in the adaptive layers; elsewhere both are the same, so weights say nothing.
        last = sent.clone()
        last[at] = own["v"][at]
        difference = sent - last
        # There is nothing to mix before the first training.
        if not difference.any():
            return sent, own
        sample = _some(training, self.share)
        weights = own["weights"]
        losses: list[float] = []
        while sample and len(losses) < MOST_PASSES:
            for batch in sample:
                # Theta_hat = Theta_i + (Theta - Theta_i) * W, which with W = 1 has the bits of Theta.
                mixed = torch.lerp(last, sent, weights)
                # eq. 6: W <- W - eta grad F(Theta_hat) * (Theta - Theta_i), kept between 0 and 1.
                gradient, loss = training.gradient(mixed, batch)
                weights = (weights - self.eta * gradient * difference).clamp(0, 1)
            losses.append(loss)
            # The weights are learned until they converge once, and then by one pass a round.
            converged = len(losses) > LAST_LOSSES and pstdev(losses[-LAST_LOSSES:]) < self.threshold
            if own["learned"] or converged:
                break
        found = {"v": own["v"], "weights": weights, "learned": torch.ones(1)}
        return torch.lerp(last, sent, weights), found


def _some(training: LocalTraining, share: float) -> list[Batch]:
    """Mini-batches with a random share of the client's samples, each sample once."""
    left = int(share * len(training.everything().y))
    found = []
    for batch in training.batches("weights"):
        if not left:
            break
        found.append(Batch(batch.x[:left], batch.y[:left]))
        left -= len(found[-1].y)
    return found


@validated
def fedala(
    adaptive_layers: Layers = 1, share: Share = 0.8, eta: Rate = 1.0, threshold: Above = 0.1
) -> Method:
    """FedALA: each client starts from a mixture of the shared model and its own, learned for each parameter.

    With the shared model ``Theta`` and its own previous model ``Theta_i``, a client starts local
    training from ``Theta_i + (Theta - Theta_i) * W_i``, and predicts with that model.

    Args:
        adaptive_layers: number ``p`` of last layers whose weights ``W_i`` are learned. In the other
            layers the weights are 1, which is the shared model; with 0 this is FedAvg.
        share: share ``s`` of the client's samples from which weights are learned.
        eta: learning rate of the weights.
        threshold: standard deviation of the losses below which the weights have converged.

    Models: one.

    Source: Zhang et al., FedALA: Adaptive Local Aggregation for Personalized Federated Learning
    (2023).

    Example:
        >>> fedala(adaptive_layers=2).local.own_model.adaptive_layers
        2
    """
    rule = FedAla(adaptive_layers, share, eta, threshold)
    return Method(assign=everyone, local=Train(how=WithOwnModel(rule)), needs=())
