"""APFL: Deng et al., Adaptive Personalized Federated Learning (2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from coterie.config.arguments import CheckedFields, validated
from coterie.core import LocalTraining, Own, OwnTrained, Train, WithOwnModel
from coterie.methods.method import Method
from coterie.rules.assigning import everyone

Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class Apfl(CheckedFields):
    """A model ``v_i`` of the client's own, of which it predicts by a mixture with the shared
    one."""

    alpha: Share = 0.5
    adaptive: bool = True
    plain_sgd = True

    def lengths(self, d: int) -> Mapping[str, int]:
        return {"v": d, "alpha": 1}

    def first(self, sent: Tensor) -> Own:
        return {"v": sent, "alpha": torch.tensor([self.alpha])}

    def train(self, training: LocalTraining, own: Own) -> OwnTrained:
        # The shared part is FedAvg's. Its steps are taken once more below, with those of the own
        # model: so the update has the bits of FedAvg's, whatever code trains it.
        update, loss = training.run(training.start)
        if self.alpha == 1 and not self.adaptive:
            # The mixture is the own model alone, so this is local training. The loop below rounds
            # otherwise.
            own_update, _ = training.run(own["v"])
            return OwnTrained(update, loss, {**own, "v": own["v"] + own_update})
        w = training.start
        v = own["v"]
        alpha = float(own["alpha"])
        eta = training.solver.lr
        for step, batch in enumerate(training.batches()):
            # Alg. 1: v_bar = alpha v + (1 - alpha) w, of the step before.
            gradient, _ = training.gradient(alpha * v + (1 - alpha) * w, batch)
            along = float(torch.dot(v - w, gradient))
            # The gradient with respect to v of f(alpha v + (1 - alpha) w) is alpha times that of f.
            v = v.add(gradient, alpha=-eta * alpha)
            w = w.add(training.gradient(w, batch)[0], alpha=-eta)
            # alpha <- alpha - eta <v - w, grad f(v_bar)>, once a round.
            if self.adaptive and step == 0:
                alpha = min(1.0, max(0.0, alpha - eta * along))
        return OwnTrained(update, loss, {"v": v, "alpha": torch.tensor([alpha])})

    def serve(self, sent: Tensor, own: Own) -> Tensor:
        alpha = float(own["alpha"])
        return alpha * own["v"] + (1 - alpha) * sent


@validated
def apfl(alpha: Share = 0.5, adaptive: bool = True) -> Method:
    """APFL: FedAvg, and each client predicts with a mixture of the shared model and its own.

    Client ``i`` predicts with ``alpha_i v_i + (1 - alpha_i) w``. It trains ``v_i`` for the loss of
    this mixture, and ``w`` as in FedAvg (Alg. 1).

    Args:
        alpha: share of the client's own model in the mixture; with ``adaptive``, its initial value.
            If it is fixed, 0 is bitwise FedAvg and 1 is local training.
        adaptive: whether each client has its own share, which follows its loss.

    Models: one.

    Source: Deng et al., Adaptive Personalized Federated Learning (2020).

    Example:
        >>> apfl(alpha=0.25, adaptive=False).local.own_model
        Apfl(alpha=0.25, adaptive=False)
    """
    return Method(assign=everyone, local=Train(how=WithOwnModel(Apfl(alpha, adaptive))), needs=())
