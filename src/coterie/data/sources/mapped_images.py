"""Decoded images in a file that is mapped into memory: the system reads a page when it is used, and
drops it when memory is short.

Unlike `image_cache`, nothing is checked by the content of the whole file, which would read all of it
at every start. The name says of which files it was made, with their sizes and times, and a file of
another length is made anew.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from coterie.data.sources.image_cache import cache_folder
from coterie.data.sources.images import decode, mode_of, unit
from coterie.errors import DataError


def mapped_images(files: Sequence[Path]) -> Tensor:
    """Images as float32 ``[S, channels, height, width]`` in 0 to 1, in a mapped file.

    Args:
        files: PNG or JPEG files of one size.

    Raises:
        DataError: for a file that is no such image, and where there is no room for the decoded ones.
    """
    first = files[0].read_bytes()
    mode = mode_of(first, str(files[0]))
    shape = (len(files), *decode([first], str(files[0]), mode).shape[1:])
    size = 4 * int(np.prod(shape))
    try:
        place = cache_folder().parent / "mapped" / f"{_name(files)}.f32"
        if not (place.exists() and place.stat().st_size == size):
            _write(place, files, shape, mode)
    except OSError as error:
        raise DataError(
            f"data.path: no room for {size / 1e9:.2f} GB of decoded images in the cache folder "
            f"({error.strerror}); expected XDG_CACHE_HOME to name a folder with room"
        ) from None
    # Private: what code wrote into the tensor by mistake would not reach the file.
    count = int(np.prod(shape))
    return torch.from_file(str(place), shared=False, size=count, dtype=torch.float32).reshape(shape)


def _name(files: Sequence[Path]) -> str:
    digest = blake2b(digest_size=16)
    for file in files:
        status = file.stat()
        digest.update(f"{file.absolute()}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _write(place: Path, files: Sequence[Path], shape: tuple[int, ...], mode: str) -> None:
    """Decode the images one by one into a file beside the place, and give it its name at the end."""
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=place.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as out:
            for file in files:
                pixels = unit(decode([file.read_bytes()], str(file), mode))
                if pixels.shape[1:] != shape[1:]:
                    raise DataError(
                        f"{file}: got an image of shape {pixels.shape[1:]}; expected {shape[1:]}, "
                        f"as {files[0]}"
                    )
                out.write(pixels.tobytes())
        os.replace(temporary, place)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
