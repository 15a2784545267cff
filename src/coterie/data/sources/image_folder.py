"""Images in folders that are named as classes or clients; they may be larger than memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.data.images.cache import mapped_images
from coterie.data.images.decoding import images_in, is_hidden
from coterie.data.rows.texts import near_equal
from coterie.data.samples import Samples
from coterie.data.sources.folders import find_folder
from coterie.errors import DataError
from coterie.terminal import first_few, warn

# What a folder may say of the images in it.
LEVELS = ("split", "client", "label")
SPLITS = ("train", "test")


def image_folder(root: Path | None, *, path: str, layout: str = "label") -> Samples:
    """Images of one size, in folders named after labels and clients.

    All formats of Pillow are read by the rules of ``docs/tables.md``; pixels are between 0 and 1.
    They are decoded once, image by image, into a file of the cache folder
    (``$XDG_CACHE_HOME/coterie/mapped`` or ``~/.cache/coterie/mapped``), four bytes per pixel and
    channel, and read from there when they are needed. So memory must hold the images of a cohort,
    but not all of them.

    Args:
        path: the folder. Hidden files, and files that are not images, are left out.
        layout: what the folders are named after, from the outermost: one or more of ``split``
            (``train`` or ``test``), ``client`` and ``label`` with ``/`` between them. With
            ``client/label``, ``ann/cat/1.png`` is a cat of the client ``ann``, which the partition
            ``natural`` with ``column = "client"`` gives to her.
    """
    levels = _levels(layout)
    folder = find_folder(path, root)
    if folder is None:
        raise DataError("not-found", "data.path", found=path, allowed="a folder of images")
    files = images_in(folder, "**/*")
    if not files:
        what = f"no images in {path}"
        raise DataError("not-found", "data.path", what, allowed=".png, .jpg, .tif or others")
    named = _names(files, folder, levels)
    _warn_of_names_and_files(named, folder, files)
    # Training rows come first in every source.
    order = np.arange(len(files))
    train_rows = len(files)
    if "split" in levels:
        order = np.argsort(named["split"] == "test", kind="stable")
        train_rows = int((named["split"] == "train").sum())
    labels, y = np.unique(named["label"][order], return_inverse=True)
    columns = {}
    if "client" in levels:
        columns["client"] = named["client"][order]
    return Samples(
        mapped_images([files[row] for row in order]),
        torch.from_numpy(y.astype(np.int64)),
        len(labels),
        train_rows,
        columns,
        tuple(labels.tolist()),
        on_disk=True,
        scaling="pixels are divided by 255, those of 16 bits by 65,535.",
    )


def _levels(layout: str) -> tuple[str, ...]:
    levels = tuple(layout.split("/"))
    known = set(levels) <= set(LEVELS) and len(set(levels)) == len(levels)
    if not known or "label" not in levels:
        expected = "'label' and optionally 'split' or 'client', such as 'client/label'"
        raise DataError("wrong-type", "data.layout", got=layout, allowed=expected)
    return levels


def _warn_of_names_and_files(
    named: Mapping[str, NDArray[np.str_]], folder: Path, files: Sequence[Path]
) -> None:
    """Warn of names that differ in spelling alone, and of files that are left out."""
    for level, names in named.items():
        for line in near_equal(set(names.tolist()), level):
            warn(line)
    known = set(files)
    others = Counter(
        file.suffix or file.name
        for file in folder.rglob("*")
        if file not in known and file.is_file() and not is_hidden(file, folder)
    )
    if others:
        shown = first_few([f"{count} {suffix}" for suffix, count in others.most_common()])
        warn(f"{folder.name}: files that are not images are skipped: {shown}")


def _names(
    files: Sequence[Path], folder: Path, levels: tuple[str, ...]
) -> dict[str, NDArray[np.str_]]:
    """What the folders of each file are called, by level."""
    rows = []
    for file in files:
        names = file.relative_to(folder).parts[:-1]
        if len(names) != len(levels):
            what = f"{file.relative_to(folder)} is in {len(names)} folders"
            expected = f"{len(levels)}, for {'/'.join(levels)!r}"
            raise DataError("wrong-shape", "data.layout", what, allowed=expected)
        rows.append(names)
    named = {
        level: np.array(found) for level, found in zip(levels, zip(*rows, strict=True), strict=True)
    }
    unknown = set(named.get("split", np.array(SPLITS)).tolist()) - set(SPLITS)
    if unknown:
        got = ", ".join(sorted(unknown))
        what = "unknown split folders"
        raise DataError("does-not-fit", "data.layout", what, found=got, allowed="train and test")
    return named
