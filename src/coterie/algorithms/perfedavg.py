"""Per-FedAvg: Fallah et al., Personalized Federated Learning with Theoretical Guarantees: A
Model-Agnostic Meta-Learning Approach (2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from coterie.config.arguments import CheckedFields, validated
from coterie.core import Train, WithOwnModel
from coterie.core.own_model import LastPassLoss, LocalTraining, Own, OwnTrained
from coterie.methods.method import Method
from coterie.rules.assigning import everyone

Rate = Annotated[float, Field(ge=0)]
Above = Annotated[float, Field(gt=0)]
Order = Literal["first", "hessian_free"]


@dataclass(frozen=True, slots=True)
class PerFedAvg(CheckedFields):
    """A shared model from which each client is one gradient step away from its own."""

    alpha: Rate = 0.01
    order: Order = "first"
    delta: Above = 0.001
    plain_sgd = True

    def lengths(self, d: int) -> Mapping[str, int]:
        return {}

    def first(self, sent: Tensor) -> Own:
        return {}

    def train(self, training: LocalTraining, own: Own) -> OwnTrained:
        if not self.alpha:
            # Without an inner step this is FedAvg's training. The loop below rounds otherwise.
            update, mean = training.run(training.start)
            return OwnTrained(update, mean, own)
        w = training.start
        # beta of the paper.
        beta = training.solver.lr
        loss = LastPassLoss()
        # Alg. 1, l. 7-9: three independent batches for each step.
        batches = zip(
            training.batches("inner"), training.batches(), training.batches("second"), strict=True
        )
        for inner, outer, second in batches:
            # l. 7: w~ = w - alpha grad f(w, D).
            adapted = w.add(training.gradient(w, inner)[0], alpha=-self.alpha)
            gradient, batch_loss = training.gradient(adapted, outer)
            loss.add(batch_loss, outer)
            # l. 8: w <- w - beta (I - alpha Hess f(w, D'')) grad f(w~, D').
            step = gradient
            if self.order == "hessian_free":
                above, _ = training.gradient(w + self.delta * gradient, second)
                below, _ = training.gradient(w - self.delta * gradient, second)
                # eq. 12: the product of the Hessian and the gradient.
                step = gradient - self.alpha * (above - below) / (2 * self.delta)
            w = w.add(step, alpha=-beta)
        return OwnTrained(w - training.start, loss.mean, own)

    def adapt(self, training: LocalTraining, own: Own) -> Tensor:
        # eq. 3: the step is along the gradient of the client's whole loss.
        if not training.steps:
            return training.start
        gradient, _ = training.gradient(training.start, training.everything())
        return training.start.add(gradient, alpha=-self.alpha)


@validated
def perfedavg(alpha: Rate = 0.01, order: Order = "first", delta: Above = 0.001) -> Method:
    """Per-FedAvg: one model, trained so that a single step on a client's data makes it fit the client.

    Clients minimise ``F_i(w) = f_i(w - alpha grad f_i(w))`` (eq. 3), and client ``i`` predicts with
    ``w - alpha grad f_i(w)``.

    Args:
        alpha: rate of that step; 0 is bitwise FedAvg.
        order: how the derivative of the step is taken: ``first``, as if it were 1, or
            ``hessian_free``, by a difference of gradients.
        delta: step size of that difference.

    Models: one.

    Source: Fallah et al., Personalized Federated Learning with Theoretical Guarantees: A
    Model-Agnostic Meta-Learning Approach (2020).

    Example:
        >>> perfedavg(alpha=0.1).local.own_model.order
        'first'
    """
    rule = PerFedAvg(alpha, order, delta)
    return Method(assign=everyone, local=Train(how=WithOwnModel(rule)), needs=())
