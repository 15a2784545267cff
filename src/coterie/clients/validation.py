"""Validation of replies: nothing a client sends reaches an algorithm unchecked, and nothing it
sends raises."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core import IntArray, Reply, Score, Train, Work
from coterie.core.task import KnowsPossibleSums
from coterie.data.population import Population

Fields = Mapping[str, tuple[tuple[int, ...], str]]
_LARGEST_ITEM = 8  # bytes of a number; PyTorch has no larger ones
_GOOD = ""  # the reason of a row that is not refused


@dataclass(frozen=True, slots=True)
class Expected:
    """What a reply must answer.

    Args:
        asked: int64 ``[n]``, who was asked.
        d: values of a model.
        r: models that each client was sent.
    """

    work: Work
    asked: IntArray
    round: int
    purpose: str = ""
    d: int = 0
    r: int = 1

    @property
    def fields(self) -> Fields:
        return self.work.fields(self.d, self.r)


@dataclass(frozen=True, slots=True)
class ReplyValidator:
    """Accepts a reply when it answers this request of this round, from a client that was asked, and
    is the first from it.

    It must have exactly the expected keys, shapes and dtype kinds, finite values of at most
    ``limit`` in size, ``0 < n <= cap`` samples, no more correct predictions than samples, and as
    many wins of models.

    Args:
        tested: the most test samples, by default ``cap``.
        task: sums over test samples that no samples have are refused (``sums``). ``None``: they are
            not looked at, as those of a simulation.
    """

    cap: float = 1e9
    tested: float | None = None
    # A square of such a number, summed over all values of a model, still fits float32.
    limit: float = 1e15
    task: KnowsPossibleSums | None = None

    def validate(self, expected: Expected, replies: Sequence[Reply]) -> tuple[Reply, Counter[str]]:
        """One clean block in ascending order of clients, and what was refused, by reason."""
        refused: Counter[str] = Counter()
        seen = np.empty(0, np.int64)
        kept: list[tuple[Reply, IntArray]] = []
        for reply in replies:
            reason = _reason_for_all(reply, expected)
            if reason is not None:
                # One that names no client, or names them in no array, is still one refusal.
                refused[reason] += max(1, np.size(reply.ids))
                continue
            if not len(reply.ids):
                continue
            reasons = self._reasons(reply, expected)
            refused.update(reasons[reasons != _GOOD].tolist())
            good = np.flatnonzero(reasons == _GOOD)
            # The first reply of a client counts, in this block and in those before it.
            rows = good
            # Engines answer in order, and each client once.
            if not (np.diff(reply.ids[good]) > 0).all():
                rows = good[np.sort(np.unique(reply.ids[good], return_index=True)[1])]
            if len(seen):
                rows = rows[~np.isin(reply.ids[rows], seen)]
            refused["duplicate"] += len(good) - len(rows)
            seen = np.concatenate([seen, reply.ids[rows]])
            kept.append((reply, rows))
        # The plus leaves out reasons with a count of zero, as `duplicate` has where all is well.
        return _merged(kept, expected), +refused

    def _reasons(self, reply: Reply, expected: Expected) -> NDArray[np.str_]:
        """Why each row is refused, ``""`` where it is not."""
        # Room for the longest reason: NumPy cuts longer text off without a word.
        reasons = np.full(len(reply.ids), _GOOD, dtype="<U16")
        for name in expected.fields:
            self._check_values(reply.fields[name], reasons)
        size = reply.size
        # In float64: a half-precision size would turn the cap into infinity, and let all pass.
        in_range = (size > 0) & (size.astype(np.float64) <= self._cap(expected.work))
        reasons[(reasons == _GOOD) & ~in_range] = "size"
        if "correct" in expected.fields:
            correct = reply.correct
            possible = ((correct >= 0) & (correct <= size[:, None])).all(axis=1)
            reasons[(reasons == _GOOD) & ~possible] = "correct"
        if self.task is not None and isinstance(expected.work, Score):
            reasons[(reasons == _GOOD) & ~_possible(self.task, reply.fields)] = "sums"
        if "wins" in expected.fields:
            reasons[(reasons == _GOOD) & ~_shared_out(reply.fields["wins"], size)] = "wins"
        if "shares" in expected.fields:
            reasons[(reasons == _GOOD) & ~_sums_to_one(reply.fields["shares"])] = "shares"
        if "label_sums" in expected.fields:
            sums = reply.fields["label_sums"].reshape(len(size), -1)
            # The sums of a client without a sample of a class are 0.
            of_samples = sums / np.where(size > 0, size, 1.0)[:, None]
            reasons[(reasons == _GOOD) & ~_sums_to_one(of_samples)] = "label_sums"
        if "clipped" in expected.fields:
            marks = np.isin(reply.fields["clipped"], (0.0, 1.0))
            reasons[(reasons == _GOOD) & ~marks] = "clipped"
        if isinstance(expected.work, Train) and expected.work.choose is not None:
            # Each number names one of the models that its client was sent.
            valid = (
                (reply.choice >= 0)
                & (reply.choice < expected.r)
                & (reply.choice == np.floor(reply.choice))
            )
            reasons[(reasons == _GOOD) & ~valid] = "choice"
        # Last and over every other reason: of a client that was not asked, nothing else matters.
        reasons[~np.isin(reply.ids, expected.asked)] = "stranger"
        return reasons

    def _check_values(self, values: NDArray[Any], reasons: NDArray[np.str_]) -> None:
        """Note the rows whose values are too large or not finite."""
        values = values.reshape(len(values), math.prod(values.shape[1:]))
        # Nearly always all is well, which the extremes of the whole block show, without an array of
        # the same size. One NaN makes both extremes NaN, which is in no range.
        if not values.size or max(float(values.max()), -float(values.min())) <= self.limit:
            return
        with np.errstate(invalid="ignore", over="ignore"):
            reasons[(np.abs(values) > self.limit).any(axis=1)] = "magnitude"
        # Second, since infinity is beyond the limit, too, and this says more.
        reasons[~np.isfinite(values).all(axis=1)] = "not finite"

    def _cap(self, work: Work) -> float:
        """The most samples a client may claim to have used."""
        if isinstance(work, Score) and work.split == "test" and self.tested is not None:
            return self.tested
        return self.cap


def _possible(task: KnowsPossibleSums, fields: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Whether some samples have each client's sums, under all models that it was sent."""
    sums = {name: fields[name].astype(np.float64) for name, _ in task.sums if name in fields}
    # A method may ask for some of them, which alone say too little.
    if len(sums) < len(task.sums):
        return np.ones(len(fields["size"]), np.bool_)
    size = fields["size"].astype(np.float64)[:, None]
    # What is not finite was refused before.
    with np.errstate(invalid="ignore", over="ignore"):
        possible = task.possible({**sums, "size": size})
    return np.all(possible, axis=1)


