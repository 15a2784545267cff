"""Decoded images, kept in the user's cache folder.

Decoding 70,000 PNG files takes seconds, so decoded ``uint8`` arrays are kept
(``$XDG_CACHE_HOME/coterie/images`` or ``~/.cache/coterie/images``). The name of a cached file holds
the checksum of its content. What does not match is decoded again, and a folder that cannot be
written is done without.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import numpy as np

from coterie.data.sources.images import Pixels

# Bytes at the end of a parquet file: they hold the row counts and statistics of its columns.
FOOTER = 65536

# What NumPy raises for a damaged file.
DAMAGED = (OSError, ValueError, EOFError, MemoryError, OverflowError, TypeError, SyntaxError)


def cached_images(path: Path, column: str, rows: int, make: Callable[[], Pixels]) -> Pixels:
    """The decoded images of a parquet column: from the cache if a sound copy is there, else made.

    What is made is put into the cache.

    Args:
        path: the parquet file.
        column: its image column.
        rows: how many images it holds.
        make: decodes them.
    """
    name = _name(path, column)
    found = _read(name, rows)
    if found is not None:
        return found
    pixels = make()
    # A full disk or a read-only home makes the next run slow, not this one fail.
    with suppress(OSError):
        _write(name, pixels)
    return pixels


def cache_folder() -> Path:
    """Where decoded images are kept.

    Raises:
        OSError: if the user has no home folder.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "coterie" / "images"
    try:
        return Path.home() / ".cache" / "coterie" / "images"
    except RuntimeError as error:
        raise OSError(str(error)) from None


def _name(path: Path, column: str) -> str:
    """A name for the images of this content of this file.

    The whole file is not read, that would take as long as the cache saves: its place, size and time
    are taken, and its footer, which has the statistics of what it holds.
    """
    status = path.stat()
    with path.open("rb") as file:
        file.seek(max(0, status.st_size - FOOTER))
        footer = file.read()
    text = f"{path.parent.name}/{path.name}\0{column}\0{status.st_size}\0{status.st_mtime_ns}\0"
    return blake2b(text.encode() + footer, digest_size=16).hexdigest()


def _read(name: str, rows: int) -> Pixels | None:
    """The sound copy of this name, if there is one."""
    with suppress(OSError):
        for file in sorted(cache_folder().glob(f"{name}-*.npy")):
            with suppress(*DAMAGED):
                pixels = np.load(file, allow_pickle=False)
                if _is_sound(pixels, rows) and _suffix(pixels) in file.name:
                    return pixels
    return None


def _is_sound(pixels: Pixels, rows: int) -> bool:
    return pixels.dtype == np.uint8 and pixels.ndim == 4 and len(pixels) == rows


def _suffix(pixels: Pixels) -> str:
    """The end of a file's name, with the checksum of the pixels."""
    return f"-{zlib.crc32(np.ascontiguousarray(pixels).reshape(-1).data):08x}.npy"


def _write(name: str, pixels: Pixels) -> None:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    # Written beside and renamed, so that another process never reads half a file.
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, pixels, allow_pickle=False)
        os.replace(temporary, folder / f"{name}{_suffix(pixels)}")
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
