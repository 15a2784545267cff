"""Image datasets: how one is described, and how it is read from its files or from the Hugging Face hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.core.arrays import IntArray
from coterie.data.images.cache import cached_images
from coterie.data.images.decoding import decode
from coterie.data.images.pixels import Pixels, Values, alike, standardise, unit
from coterie.data.samples import Samples
from coterie.data.sources.folders import dataset_folder
from coterie.data.tabular.arrow import bytes_of, column_of, open_parquet
from coterie.errors import DataError, first_line, install_command

PixelScale = Literal["unit", "inverted", "standardised"]


@dataclass(frozen=True, slots=True)
class HubAddress:
    """Where the hub has an image dataset, and what its columns are called there."""

    id: str
    config: tuple[str, ...] = ()
    splits: tuple[str, ...] = ("train", "test")
    image: str = "image"
    label: str = "label"


@dataclass(frozen=True, slots=True)
class ImageSplit:
    """The pixels ``[S, channels, height, width]`` and labels of a split, and further columns."""

    pixels: Pixels
    labels: IntArray
    columns: dict[str, NDArray[Any]]


def load_from_hub(address: HubAddress | None, columns: tuple[str, ...]) -> list[ImageSplit]:
    """The splits of a dataset on the hub, the training rows first."""
    assert address is not None, "only datasets with an address have the option `hub`"
    # Imported only here: the package is optional, and takes seconds.
    try:
        import datasets
    except ImportError:
        raise DataError(
            f"data.hub: the package 'datasets' is not installed; expected {install_command('hf')}"
        ) from None
    try:
        return [_load_split(datasets, address, columns, split) for split in address.splits]
    except DataError:
        raise
    except Exception as error:  # noqa: BLE001  the hub's client raises dozens of unrelated kinds
        line = first_line(error)
        raise DataError(f"data.hub: {address.id} cannot be loaded ({line})") from None


def _load_split(
    datasets: Any, address: HubAddress, columns: tuple[str, ...], split: str
) -> ImageSplit:
    rows = datasets.load_dataset(address.id, *address.config, split=split)
    # The library would decode each image by itself, and slower than `decode` does.
    rows = rows.cast_column(address.image, datasets.Image(decode=False))
    blobs = [image["bytes"] for image in rows[address.image]]
    labels = np.asarray(rows[address.label], dtype=np.int64)
    extra = {name: np.asarray(rows[name]) for name in columns if name in rows.column_names}
    return ImageSplit(decode(blobs, f"{address.id} {split}"), labels, extra)


@dataclass(frozen=True, slots=True)
class ImageDataset:
    """What is known of an image dataset.

    Args:
        columns: further columns to read, where the files have them.
        pooled: pixels are standardised by train and test together, else by train alone.
        per_channel: with one mean and deviation per channel, else one per pixel.
    """

    name: str
    labels: tuple[str, ...]
    columns: tuple[str, ...] = ()
    test: tuple[str, ...] = ("test",)
    pooled: bool = False
    per_channel: bool = False
    hub: HubAddress | None = None


def load_images(dataset: ImageDataset, root: Path | None, scale: PixelScale, hub: bool) -> Samples:
    """The samples of an image dataset, from the data folder or from the hub."""
    if scale not in get_args(PixelScale):
        raise DataError(
            f"data.pixels: unknown scale, got {scale!r}; expected {', '.join(get_args(PixelScale))}"
        )
    if hub:
        splits = load_from_hub(dataset.hub, dataset.columns)
    else:
        splits = _load_from_root(dataset, root)
    labels = np.concatenate([split.labels for split in splits])
    last = len(dataset.labels) - 1
    if labels.min() < 0 or labels.max() > last:
        raise DataError(
            f"{dataset.name}: labels, got {labels.min()} to {labels.max()}; expected 0 to {last}"
        )
    # Files may lack the further columns; a column is kept if all splits have it.
    names = [name for name in dataset.columns if all(name in split.columns for split in splits)]
    columns = {name: np.concatenate([split.columns[name] for split in splits]) for name in names}
    pixels = alike([split.pixels for split in splits], dataset.name)
    return Samples(
        torch.from_numpy(_scaled(dataset, pixels, scale)),
        torch.from_numpy(labels),
        len(dataset.labels),
        len(splits[0].labels),
        columns,
        dataset.labels,
        scaling=_describe_scale(dataset, scale),
    )


def _scaled(dataset: ImageDataset, pixels: list[Pixels], scale: PixelScale) -> Values:
    if scale == "standardised":
        over = 1
        if dataset.pooled:
            over = len(pixels)
        return standardise(*pixels, over=over, per_channel=dataset.per_channel)
    x = unit(*pixels)
    if scale == "inverted":
        np.subtract(1, x, out=x)
    return x


def _describe_scale(dataset: ImageDataset, scale: PixelScale) -> str:
    if scale == "unit":
        return "pixels are between 0 and 1."
    if scale == "inverted":
        return "pixels are between 0 and 1, and then subtracted from 1."
    part = "pixel"
    if dataset.per_channel:
        part = "colour channel"
    images = "training images"
    if dataset.pooled:
        images = "training and test images"
    return f"each {part} has mean 0 and standard deviation 1 over all {images}."


def _load_from_root(dataset: ImageDataset, root: Path | None) -> list[ImageSplit]:
    stems = ("train", *dataset.test)
    advice = _advice(dataset, stems)
    folder = dataset_folder(root, dataset.name, advice)
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; {advice}")
    paths = [folder / f"{stem}.parquet" for stem in stems]
    # All are looked for before the first is decoded, which takes seconds.
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path}: no such file; {advice}")
    return [_read_split(path, dataset.columns) for path in paths]


def _advice(dataset: ImageDataset, stems: tuple[str, ...]) -> str:
    files = f"{dataset.name}/{{{','.join(stems)}}}.parquet"
    advice = f"expected --data-root (or COTERIE_DATA) to name a folder with {files}"
    if dataset.hub is not None:
        advice += " or hub = true to use the Hugging Face hub"
    return advice


def _read_split(path: Path, columns: tuple[str, ...]) -> ImageSplit:
    table = open_parquet(path, wanted=lambda name: name == "label" or name in columns)
    labels = column_of(table, "label", path)
    if labels.dtype.kind not in "iu":
        raise DataError(f"{path}: column label, got {labels.dtype}; expected whole numbers")
    extra = {name: column_of(table, name, path) for name in columns if name in table.column_names}

    # The image column is the bulk of the file, and is read only where the cache has no copy.
    def make() -> Pixels:
        table = open_parquet(path, wanted=lambda name: name == "image")
        return decode(bytes_of(table, "image", path), str(path))

    pixels = cached_images(path, "image", len(labels), make)
    return ImageSplit(pixels, labels.astype(np.int64), extra)