def _shared_out(wins: NDArray[Any], size: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each client's wins are counts that add up to its samples."""
    counts = (wins >= 0) & (wins == np.floor(wins))
    return counts.all(axis=1) & (wins.sum(axis=1) == size)


def _sums_to_one(shares: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each client's shares are some, up to rounding in float32."""
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(shares.sum(axis=1) - 1) < 1e-5
    return (shares >= 0).all(axis=1) & near


def _reason_for_all(reply: Reply, expected: Expected) -> str | None:
    """Why a whole block is refused; ``None`` if its rows are to be checked one by one."""
    # First, since a reply to another request may well have other fields.
    if reply.round != expected.round or reply.purpose != expected.purpose:
        return "late"
    ids = reply.ids
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or not _is_plain(ids.dtype, "i"):
        return "ids"
    fields = expected.fields
    if not isinstance(reply.fields, Mapping) or set(reply.fields) != set(fields):
        return "keys"
    for name, (shape, kind) in fields.items():
        values = reply.fields[name]
        if not isinstance(values, np.ndarray) or values.shape != (len(ids), *shape):
            return "shape"
        if not _is_plain(values.dtype, kind):
            return "dtype"
    return None


def _is_plain(dtype: np.dtype[Any], kind: str) -> bool:
    """Of that kind, in this machine's byte order, and of a size that PyTorch has, too."""
    return dtype.kind == kind and dtype.isnative and dtype.itemsize <= _LARGEST_ITEM


def _merged(kept: list[tuple[Reply, IntArray]], expected: Expected) -> Reply:
    if len(kept) == 1:
        reply, rows = kept[0]
        # One whole block in order, as engines make it: its arrays are used as they are, since a
        # copy of all updates is what a round has no memory for.
        if len(rows) == len(reply.ids) and np.all(np.diff(reply.ids) > 0):
            return Reply(expected.round, reply.ids, reply.fields)
    parts = [reply.ids[rows] for reply, rows in kept]
    ids = np.concatenate([np.empty(0, np.int64), *parts])
    order = np.argsort(ids, kind="stable")
    merged = {}
    for name, (shape, _) in expected.fields.items():
        values = [reply.fields[name][rows] for reply, rows in kept]
        if not values:
            values = [np.empty((0, *shape), np.float32)]
        merged[name] = np.concatenate(values)[order]
    return Reply(expected.round, ids[order], merged)


def validator_for(population: Population) -> ReplyValidator:
    """A validator that lets no client of a simulation claim more samples than any of them holds."""
    trained = float(max(1, population.sizes("train").max()))
    tested = float(max(1, population.sizes("test").max()))
    return ReplyValidator(trained, tested)
