"""Decoded images, kept in the user's cache folder (``$XDG_CACHE_HOME/coterie`` or ``~/.cache/coterie``).

Decoding 70,000 PNG files takes seconds, so the arrays of a parquet column are kept in ``images``.
The name of a cached file holds the checksum of its content. What does not match is decoded again, and a
folder that cannot be written is done without.

Images of a folder are decoded into a file in ``mapped``, which is mapped into memory: the system
reads a page when it is used, and drops it when memory is short. Nothing there is checked by the
content of the whole file, which would read all of it at every start. The name says of which files
it was made, with their sizes and times, and a file that is cut short is made anew.

All names hold the number of the rules of decoding, so no rules but today's are read.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from coterie.data.images.decoding import RULES, decode_each
from coterie.data.images.pixels import Pixels, Values, unit
from coterie.errors import DataError

# Bytes at the end of a parquet file: they hold the row counts and statistics of its columns.
FOOTER = 65536

# What NumPy raises for a damaged file.
DAMAGED = (OSError, ValueError, EOFError, MemoryError, OverflowError, TypeError, SyntaxError)


# --- arrays of a parquet column -------------------------------------------------------------------


def cached_images(path: Path, column: str, rows: int, make: Callable[[], Pixels]) -> Pixels:
    """The decoded images of a parquet column: from the cache if a sound copy is there, else made
    and kept there."""
    name = _column_name(path, column)
    found = _read(name, rows)
    if found is not None:
        return found
    pixels = make()
    # A full disk or a read-only home makes the next run slow, not this one fail.
    with suppress(OSError), _named_when_whole(cache_folder() / f"{name}{_suffix(pixels)}") as file:
        np.save(file, pixels, allow_pickle=False)
    return pixels


def _column_name(path: Path, column: str) -> str:
    """A name for the images of this content of this file.

    The whole file is not read, that would take as long as the cache saves: its place, size and time
    are taken, and its footer, which has the statistics of what it holds.
    """
    status = path.stat()
    with path.open("rb") as file:
        file.seek(max(0, status.st_size - FOOTER))
        footer = file.read()
    parts = (RULES, f"{path.parent.name}/{path.name}", column, status.st_size, status.st_mtime_ns)
    text = "\0".join(map(str, parts))
    return blake2b(text.encode() + footer, digest_size=16).hexdigest()


def _read(name: str, rows: int) -> Pixels | None:
    """The sound copy of this name, if there is one."""
    with suppress(OSError):
        for file in sorted(cache_folder().glob(f"{name}-*.npy")):
            with suppress(*DAMAGED):
                pixels = np.load(file, allow_pickle=False)
                is_sound = pixels.dtype in (np.uint8, np.float32) and pixels.ndim == 4
                if is_sound and len(pixels) == rows and _suffix(pixels) in file.name:
                    return pixels
    return None


def _suffix(pixels: Pixels) -> str:
    """The end of a file's name, with the checksum of the pixels."""
    return f"-{zlib.crc32(np.ascontiguousarray(pixels).reshape(-1).data):08x}.npy"


# --- a mapped file of many images -----------------------------------------------------------------


def mapped_images(files: Sequence[Path]) -> Tensor:
    """Images of one size, float32 ``[S, channels, height, width]`` in 0 to 1, in a mapped file."""
    try:
        place = cache_folder().parent / "mapped" / f"{_files_name(files)}.npy"
        found = _mapped(place, len(files))
        if found is None:
            _write_mapped(place, files)
            found = np.load(place, mmap_mode="c")
    except OSError as error:
        what = f"no space for {len(files)} decoded images in the cache folder ({error.strerror})"
        expected = "XDG_CACHE_HOME set to a folder with enough space"
        raise DataError("cannot-be-written", "data.path", what, allowed=expected) from None
    return torch.from_numpy(found)


def _files_name(files: Sequence[Path]) -> str:
    digest = blake2b(f"{RULES}\0".encode(), digest_size=16)
    for file in files:
        status = file.stat()
        digest.update(f"{file.absolute()}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _mapped(place: Path, rows: int) -> Values | None:
    """The images of a whole file."""
    with suppress(*DAMAGED):
        # Copied where it is written to: what code writes by mistake does not reach the file.
        pixels: Values = np.load(place, mmap_mode="c")
        if pixels.dtype == np.float32 and pixels.ndim == 4 and len(pixels) == rows:
            return pixels
    return None


def _write_mapped(place: Path, files: Sequence[Path]) -> None:
    with _named_when_whole(place) as out:
        # One by one: all together may be larger than memory.
        for row, pixels in enumerate(decode_each(files)):
            if row == 0:
                shape = (len(files), *pixels.shape)
                form = {"descr": "<f4", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(out, form)
            out.write(unit(pixels[None]).tobytes())


# --- the folder -----------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Where decoded images are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "coterie" / "images"
    try:
        return Path.home() / ".cache" / "coterie" / "images"
    except RuntimeError as error:
        raise OSError(str(error)) from None


@contextmanager
def _named_when_whole(place: Path) -> Iterator[BinaryIO]:
    """A file to write, so that another process never reads half of it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=place.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.replace(temporary, place)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
