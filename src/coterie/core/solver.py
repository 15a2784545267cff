"""The local solver: how a client trains."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field

from coterie.config.arguments import check_arguments


@lru_cache(maxsize=256, typed=True)
def _check_solver(*values: Any) -> None:
    """Checked once: every client's training makes a solver from the run's."""
    check_arguments(Solver, dict(zip(Solver.__slots__, values, strict=True)))


@dataclass(frozen=True, slots=True)
class Solver:
    """Local SGD: ``epochs`` over reshuffled data in batches, the last partial batch kept.

    Args:
        epochs: local epochs ``E``.
        batch_size: ``B``.
        lr: learning rate ``eta``.
        momentum: classical momentum, reset at the start of every local training.
        l2: weight of ``l2 * sum w^2`` over the kernels that the model names (gradient ``2 l2 w``).
        steps: where set, this many mini-batch steps instead of epochs, cycling through reshuffled
            epochs.

    Raises:
        ConfigError: for a value out of its range.
    """

    epochs: Annotated[int, Field(ge=0)] = 10
    batch_size: Annotated[int, Field(ge=1)] = 10
    lr: Annotated[float, Field(gt=0)] = 0.03
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    l2: Annotated[float, Field(ge=0)] = 0.0
    steps: Annotated[int, Field(ge=0)] | None = None

    def __post_init__(self) -> None:
        _check_solver(self.epochs, self.batch_size, self.lr, self.momentum, self.l2, self.steps)

    def count(self, size: int) -> int:
        """Number of steps this solver takes on a client with ``size`` samples."""
        # Also with `steps`, which would cycle for ever through no samples.
        if size == 0:
            return 0
        if self.steps is None:
            # The last partial batch is kept, as Keras does in FlexCFL's code.
            return self.epochs * -(-size // self.batch_size)
        return self.steps
