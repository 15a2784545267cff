"""The gate: nothing a client sends reaches an algorithm unchecked, and nothing it sends raises."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import IntArray
from coterie.core.engine import Reply
from coterie.core.work import Evaluate, Train, Work
from coterie.data.population import Population

Fields = Mapping[str, tuple[tuple[int, ...], str]]


@dataclass(frozen=True, slots=True)
class ReplyValidator:
    """Admits a reply when it answers this request of this round, from a client that was asked, and
    the first from it.

    It must have exactly the expected keys, shapes and dtype kinds, finite values of at most
    ``limit`` in size, and ``0 < n <= cap`` samples.

    Args:
        cap: the most samples a client may claim.
        tested: the most test samples, ``None``: as many.
        limit: the largest absolute value of any number in a reply.

    Example:
        >>> from coterie.core.work import Evaluate
        >>> validator, asked = ReplyValidator(), np.array([4, 7])
        >>> late = Reply(1, np.array([4]), {"correct": np.ones((1, 1)), "loss": np.ones((1, 1)), "size": np.ones(1)})
        >>> reply, refused = validator.validate(Evaluate(), asked, [late], round=2, d=10, r=1)
        >>> len(reply), dict(refused)
        (0, {'late': 1})
    """

    cap: float = 1e9
    tested: float | None = None
    limit: float = 1e15

    def validate(
        self,
        work: Work,
        asked: IntArray,
        replies: Sequence[Reply],
        *,
        round: int,
        d: int,
        r: int,
        purpose: str = "",
    ) -> tuple[Reply, Counter[str]]:
        """One clean block in ascending order of clients, and what was refused, by reason."""
        refused: Counter[str] = Counter()
        fields = work.fields(d, r)
        testing = isinstance(work, Evaluate) and work.split == "test"
        cap = self.tested if testing and self.tested is not None else self.cap
        seen = np.empty(0, np.int64)
        kept: list[tuple[Reply, IntArray]] = []
        for reply in replies:
            stale = reply.round != round or reply.purpose != purpose
            reason = "late" if stale else _malformed(reply, fields)
            if reason is not None:
                refused[reason] += max(1, np.size(reply.ids))
                continue
            reasons = self._reasons(reply, fields, cap)
            if isinstance(work, Train) and work.choose is not None:
                reasons[(reasons == "") & ~_is_column(reply.fields["choice"], r)] = "choice"
            reasons[~np.isin(reply.ids, asked)] = "stranger"
            good = np.flatnonzero(reasons == "")
            rows = good[np.sort(np.unique(reply.ids[good], return_index=True)[1])]
            rows = rows[~np.isin(reply.ids[rows], seen)]
            refused.update(reasons[reasons != ""].tolist())
            refused["duplicate"] += len(good) - len(rows)
            seen = np.concatenate([seen, reply.ids[rows]])
            kept.append((reply, rows))
        return _merge(kept, fields, round), +refused

    def _reasons(self, reply: Reply, fields: Fields, cap: float) -> NDArray[np.str_]:
        """Why each row is refused, ``""`` where it is not."""
        reasons = np.full(len(reply.ids), "", dtype="<U16")
        for name in fields:
            values = reply.fields[name]
            values = values.reshape(len(values), math.prod(values.shape[1:]))
            if (
                values.size and not max(float(values.max()), -float(values.min())) <= self.limit
            ):  # true of a NaN, too
                with np.errstate(invalid="ignore", over="ignore"):
                    reasons[(np.abs(values) > self.limit).any(axis=1)] = "magnitude"
                reasons[~np.isfinite(values).all(axis=1)] = "not finite"
        size = reply.fields["size"]
        reasons[(reasons == "") & ~((size > 0) & (size.astype(np.float64) <= cap))] = "size"
        return reasons


def _is_column(choice: NDArray[Any], r: int) -> NDArray[np.bool_]:
    """Whether each number names one of the ``r`` models that its client was sent."""
    return (choice >= 0) & (choice < r) & (choice == np.floor(choice))


def _malformed(reply: Reply, fields: Fields) -> str | None:
    if (
        not isinstance(reply.ids, np.ndarray)
        or reply.ids.ndim != 1
        or not _plain(reply.ids.dtype, "i")
    ):
        return "ids"
    if not isinstance(reply.fields, Mapping) or set(reply.fields) != set(fields):
        return "keys"
    n = len(reply.ids)
    for name, (shape, kind) in fields.items():
        values = reply.fields[name]
        if not isinstance(values, np.ndarray) or values.shape != (n, *shape):
            return "shape"
        if not _plain(values.dtype, kind):
            return "dtype"
    return None


def _plain(dtype: np.dtype[Any], kind: str) -> bool:
    """Of that kind, in this machine's byte order, and of a size that PyTorch has, too."""
    return dtype.kind == kind and dtype.isnative and dtype.itemsize <= 8


def _merge(kept: list[tuple[Reply, IntArray]], fields: Fields, round: int) -> Reply:
    if (
        len(kept) == 1
        and len(kept[0][1]) == len(kept[0][0].ids)
        and np.all(np.diff(kept[0][0].ids) > 0)
    ):
        return Reply(round, kept[0][0].ids, kept[0][0].fields)
    ids = np.concatenate([reply.ids[rows] for reply, rows in kept] or [np.empty(0, np.int64)])
    order = np.argsort(ids, kind="stable")
    merged = {}
    for name, (shape, _) in fields.items():
        parts = [reply.fields[name][rows] for reply, rows in kept] or [
            np.empty((0, *shape), np.float32)
        ]
        merged[name] = np.concatenate(parts)[order]
    return Reply(round, ids[order], merged)


def validator_for(population: Population) -> ReplyValidator:
    """A gate that lets no client of a simulation claim more samples than any of them holds.

    Example:
        >>> import torch
        >>> x, y = torch.zeros(6, 2), torch.zeros(6, dtype=torch.long)
        >>> validator_for(Population(x, y, (np.arange(2),), (np.arange(2, 6),), 2))
        ReplyValidator(cap=2.0, tested=4.0, limit=1000000000000000.0)
    """
    most = (float(max(1, population.sizes(split).max())) for split in ("train", "test"))
    return ReplyValidator(*most)
