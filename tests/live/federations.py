"""What tests of real processes share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


def left_behind(folder: Path) -> list[str]:
    """Processes that name this folder in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (
                str(folder).encode() in (process / "environ").read_bytes()
                and int(process.name) != os.getpid()
            ):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


# Of the largest value of a tensor: float32 rounds by 6e-8 of it, in each of some tens of steps.
ROUNDING = 1e-5


def difference(one: Path, other: Path) -> float:
    """The largest difference of any parameter of two runs' models."""
    return max(float(np.abs(mine - theirs).max()) for mine, theirs in _tensors(one, other))


def relative_difference(one: Path, other: Path) -> float:
    """The same, of each tensor as a share of its largest value."""
    return max(relative_gap(mine, theirs) for mine, theirs in _tensors(one, other))


def relative_gap(found: Any, expected: Any) -> float:
    """The largest difference of two arrays as a share of the largest value, which is not zero."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def _tensors(one: Path, other: Path) -> Iterator[tuple[Any, Any]]:
    """The tensors of two runs' models, pair by pair."""
    from safetensors.numpy import load_file

    files = sorted(file.name for file in (other / "models").iterdir())
    assert files == sorted(file.name for file in (one / "models").iterdir())
    for name in files:
        mine = load_file(one / "models" / name)
        theirs = load_file(other / "models" / name)
        yield from ((mine[tensor], theirs[tensor]) for tensor in theirs)
