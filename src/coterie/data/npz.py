"""Reading NumPy archives that may be damaged, or made by a stranger."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.errors import DataError, first_line

# What NumPy and zipfile raise for damaged archives; neither has a common base of its own.
UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    AttributeError,
    MemoryError,
    TypeError,
    NotImplementedError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an npz file by name.

    Python objects in it are refused: to load them would run code of the file.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: np.asarray(archive[name]) for name in archive.files}
    except UNREADABLE as error:
        line = first_line(error)
        if "pickle" in line or "Object arrays" in line:
            line = "it holds Python objects, which are never loaded, or no arrays"
        raise DataError("cannot-be-read", path, f"cannot be read as npz ({line})") from None
