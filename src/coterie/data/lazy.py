"""Samples that are made when they are needed, client by client: federations larger than memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, cast, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.arrays import IntArray, finite_float32
from coterie.core.process import one_library_thread
from coterie.errors import Code, DataError

# Bytes of samples that each process keeps at hand.
KEEP = 2**27

# A client, and the rows of the pool that are needed of it: first, last + 1.
Span = tuple[int, int, int]
Made = tuple[NDArray[np.float32], IntArray]


class Maker(Protocol):
    """Makes all samples of one client, the same ones every time.

    Its inputs are ``[n, ...]``, its labels int64 ``[n]``.
    """

    def __call__(self, client: int, /) -> tuple[NDArray[Any], IntArray]: ...


# --- who holds what, in two numbers a client ------------------------------------------------------


@dataclass(frozen=True)
class Ranges(Sequence[IntArray]):
    """Index arrays that are ranges: client ``i`` holds ``start[i] .. start[i] + size[i] - 1``."""

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


def ranges(start: IntArray, size: IntArray) -> tuple[IntArray, ...]:
    """Index arrays that are ranges, in the place of a tuple of them (see `Ranges`)."""
    # Nearly all code only counts or indexes them, so the type of the common case is kept.
    return cast(tuple[IntArray, ...], Ranges(start, size))


# --- inputs and labels ----------------------------------------------------------------------------


class LazyColumn:
    """Inputs or labels of a pool in which client ``i`` owns ``offsets[i] .. offsets[i + 1] - 1``.

    It takes the place of a tensor where a few rows at a time are needed (``column[rows]``), and
    says so where all of them would be. What was needed lately is kept, up to ``KEEP`` bytes.
    Make both columns with `lazy_columns`.

    Example:
        >>> def make(i):
        ...     return np.full((2, 3), i, np.float32), np.array([0, 1])
        >>> x, y = lazy_columns(make, np.array([0, 2, 4]), (3,))
        >>> rows = torch.tensor([1, 2])
        >>> x.shape, x[rows][:, 0].tolist(), y[rows].tolist()
        (torch.Size([4, 3]), [0.0, 1.0], [1, 0])
    """

    def __init__(self, pool: _Pool, column: int, inner: tuple[int, ...]) -> None:
        self._pool = pool
        self._column = column
        # Of all rows, as a tensor has it; code that only asks for sizes then works unchanged.
        self.shape = torch.Size((int(pool.offsets[-1]), *inner))

    def __len__(self) -> int:
        return self.shape[0]

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """Some rows, as of a tensor; ``dim`` is 0, since every other dimension is whole."""
        assert dim == 0, "a lazy column has rows alone to choose from"
        return self[index]

    def __getitem__(self, rows: Tensor) -> Tensor:
        wanted = rows.numpy()
        dtype = np.int64 if self._column else np.float32
        found = np.empty((len(wanted), *self.shape[1:]), dtype)
        for begin, end, span in self._spans(wanted):
            made = self._pool(span)[self._column]
            found[begin:end] = made[wanted[begin:end] - span[1]]
        return torch.from_numpy(found)

    def _spans(self, wanted: IntArray) -> Iterator[tuple[int, int, Span]]:
        """Runs of rows with one owner: where each begins and ends, and what is needed of it."""
        if not len(wanted):
            return
        # Consecutive rows of one client make a span, which is made in one go.
        owner = np.searchsorted(self._pool.offsets, wanted, side="right") - 1
        begins = np.concatenate([[0], np.flatnonzero(np.diff(owner)) + 1])
        ends = [*begins[1:].tolist(), len(wanted)]
        first = np.minimum.reduceat(wanted, begins).tolist()
        last = np.maximum.reduceat(wanted, begins).tolist()
        clients = owner[begins].tolist()
        for at, begin in enumerate(begins.tolist()):
            yield begin, ends[at], (clients[at], first[at], last[at] + 1)

    def numpy(self, *shape: int) -> NoReturn:
        """Refused, as are the methods of a tensor below: it would need all samples at once."""
        what = "all samples are needed at once, but a lazy federation generates them per client"
        raise DataError("does-not-fit", "data.source", what, allowed="lazy = false in [data]")

    reshape = numpy
    contiguous = numpy
    clone = numpy


def is_lazy(column: object) -> bool:
    """Whether a column of samples is made client by client."""
    return isinstance(column, LazyColumn)


def lazy_columns(make: Maker, offsets: IntArray, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Inputs and labels that are made client by client, each in the place of a tensor.

    See `LazyColumn` for what can be done with them.

    Args:
        make: makes a client's samples; it is pickled where worker processes are not forked.
        offsets: int64 ``[N + 1]``, ascending from 0.
        shape: the shape of one input.
    """
    if not callable(make):
        expected = "a function that returns the samples of a client"
        raise DataError("wrong-type", "make", got=make, allowed=expected)
    offsets = np.asarray(offsets)
    is_sound = offsets.dtype.kind in "iu" and offsets.ndim == 1 and len(offsets) > 1
    if not is_sound or offsets[0] != 0 or (np.diff(offsets) < 0).any():
        got = f"{offsets.tolist()!r:.80}"
        expected = "whole numbers, ascending from 0"
        raise DataError("wrong-type", "offsets", found=got, allowed=expected)
    pool = _Pool(make, offsets.astype(np.int64, copy=False), tuple(shape))
    return cast(Tensor, LazyColumn(pool, 0, shape)), cast(Tensor, LazyColumn(pool, 1, ()))


