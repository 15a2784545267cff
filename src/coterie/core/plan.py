"""Who trains from which model, and after whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from coterie.core.arrays import FloatArray, IntArray, empty_mapping
from coterie.core.groups import Groups
from coterie.core.mixtures import with_mixtures


@dataclass(frozen=True, slots=True)
class Plan:
    """Who trains from which model, and after whom.

    The plan is the matrix ``M [n, k]`` of the design: client ``i`` starts from ``M_i @ models``.
    A client of one group has a single 1 in its row of ``M``, so the matrix is kept as the number of
    that column.

    Args:
        ids: int64 ``[n]``, distinct clients.
        row: int64 ``[n]``, the model each one trains (clients of one chain share it). Numbers from
            ``k`` on name the rows of ``mixtures``. Where clients choose for themselves
            (``Train.choose``), int64 ``[n, r]``: the models that each is sent.
        chain: int64 ``[n]``, clients with the same number train one after another, in the order
            listed. ``None``: all of them train side by side.
        spent: int64 ``[n]``, local epochs already spent in this round (in a cold start), ``None``:
            none.
        notes: what the rule did, as counts (newcomers, cold start, fallbacks).
        mixtures: float64 ``[m, k]``, rows of ``M`` with several models in them, ``None``: there are
            none. Each sums to 1.
        shares: float64 ``[n, k]``, what clients that train all models are told of their shares
            (``Mixture``); ``None``: they train one.
        answers: reads what clients were asked beside their training, once they have trained, and
            puts it into the groups and the notes; ``None``: nothing. No training may depend on it.
        label_prior: float64 ``[k, c]``, with ``shares``: how often each model's samples have each
            class (``ClientShares.label_prior``).
    """

    ids: IntArray
    row: IntArray
    chain: IntArray | None = None
    spent: IntArray | None = None
    notes: Mapping[str, Any] = field(default_factory=empty_mapping)
    mixtures: FloatArray | None = None
    shares: FloatArray | None = None
    label_prior: FloatArray | None = None
    answers: Callable[[Groups], tuple[Groups, Mapping[str, Any]]] | None = None

    def answered(self, groups: Groups) -> tuple[Groups, Plan]:
        """The groups and the plan with what clients answered beside their training."""
        if self.answers is None:
            return groups, self
        groups, notes = self.answers(groups)
        return groups, replace(self, notes={**self.notes, **notes}, answers=None)

    def start_models(self, models: Tensor) -> Tensor:
        """The vectors ``[k + m, d]`` that ``row`` counts in: the models, then their mixtures."""
        return with_mixtures(models, self.mixtures)
