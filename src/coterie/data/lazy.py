"""Samples that are made when they are asked for, client by client: federations larger than
memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, cast, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.core.threads import one_library_thread
from coterie.errors import DataError

KEEP = 2**27  # bytes of samples that each process keeps at hand

Span = tuple[int, int, int]  # a client, and the rows of the pool it is asked for: first, last + 1
Made = tuple[NDArray[np.float32], IntArray]


class Maker(Protocol):
    """Makes all samples of one client: inputs ``[n, ...]`` and labels int64 ``[n]``, the same ones
    every time."""

    def __call__(self, client: int, /) -> tuple[NDArray[Any], IntArray]: ...


@dataclass(frozen=True)
class Ranges(Sequence[IntArray]):
    """Index arrays that are ranges, two numbers each: client ``i`` holds ``start[i] .. start[i] +
    size[i] - 1``.

    Args:
        start: int64 ``[N]``.
        size: int64 ``[N]``.

    Example:
        >>> held = Ranges(np.array([0, 3]), np.array([3, 2]))
        >>> len(held), held[1].tolist(), [rows.tolist() for rows in held]
        (2, [3, 4], [[0, 1, 2], [3, 4]])
    """

    start: IntArray
    size: IntArray

    def __len__(self) -> int:
        return len(self.start)

    @overload
    def __getitem__(self, at: int) -> IntArray: ...

    @overload
    def __getitem__(self, at: slice) -> Ranges: ...

    def __getitem__(self, at: int | slice) -> IntArray | Ranges:
        if isinstance(at, slice):
            return Ranges(self.start[at], self.size[at])
        first = int(self.start[at])
        return np.arange(first, first + int(self.size[at]))

    def __iter__(self) -> Iterator[IntArray]:
        return (self[i] for i in range(len(self)))


def ranges(start: IntArray, size: IntArray) -> tuple[IntArray, ...]:
    """Index arrays that are ranges, in the place of a tuple of them (see `Ranges`)."""
    return cast(tuple[IntArray, ...], Ranges(start, size))


class Drawn:
    """Inputs or labels of a pool in which client ``i`` owns the rows ``offsets[i] .. offsets[i + 1]
    - 1``.

    It takes the place of a tensor where a few rows at a time are asked for (``column[rows]``), and
    says so where all of them would be. What was asked for lately is kept, up to ``KEEP`` bytes.
    Make both columns with `drawn`.

    Raises:
        DataError: for any use that needs all samples at once.

    Example:
        >>> x, y = drawn(lambda i: (np.full((2, 3), i, np.float32), np.array([0, 1])), np.array([0, 2, 4]), (3,))
        >>> x.shape, x[torch.tensor([1, 2])][:, 0].tolist(), y[torch.tensor([1, 2])].tolist()
        (torch.Size([4, 3]), [0.0, 1.0], [1, 0])
    """

    def __init__(self, pool: _Pool, column: int, inner: tuple[int, ...]) -> None:
        self._pool = pool
        self._column = column
        self.shape = torch.Size((int(pool.offsets[-1]), *inner))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Tensor) -> Tensor:
        wanted = rows.numpy()
        found = np.empty((len(wanted), *self.shape[1:]), np.int64 if self._column else np.float32)
        if not len(wanted):
            return torch.from_numpy(found)
        owner = np.searchsorted(self._pool.offsets, wanted, side="right") - 1
        edges = np.concatenate([[0], np.flatnonzero(np.diff(owner)) + 1])
        first = np.minimum.reduceat(wanted, edges)
        last = np.maximum.reduceat(wanted, edges)
        ends = [*edges[1:].tolist(), len(wanted)]
        spans = zip(owner[edges].tolist(), first.tolist(), (last + 1).tolist(), strict=True)
        for at, end, span in zip(edges.tolist(), ends, spans, strict=True):
            found[at:end] = self._pool(span)[self._column][wanted[at:end] - span[1]]
        return torch.from_numpy(found)

    def numpy(self) -> NoReturn:
        """Not to be had."""
        _refuse()

    def reshape(self, *shape: int) -> NoReturn:
        """Not to be had."""
        _refuse()

    def contiguous(self) -> NoReturn:
        """Not to be had."""
        _refuse()

    def clone(self) -> NoReturn:
        """Not to be had."""
        _refuse()


def is_drawn(column: object) -> bool:
    """Whether a column of samples is made client by client."""
    return isinstance(column, Drawn)


def drawn(make: Maker, offsets: IntArray, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Inputs and labels of a federation that is made client by client, each in the place of a
    tensor (see `Drawn`).

    Args:
        make: makes a client's samples; it is pickled where worker processes are not forked.
        offsets: int64 ``[N + 1]``, ascending from 0.
        shape: of one input.
    """
    pool = _Pool(make, offsets, tuple(shape))
    return cast(Tensor, Drawn(pool, 0, shape)), cast(Tensor, Drawn(pool, 1, ()))


class _Pool:
    """Makes clients, and keeps the spans of rows that were asked for last: test rows take less room
    than all."""

    def __init__(self, make: Maker, offsets: IntArray, inner: tuple[int, ...]) -> None:
        self.make = make
        self.offsets = offsets
        self.inner = inner
        self._kept: OrderedDict[Span, Made] = OrderedDict()
        self._bytes = 0

    def __call__(self, span: Span) -> Made:
        """Some rows of the pool, all of them one client's."""
        if span in self._kept:
            self._kept.move_to_end(span)
            return self._kept[span]
        client, start, stop = span
        with one_library_thread():  # as in worker processes, so that sums in it have the same bits
            x, y = self.make(client)
        first = int(self.offsets[client])
        last = int(self.offsets[client + 1])
        if len(x) != last - first or len(y) != last - first:
            raise DataError(
                f"data.source: client {client} was made with {len(x)} samples; expected {last - first}"
            )
        if x.shape[1:] != self.inner:
            got = f"inputs of shape {list(x.shape[1:])}; expected {list(self.inner)}"
            raise DataError(f"data.source: client {client} was made with {got}")
        for a, b in (
            (first, start),
            (stop, last),
            (start, stop),
        ):  # test rows, too, where training rows are asked for
            if 0 < b - a <= stop - start:
                self._keep((client, a, b), (x[a - first : b - first], y[a - first : b - first]))
        while self._bytes > KEEP and len(self._kept) > 1:
            self._bytes -= _size(self._kept.popitem(last=False)[1])
        return self._kept[span]

    def _keep(self, span: Span, made: tuple[NDArray[Any], IntArray]) -> None:
        if span not in self._kept:
            self._kept[span] = np.array(made[0], np.float32), np.array(made[1], np.int64)
            self._bytes += _size(self._kept[span])
        self._kept.move_to_end(span)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "make": self.make,
            "offsets": self.offsets,
            "inner": self.inner,
            "_kept": OrderedDict(),
            "_bytes": 0,
        }


def _size(made: Made) -> int:
    return sum(column.nbytes for column in made)


def _refuse() -> NoReturn:
    raise DataError(
        "data.source: this needs all samples at once, got a federation that is drawn client by client; "
        "expected lazy = false"
    )
