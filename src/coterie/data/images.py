"""Encoded images to pixels, fast, and pixels to inputs, in little memory.

Decoding 70,000 PNG files takes seconds, so decoded ``uint8`` arrays are kept in the user's cache
folder (``$XDG_CACHE_HOME/coterie/images`` or ``~/.cache/coterie/images``). The name of a cached
file holds the checksum of its content; what does not match is decoded anew, and a folder that
cannot be written is done without.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coterie.errors import DataError

Pixels = NDArray[np.uint8]
Values = NDArray[np.float32]
FOOTER = 65536  # of a parquet file: holds the row counts and statistics of its columns
BLOCK = 256  # images at a time; a float32 sum of so many squares is exact: 256 * 255^2 < 2^24
DAMAGED = (OSError, ValueError, EOFError, MemoryError, OverflowError, TypeError, SyntaxError)


def decode(blobs: Sequence[bytes], what: str = "image") -> Pixels:
    """Decode PNG or JPEG files of one size to uint8 ``[S, channels, height, width]``; 1 channel if
    the first is grey.

    Threads do not help: at 28x28 pixels nearly all of the 50 us an image is Pillow's own Python.

    Args:
        blobs: the files' bytes.
        what: how an error names the column.

    Raises:
        DataError: if a file cannot be decoded or has another size than the first; it names the row.
    """
    from PIL import Image

    mode = _mode(blobs[0], what)

    def one(row: int) -> Pixels:
        try:
            with Image.open(BytesIO(blobs[row]), formats=("PNG", "JPEG")) as image:
                grey = np.asarray(image if image.mode == mode else image.convert(mode))
        except (OSError, ValueError, SyntaxError, TypeError, Image.DecompressionBombError) as error:
            raise DataError(
                f"{what}: row {row} is not a PNG or JPEG image ({_line(error)})"
            ) from None
        if grey.ndim == 2:
            return grey[None]
        return grey.transpose(2, 0, 1)

    out = np.empty((len(blobs), *one(0).shape), np.uint8)
    for row in range(len(blobs)):
        pixels = one(row)
        if pixels.shape != out.shape[1:]:
            raise DataError(
                f"{what}: row {row} has shape {pixels.shape}; expected {out.shape[1:]} as in row 0"
            )
        out[row] = pixels
    return out


def _mode(blob: bytes, what: str) -> str:
    from PIL import Image

    try:
        with Image.open(BytesIO(blob), formats=("PNG", "JPEG")) as image:
            if image.mode in ("1", "L", "LA"):
                return "L"
            return "RGB"
    except (OSError, ValueError, SyntaxError, TypeError, Image.DecompressionBombError) as error:
        raise DataError(f"{what}: row 0 is not a PNG or JPEG image ({_line(error)})") from None


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def unit(*pieces: Pixels) -> Values:
    """Pixels divided by 255, in ``[0, 1]``; several arrays one after another.

    Example:
        >>> unit(np.array([[0]], dtype=np.uint8), np.array([[255]], dtype=np.uint8)).tolist()
        [[0.0], [1.0]]
    """
    out = np.empty((sum(map(len, pieces)), *pieces[0].shape[1:]), np.float32)
    for block, pixels in _blocks(out, pieces):
        block[...] = pixels
        block /= 255
    return out


def standardise(*pieces: Pixels, over: int | None = None, per_channel: bool = False) -> Values:
    """``(x - mean) / (std + 0.001)`` on the 0..255 scale, as FedProx's and Ditto's generators do
    it.

    Args:
        pieces: uint8 ``[S, channels, height, width]``; several arrays one after another.
        over: mean and standard deviation are those of the first ``over`` arrays; ``None``: of all.
        per_channel: one mean and deviation per channel instead of per pixel.

    Example:
        >>> x = standardise(np.array([[[[0]]], [[[2]]]], dtype=np.uint8))
        >>> x.ravel().round().tolist()
        [-1.0, 1.0]
    """
    mean, deviation = _moments(pieces[:over], per_channel)
    scale = 1 / (deviation + np.float32(0.001))
    out = np.empty((sum(map(len, pieces)), *pieces[0].shape[1:]), np.float32)
    for block, pixels in _blocks(out, pieces):
        block[...] = pixels
        block -= mean
        block *= scale
    return out


def _blocks(out: Values, pieces: Sequence[Pixels]) -> Iterator[tuple[Values, Pixels]]:
    start = 0
    for piece in pieces:
        for at in range(0, len(piece), BLOCK):
            pixels = piece[at : at + BLOCK]
            yield out[start : start + len(pixels)], pixels
            start += len(pixels)


def _moments(pieces: Sequence[Pixels], per_channel: bool) -> tuple[Values, Values]:
    total, squares = np.zeros((2, *pieces[0].shape[1:]))
    for piece in pieces:
        for at in range(0, len(piece), BLOCK):
            block = piece[at : at + BLOCK].astype(np.float32)
            total += block.sum(0)
            block *= block
            squares += block.sum(0)
    count = sum(map(len, pieces))
    if per_channel:
        count *= total[0].size
        total, squares = (t.sum((1, 2), keepdims=True) for t in (total, squares))
    mean = total / count
    return mean.astype(np.float32), np.sqrt(np.maximum(squares / count - mean**2, 0)).astype(
        np.float32
    )


def cached(path: Path, column: str, rows: int, make: Callable[[], Pixels]) -> Pixels:
    """The decoded images of a parquet column: from the cache if a sound copy is there, else made
    and put there.

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
    with suppress(OSError):
        _write(name, pixels)
    return pixels


def cache_folder() -> Path:
    """Where decoded images are kept.

    Raises:
        OSError: if the user has no home folder.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "coterie" / "images"
    except RuntimeError as error:
        raise OSError(str(error)) from None


def _name(path: Path, column: str) -> str:
    status = path.stat()
    with path.open("rb") as file:
        file.seek(max(0, status.st_size - FOOTER))
        footer = file.read()
    text = f"{path.parent.name}/{path.name}\0{column}\0{status.st_size}\0{status.st_mtime_ns}\0"
    return blake2b(text.encode() + footer, digest_size=16).hexdigest()


def _read(name: str, rows: int) -> Pixels | None:
    with suppress(OSError):
        for file in sorted(cache_folder().glob(f"{name}-*.npy")):
            with suppress(*DAMAGED):
                pixels = np.load(file, allow_pickle=False)
                if (
                    pixels.dtype == np.uint8
                    and pixels.ndim == 4
                    and len(pixels) == rows
                    and _suffix(pixels) in file.name
                ):
                    return pixels
    return None


def _suffix(pixels: Pixels) -> str:
    return f"-{zlib.crc32(np.ascontiguousarray(pixels).reshape(-1).data):08x}.npy"


def _write(name: str, pixels: Pixels) -> None:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, pixels, allow_pickle=False)
        os.replace(temporary, folder / f"{name}{_suffix(pixels)}")
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
