"""Decoded images, kept in the user's cache folder (``$XDG_CACHE_HOME/coterie`` or ``~/.cache/coterie``).

Decoding 70,000 PNG files takes seconds, so ``uint8`` arrays of a parquet column are kept in
``images``. The name of a cached file holds the checksum of its content. What does not match is
decoded again, and a folder that cannot be written is done without.

Images of a folder are decoded into a file in ``mapped``, which is mapped into memory: the system
reads a page when it is used, and drops it when memory is short. Nothing there is checked by the
content of the whole file, which would read all of it at every start. The name says of which files
it was made, with their sizes and times, and a file of another length is made anew.
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

from coterie.data.images.pixels import Pixels, decode, mode_of, unit
from coterie.errors import DataError

# Bytes at the end of a parquet file: they hold the row counts and statistics of its columns.
FOOTER = 65536

# What NumPy raises for a damaged file.
DAMAGED = (OSError, ValueError, EOFError, MemoryError, OverflowError, TypeError, SyntaxError)


# --- arrays of a parquet column -------------------------------------------------------------------


def cached_images(path: Path, column: str, rows: int, make: Callable[[], Pixels]) -> Pixels:
    """The decoded images of a parquet column: from the cache if a sound copy is there, else made
    and kept there.
    """
    name = _column_name(path, column)
    found = _read(name, rows)
    if found is not None:
        return found
    pixels = make()
    # A full disk or a read-only home makes the next run slow, not this one fail.
    with (
        suppress(OSError),
        _named_when_whole(cache_folder() / f"{name}{_suffix(pixels)}") as file,
    ):
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


# --- a mapped file of many images -----------------------------------------------------------------


def mapped_images(files: Sequence[Path]) -> Tensor:
    """Images of PNG or JPEG files of one size, float32 ``[S, channels, height, width]`` in 0 to 1,
    in a mapped file.
    """
    first = files[0].read_bytes()
    mode = mode_of(first, str(files[0]))
    shape = (len(files), *decode([first], str(files[0]), mode).shape[1:])
    size = 4 * int(np.prod(shape))
    try:
        place = cache_folder().parent / "mapped" / f"{_files_name(files)}.f32"
        if not (place.exists() and place.stat().st_size == size):
            _write_mapped(place, files, shape, mode)
    except OSError as error:
        raise DataError(
            f"data.path: no room for {size / 1e9:.2f} GB of decoded images in the cache folder "
            f"({error.strerror}); expected XDG_CACHE_HOME to name a folder with room"
        ) from None
    # Private: what code wrote into the tensor by mistake would not reach the file.
    count = int(np.prod(shape))
    return torch.from_file(str(place), shared=False, size=count, dtype=torch.float32).reshape(shape)


def _files_name(files: Sequence[Path]) -> str:
    digest = blake2b(digest_size=16)
    for file in files:
        status = file.stat()
        digest.update(f"{file.absolute()}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _write_mapped(place: Path, files: Sequence[Path], shape: tuple[int, ...], mode: str) -> None:
    with _named_when_whole(place) as out:
        # One by one: all together may be larger than memory.
        for file in files:
            pixels = unit(decode([file.read_bytes()], str(file), mode))
            if pixels.shape[1:] != shape[1:]:
                raise DataError(
                    f"{file}: got an image of shape {pixels.shape[1:]}; expected {shape[1:]}, "
                    f"as {files[0]}"
                )
            out.write(pixels.tobytes())


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
