"""Ditto: Li et al., Ditto: Fair and Robust Federated Learning Through Personalization (2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from coterie.config.arguments import CheckedFields, validated
from coterie.core import LocalTraining, Own, OwnTrained, Train, WithOwnModel
from coterie.methods.method import Method
from coterie.rules.assigning import everyone

Weight = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Ditto(CheckedFields):
    """A model ``v_k`` of the client's own that is pulled towards the shared one."""

    lam: Weight = 1.0
    plain_sgd = False

    def lengths(self, d: int) -> Mapping[str, int]:
        return {"v": d}

    def first(self, sent: Tensor) -> Own:
        return {"v": sent}

    def train(self, training: LocalTraining, own: Own) -> OwnTrained:
        # Alg. 1, l. 5: w_k^t solves the objective of the shared model inexactly, from w^t.
        update, loss = training.run(training.start)
        # l. 6: v_k <- v_k - eta (grad F_k(v_k) + lambda (v_k - w^t)), s times.
        step, _ = training.run(own["v"], anchor=training.start, mu=self.lam)
        # l. 7: only Delta_k^t = w_k^t - w^t is sent.
        return OwnTrained(update, loss, {"v": own["v"] + step})

    def serve(self, sent: Tensor, own: Own) -> Tensor:
        return own["v"]


@validated
def ditto(lam: Weight = 1.0) -> Method:
    """Ditto: FedAvg, and each client also trains its own model, close to the shared one.

    The shared model ``w`` is that of FedAvg. Client ``k`` predicts with ``v_k``, which it trains to
    minimise ``h_k(v_k; w) = F_k(v_k) + lambda/2 ||v_k - w||^2`` (eq. 2).

    Args:
        lam: weight ``lambda`` of the pull towards the shared model; with 0 clients train alone.

    Models: one.

    Source: Li et al., Ditto: Fair and Robust Federated Learning Through Personalization (2021).

    Example:
        >>> ditto(lam=0.1).local.own_model
        Ditto(lam=0.1)
    """
    return Method(assign=everyone, local=Train(how=WithOwnModel(Ditto(lam))), needs=())
