"""What the workers of the pool share with the main process, and how it reaches those that were not forked."""

from __future__ import annotations

import io
import math
import mmap
import pickle
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from coterie.core.arrays import CACHE_LINE
from coterie.errors import ConfigError, first_line

_LARGE = 2**20  # bytes


# Python writes the arguments of a new process into a pipe that it holds open itself, and so waits for
# ever for a process that ends before it has read them, as that of a script without a guard does. Few
# bytes fit into the pipe. So large tensors go as arguments, which are a few bytes each since they lie
# in shared memory, and the rest follows in a pipe of which the death of a process is seen.


class _Packer(pickle.Pickler):
    """Leaves out large tensors, and those in shared memory."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.tensors: list[Tensor] = []

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, Tensor) or not (obj.nbytes >= _LARGE or obj.is_shared()):
            return None
        for number, known in enumerate(self.tensors):
            if known is obj:
                return number
        self.tensors.append(obj)
        return len(self.tensors) - 1


class _Unpacker(pickle.Unpickler):
    def __init__(self, packed: bytes, tensors: list[Tensor]) -> None:
        super().__init__(io.BytesIO(packed))
        self._tensors = tensors

    def persistent_load(self, pid: Any) -> Tensor:
        return self._tensors[pid]


def pack_arguments(value: Any) -> tuple[bytes, list[Tensor]]:
    """A value as bytes, and the large tensors in it."""
    file = io.BytesIO()
    packer = _Packer(file)
    packer.dump(value)
    return file.getvalue(), packer.tensors


def unpack_arguments(packed: bytes, tensors: list[Tensor]) -> Any:
    return _Unpacker(packed, tensors).load()


@dataclass(frozen=True, slots=True)
class Shared:
    """Memory that all workers and the main process see.

    Args:
        starts: float32 ``[rows, width]``, where clients start; a job may need less width.
        deltas: float32 ``[tasks, width]``, their updates.
        done: uint8 ``[tasks]``, written last: what a killed worker left half done does not
            count.
    """

    starts: Tensor
    deltas: Tensor
    sizes_and_losses: Tensor
    done: Tensor


def share(models: int, tasks: int, width: int, *, fork: bool) -> Shared:
    """New memory, all zero; with ``fork`` workers inherit it, others are sent it."""
    # Whole lines of the cache, so that every model begins one.
    values = CACHE_LINE // torch.float32.itemsize
    row = math.ceil(width / values) * values
    try:
        return Shared(
            starts=_zeros((models, row), torch.float32, fork),
            deltas=_zeros((tasks, row), torch.float32, fork),
            sizes_and_losses=_zeros((tasks, 2), torch.float64, fork),
            done=_zeros((tasks,), torch.uint8, fork),
        )
    except (OSError, RuntimeError) as error:  # of the system, and of torch
        megabytes = 4 * row * (models + tasks) / 1e6
        what = f"the pool cannot share {megabytes:,.1f} MB of models with its processes"
        got = first_line(error)
        expected = (
            "space for them (in /dev/shm if processes are not forked), or the engine 'serial'"
        )
        raise ConfigError("failed", "engine.name", what, found=got, allowed=expected) from error


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, fork: bool) -> Tensor:
    """Zeros that worker processes see: anonymous memory that a fork inherits, or torch's shared
    memory, which needs files in ``/dev/shm`` and may find it small."""
    if not fork:
        return torch.zeros(shape, dtype=dtype).share_memory_()
    count = math.prod(shape)
    memory = mmap.mmap(-1, count * dtype.itemsize)
    return torch.frombuffer(memory, dtype=dtype, count=count).view(shape)
