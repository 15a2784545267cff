"""pFedMe: Dinh et al., Personalized Federated Learning with Moreau Envelopes (2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from coterie.config.arguments import CheckedFields, validated
from coterie.core import Train, WithOwnModel
from coterie.core.own_model import LastPassLoss, LocalTraining, Own, OwnTrained
from coterie.methods.method import Method
from coterie.rules.assigning import everyone
from coterie.rules.weighing import evenly

Above = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class PFedMe(CheckedFields):
    """A model ``theta_i`` of the client's own near the shared one, which follows it in turn."""

    lam: Above = 15.0
    inner_steps: Count = 5
    inner_lr: Above = 0.05
    plain_sgd = True

    def lengths(self, d: int) -> Mapping[str, int]:
        return {"theta": d}

    def first(self, sent: Tensor) -> Own:
        return {"theta": sent}

    def train(self, training: LocalTraining, own: Own) -> OwnTrained:
        w = training.start
        # The released code begins each round with the shared model, not with the stored one.
        theta = training.start
        loss = LastPassLoss()
        for batch in training.batches():
            # Alg. 1, l. 8: theta solves min f(theta, D) + lambda/2 |theta - w|^2 inexactly.
            for _ in range(self.inner_steps):
                gradient, batch_loss = training.gradient(theta, batch)
                gradient = gradient + self.lam * (theta - w)
                theta = theta.add(gradient, alpha=-self.inner_lr)
            loss.add(batch_loss, batch)
            # l. 9: w <- w - eta lambda (w - theta).
            w = w - training.solver.lr * self.lam * (w - theta)
        return OwnTrained(w - training.start, loss.mean, {"theta": theta})

    def serve(self, sent: Tensor, own: Own) -> Tensor:
        return own["theta"]


@validated
def pfedme(lam: Above = 15.0, inner_steps: Count = 5, inner_lr: Above = 0.05) -> Method:
    """pFedMe: each client trains its own model near the shared one, which follows it.

    Client ``i`` predicts with ``theta_i(w) = argmin f_i(theta) + lambda/2 |theta - w|^2`` (eq. 3),
    and changes ``w`` by the gradient of this envelope, ``lambda (w - theta_i(w))``.

    Args:
        lam: weight ``lambda`` of the distance between the two models.
        inner_steps: number ``K`` of steps of the own model for each batch.
        inner_lr: their learning rate.

    Models: one.

    Source: Dinh et al., Personalized Federated Learning with Moreau Envelopes (2020).

    Example:
        >>> pfedme(lam=5.0).local.own_model.lam
        5.0
    """
    rule = PFedMe(lam, inner_steps, inner_lr)
    # Alg. 1, l. 11: the plain mean of the cohort.
    return Method(assign=everyone, local=Train(how=WithOwnModel(rule)), weigh=evenly, needs=())
