"""How a client trains: the kinds of local training."""

from __future__ import annotations

from dataclasses import dataclass, replace

from coterie.core.keep import Keep, KeepLayers
from coterie.core.own_model import OwnModel
from coterie.core.plan import ClientShares, SampleWeights
from coterie.core.solver import Solver


@dataclass(frozen=True, slots=True)
class Epochs:
    """A budget of passes over the client's samples.

    Args:
        number: ``None``: the budget of the run's solver.
        spent: epochs that the client has already trained in this round; they are subtracted.
    """

    number: int | None = None
    spent: int = 0

    def of(self, base: Solver) -> Solver:
        """The solver with this budget."""
        # A run whose budget is a number of steps keeps it, unless the work names epochs.
        if self.number is None and (base.steps is not None or not self.spent):
            return base
        epochs = base.epochs
        if self.number is not None:
            epochs = self.number
        left = epochs - self.spent
        if left <= 0:
            return replace(base, steps=0)
        return replace(base, epochs=left, steps=None)

    def after(self, spent: int) -> Epochs:
        """The remaining budget after some epochs of this round."""
        return replace(self, spent=spent)


@dataclass(frozen=True, slots=True)
class Steps:
    """A budget of mini-batch steps."""

    number: int

    def of(self, base: Solver) -> Solver:
        """The solver with this budget."""
        return replace(base, steps=self.number)

    def after(self, spent: int) -> Steps:
        """The same budget, because earlier epochs do not count."""
        return self


Budget = Epochs | Steps


@dataclass(frozen=True, slots=True)
class FullGradient:
    """No steps: the update is minus the gradient of the whole local loss."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a local training in which only some coordinates move.

    Args:
        only: the coordinates that move; the others keep their values from the previous phase. A
            method names layers; they are converted to coordinates when it is fitted to its network.
        epochs: local epochs, in place of those of the run's solver.
    """

    only: Keep | KeepLayers
    epochs: int

    @property
    def moves(self) -> Keep:
        """The coordinates that move."""
        assert isinstance(self.only, Keep), "the method was not fitted to its network"
        return self.only


@dataclass(frozen=True, slots=True)
class Phases:
    """Training in consecutive parts, such as the head and then the body in FedRep. The loss of the
    reply is that of the last part."""

    parts: tuple[Phase, ...]


@dataclass(frozen=True, slots=True)
class WithOwnModel:
    """The client trains by a rule, with values of its own that it stores and never sends.

    A method may send further vectors in addition to the model: then ``which`` is ``[n, r]``, the
    model first.

    Args:
        rule: what the client stores, and how it trains.
        budget: the budget of one training by the rule.
    """

    rule: OwnModel
    budget: Budget = Epochs()


@dataclass(frozen=True, slots=True)
class Mixture:
    """The client trains all models that it is sent, each on its samples, weighted by the
    probability that the model explains them.

    It is sent ``r`` models (``which`` is ``[n, r]``) and its shares of them. The reply's ``delta``
    is ``[r, d]``, and it has the client's new ``shares [r]``. With a prior of labels it also has
    ``label_sums [r, c]``, the weights of each model's samples by class.

    Args:
        shares: the shares of the clients of a request; methods leave them out.
        budget: the budget of the training of each model.
    """

    shares: ClientShares | None = None
    budget: Budget = Epochs()


@dataclass(frozen=True, slots=True)
class WeightedSamples:
    """One model of a mixture; engines ask for it."""

    weights: SampleWeights
    budget: Budget = Epochs()


How = Budget | FullGradient | Phases | WithOwnModel | Mixture | WeightedSamples
