"""What every rule of a method sees of the round it works in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from coterie.clients.clients import Clients
from coterie.core import BoolArray, Epochs, IntArray, Key, Layout, Objective, Solver, Steps, Train


@dataclass(frozen=True, slots=True)
class Round:
    """A round, as every slot of a method sees it. Rules do not store it in their state.

    Args:
        number: the number of the round, from 0.
        key: the random stream of the current slot in this round.
        cohort: int64 ``[n]``, the clients that were sampled to train, ascending.
        clients: sends requests to clients.
        solver: the run's local solver.
        local: what the method's clients do in this round.
        can_train: bool ``[N]``, the clients that are present and hold training samples; ``None``:
            all.
        fixed_data: whether clients' data never change in the run, so that rules need not check for
            drift.
        least_replies: the number of replies without which the round does not count.
    """

    number: int
    key: Key
    cohort: IntArray
    clients: Clients
    solver: Solver = field(default_factory=Solver)
    local: Train = Train()
    can_train: BoolArray | None = None
    fixed_data: bool = False
    least_replies: int = 1

    @property
    def objective(self) -> Objective:
        """What clients minimise, also when a rule trains them only to place them."""
        return self.local.objective

    def trial(
        self,
        *,
        epochs: int | None = None,
        steps: int | None = None,
        upload: tuple[int, int] | None = None,
        choose: Literal["least_loss"] | None = None,
    ) -> Train:
        """A training that gives information about a client and leaves no trace on it
        (`Train.trial`). It has the same objective, and what stays with clients in this round is not
        sent here either.

        Args:
            epochs: local epochs; ``None``: those of the run's solver.
            steps: mini-batch steps instead of epochs.
            upload: the slice of the update that is sent.
            choose: see `Train`.
        """
        return Train(
            self.objective,
            Epochs(epochs) if steps is None else Steps(steps),
            upload=upload,
            choose=choose,
            keep=self.local.keep,
            trial=True,
        )

    @property
    def layout(self) -> Layout:
        """Names and positions of the model's tensors in its flat vector."""
        assert self.clients.layout is not None, "the clients know no layout"
        return self.clients.layout

    def trainable(self, population: int) -> IntArray:
        """The clients that are present and hold training samples, ascending."""
        if self.can_train is None:
            return np.arange(population)
        return np.flatnonzero(self.can_train)

    def of(self, purpose: str) -> Round:
        """The same round with the random stream of a purpose within this one."""
        return replace(self, key=self.key.of(purpose))

    def with_cohort(self, cohort: IntArray) -> Round:
        """The same round with another cohort."""
        return replace(self, cohort=cohort)
