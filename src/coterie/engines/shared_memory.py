"""Memory that the workers of the pool share with the main process: models and updates."""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.core.arrays import CACHE_LINE
from coterie.errors import ConfigError, first_line


@dataclass(frozen=True, slots=True)
class Shared:
    """Memory that all workers and the main process see.

    Args:
        starts: float32 ``[rows, width]``, the models that clients start from; the memory may be
            wider than a job needs.
        deltas: float32 ``[tasks, width]``, their updates.
        sizes_and_losses: float64 ``[tasks, 2]``.
        done: uint8 ``[tasks]``, 1 where a task is done: written last, so that what a killed worker
            left half done does not count.
    """

    starts: Tensor
    deltas: Tensor
    sizes_and_losses: Tensor
    done: Tensor


def share(models: int, tasks: int, width: int, *, fork: bool) -> Shared:
    """New memory, all zero.

    Args:
        models: that clients start from.
        tasks: clients.
        width: values of a model.
        fork: whether workers inherit it; others are sent it.

    Raises:
        ConfigError: if the system has no room for it.

    Example:
        >>> share(1, 2, 5, fork=True).sizes_and_losses.shape
        torch.Size([2, 2])
    """
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
        raise ConfigError(
            f"engine.name: the pool cannot share {megabytes:,.1f} MB of models with its processes, got "
            f"{first_line(error)}; expected room for them, which is in /dev/shm where processes are not "
            "forked, or the engine 'serial'"
        ) from error


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, fork: bool) -> Tensor:
    """Zeros that worker processes see: anonymous memory that a fork inherits, or torch's shared
    memory, which needs files in ``/dev/shm`` and may find it small."""
    if not fork:
        return torch.zeros(shape, dtype=dtype).share_memory_()
    count = math.prod(shape)
    memory = mmap.mmap(-1, count * dtype.itemsize)
    return torch.frombuffer(memory, dtype=dtype, count=count).view(shape)
