"""FedROD: Chen & Chao, On Bridging Generic and Personalized Federated Learning for Image
Classification (2022)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from coterie.config.arguments import CheckedFields, validated
from coterie.core import Train, WithOwnModel
from coterie.core.own_model import LastPassLoss, LocalTraining, Own, OwnTrained
from coterie.errors import ConfigError
from coterie.methods.method import Method
from coterie.objectives import Balanced, class_prior
from coterie.rules.assigning import everyone

Power = Annotated[float, Field(ge=0)]
Predictor = Literal["personal", "generic"]


@dataclass(frozen=True, slots=True)
class FedRod(CheckedFields):
    """A head ``phi_i`` of the client's own, whose logits are added to those of the shared model.

    A head is the last layer. The sum of two is one more: ``(W + P) z + (b + p)``.
    """

    gamma: Power = 1.0
    predict: Predictor = "personal"
    plain_sgd = True

    def lengths(self, d: int) -> Mapping[str, int]:
        # With zeros below the head, so that it can be added to a model.
        return {"head": d}

    def first(self, sent: Tensor) -> Own:
        return {"head": torch.zeros_like(sent)}

    def train(self, training: LocalTraining, own: Own) -> OwnTrained:
        balanced = Balanced(training.objective, self._prior(training))
        head = training.layout.final_layer()
        eta = training.solver.lr
        w = training.start.clone()
        phi = own["head"].clone()
        loss = LastPassLoss()
        for batch in training.batches():
            # Both gradients before both steps: the heads learn from the same features.
            generic, _ = training.gradient(w, batch, objective=balanced)
            personal, batch_loss = training.gradient(w + phi, batch)
            w.sub_(generic, alpha=eta)
            # Nothing goes back into the shared model.
            phi[head].sub_(personal[head], alpha=eta)
            loss.add(batch_loss, batch)
        return OwnTrained(w - training.start, loss.mean, {"head": phi})

    def serve(self, sent: Tensor, own: Own) -> Tensor:
        if self.predict == "generic":
            return sent
        return sent + own["head"]

    def _prior(self, training: LocalTraining) -> Tensor:
        """What the balanced softmax adds to the logits, float32 ``[outputs]``."""
        data = training.everything()
        if data.y.is_floating_point() or data.y.dim() != 1:
            what = "fedrod needs class labels as targets"
            raise ConfigError("does-not-fit", "own_model", what)
        outputs = training.network(training.start)(data.x[:1]).shape[1]
        return class_prior(data.y, outputs, self.gamma)


@validated
def fedrod(gamma: Power = 1.0, predict: Predictor = "personal") -> Method:
    """FedROD: one model, trained with a balanced softmax, and for each client its own head, added
    to it.

    With ``m(x)`` the logits of the shared model and ``h_i(x)`` those of the own head, the shared model
    minimises the cross-entropy of ``m(x) + gamma log n_y``, and the own head that of ``m(x) + h_i(x)``
    with ``m`` held fixed (Alg. 1).

    Args:
        gamma: power of the class counts; 0 trains the shared model as FedAvg does.
        predict: ``personal``: predict with ``m(x) + h_i(x)``; ``generic``: with ``m(x)``.

    Models: one.

    Source: Chen & Chao, On Bridging Generic and Personalized Federated Learning for Image
    Classification (2022).

    Example:
        >>> fedrod(gamma=0.5).local.own_model
        FedRod(gamma=0.5, predict='personal')
    """
    rule = FedRod(gamma, predict)
    return Method(assign=everyone, local=Train(how=WithOwnModel(rule)), needs=("class_labels",))