class _Pool:
    """Makes clients, and keeps the rows that were needed last.

    Spans of rows are kept and not whole clients, since those that only score need test rows alone.
    """

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
        x, y = self._make_client(client)
        first = int(self.offsets[client])
        last = int(self.offsets[client + 1])
        # The rows before and after are kept where they are no more than those that are needed: a
        # client that trains is likely to be scored next. What was needed now is kept last, as the
        # latest used.
        for a, b in ((first, start), (stop, last), (start, stop)):
            if 0 < b - a <= stop - start:
                self._keep((client, a, b), x[a - first : b - first], y[a - first : b - first])
        while self._bytes > KEEP and len(self._kept) > 1:
            self._bytes -= _size(self._kept.popitem(last=False)[1])
        return self._kept[span]

    def _make_client(self, client: int) -> tuple[NDArray[Any], IntArray]:
        # One thread as in worker processes, so that sums in it have the same bits.
        with one_library_thread():
            x, y = self.make(client)
        expected = int(self.offsets[client + 1] - self.offsets[client])
        if len(x) != expected or len(y) != expected:
            raise _made_error("wrong-shape", client, f"{len(x)} samples", expected)
        if not np.issubdtype(np.asarray(y).dtype, np.integer):
            kind = f"labels of {np.asarray(y).dtype}"
            raise _made_error("wrong-type", client, kind, "whole numbers")
        if x.shape[1:] != self.inner:
            shape = f"inputs of shape {list(x.shape[1:])}"
            raise _made_error("wrong-shape", client, shape, list(self.inner))
        return x, y

    def _keep(self, span: Span, x: NDArray[Any], y: IntArray) -> None:
        if span not in self._kept:
            # Copies: a view would keep the whole client in memory.
            name = f"data.source: client {span[0]}"
            self._kept[span] = (
                np.array(finite_float32(np.asarray(x), name)),
                np.array(y, np.int64),
            )
            self._bytes += _size(self._kept[span])
        self._kept.move_to_end(span)

    def __getstate__(self) -> dict[str, Any]:
        """For worker processes: what makes clients, without the samples that are kept here."""
        return {**self.__dict__, "_kept": OrderedDict(), "_bytes": 0}


def _size(made: Made) -> int:
    return sum(column.nbytes for column in made)


def _made_error(code: Code, client: int, made: str, expected: object) -> DataError:
    what = f"client {client} was generated with {made}"
    return DataError(code, "data.source", what, allowed=expected)
