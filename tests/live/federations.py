"""What tests of real processes share."""

from __future__ import annotations

import os
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


def difference(one: Path, other: Path) -> float:
    """The largest difference of any parameter of two runs' models."""
    from safetensors.torch import load_file

    files = sorted(file.name for file in (other / "models").iterdir())
    assert files == sorted(file.name for file in (one / "models").iterdir())
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (load_file(one / "models" / name), load_file(other / "models" / name)) for name in files
    ]
    return max(
        float(np.abs(a[name].numpy() - b[name].numpy()).max()) for a, b in pairs for name in b
    )
