"""Scores of sets of clients, kept as long as their model and their samples stay the same."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import torch
from torch import Tensor

from coterie.core import FloatArray, IntArray, Score
from coterie.data.lazy import KEEP

_Name = tuple[object, ...]
_Kept = tuple[Tensor, Mapping[str, FloatArray]]


class KeptScores:
    """The scores of each set of clients under the model that it was scored on last, up to ``most``
    bytes.

    The members of a group in which no client trained are scored again on the same model, and so is
    a client with its own model that was not in the cohort. `clear` it when samples change.
    """

    def __init__(self, most: int = KEEP // 2) -> None:
        self._most = most
        self._kept: OrderedDict[_Name, _Kept] = OrderedDict()
        self._bytes = 0

    def clear(self) -> None:
        """Forget all of it."""
        self._kept.clear()
        self._bytes = 0

    def find(self, vector: Tensor, ids: IntArray, work: Score) -> Mapping[str, FloatArray] | None:
        """The scores of these clients under this very model, ``None`` if they are not known."""
        name = _name(ids, work)
        if name not in self._kept:
            return None
        model, scores = self._kept[name]
        # Value by value: it takes a hundredth of the time of scoring.
        if not torch.equal(model, vector):
            return None
        self._kept.move_to_end(name)
        return scores

    def keep(
        self, vector: Tensor, ids: IntArray, work: Score, scores: Mapping[str, FloatArray]
    ) -> None:
        """Remember the scores of these clients; the arguments are those of `find`."""
        # The samples of a cohort that trains are scored under every model in turn, and never again.
        if work.split != "test":
            return
        name = _name(ids, work)
        self._forget(name)
        # A copy: what was sent lies in memory that the next request overwrites.
        kept = (vector.clone(), scores)
        if _size(kept) > self._most:
            return
        self._kept[name] = kept
        self._bytes += _size(kept)
        while self._bytes > self._most:
            self._forget(next(iter(self._kept)))

    def _forget(self, name: _Name) -> None:
        kept = self._kept.pop(name, None)
        if kept is not None:
            self._bytes -= _size(kept)


def _name(ids: IntArray, work: Score) -> _Name:
    return ids.tobytes(), work.split, tuple(work.sums), work.loss


def _size(kept: _Kept) -> int:
    vector, scores = kept
    return vector.nbytes + sum(values.nbytes for values in scores.values())
