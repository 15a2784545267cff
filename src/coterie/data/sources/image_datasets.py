"""The image datasets, as parquet files below the data folder or from the Hugging Face hub.

They are read from ``<root>/<name>/{train,test}.parquet`` with a column ``image`` of PNG or JPEG
bytes and a column ``label``; ``root`` is ``--data-root`` or the environment variable
``COTERIE_DATA``. With ``hub = true`` they come from the Hugging Face hub (extra ``hf``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from string import digits as ascii_digits
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np
import torch

from coterie.data.samples import Samples
from coterie.data.sources import images
from coterie.data.sources.folders import dataset_folder
from coterie.data.sources.hub import HubAddress, ImageSplit, load_from_hub
from coterie.data.sources.image_cache import cached_images
from coterie.data.sources.parquet import bytes_of, column_of, open_parquet
from coterie.errors import DataError

PixelScale = Literal["unit", "inverted", "standardised"]


@dataclass(frozen=True, slots=True)
class ImageDataset:
    """What is known of an image dataset.

    Args:
        name: of its folder, and of the source.
        labels: names of the classes, in the order of the labels.
        columns: further columns to read, where the files have them.
        test: stems of the files with test rows.
        pooled: pixels are standardised by train and test together, else by train alone.
        per_channel: with one mean and deviation per channel, else one per pixel.
        hub: where the Hugging Face hub has it, if it does.
    """

    name: str
    labels: tuple[str, ...]
    columns: tuple[str, ...] = ()
    test: tuple[str, ...] = ("test",)
    pooled: bool = False
    per_channel: bool = False
    hub: HubAddress | None = None


DIGITS = tuple(ascii_digits)
_CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

# How a dataset is standardised follows the generators of the papers that use it: FedProx's takes
# the mean of train and test together, Ditto's that of the training images.
IMAGE_DATASETS: Mapping[str, ImageDataset] = MappingProxyType(
    {
        dataset.name: dataset
        for dataset in (
            ImageDataset(
                "mnist",
                DIGITS,
                columns=("writer_id", "hsf"),
                pooled=True,
                hub=HubAddress("ylecun/mnist"),
            ),
            ImageDataset(
                "fashion_mnist", _CLOTHES, hub=HubAddress("zalando-datasets/fashion_mnist")
            ),
            ImageDataset(
                "femnist",
                (*ascii_digits, *ascii_uppercase, *ascii_lowercase),
                columns=("writer_id",),
                hub=HubAddress("flwrlabs/femnist", splits=("train",), label="character"),
            ),
            ImageDataset("emnist_letters_aj", tuple("ABCDEFGHIJ")),
            ImageDataset(
                "cifar10", _CIFAR, per_channel=True, hub=HubAddress("uoft-cs/cifar10", image="img")
            ),
            ImageDataset(
                "svhn",
                DIGITS,
                per_channel=True,
                hub=HubAddress("ufldl-stanford/svhn", config=("cropped_digits",)),
            ),
        )
    }
)


# --- the sources ----------------------------------------------------------------------------------


def mnist(root: Path | None, *, pixels: PixelScale = "standardised", hub: bool = False) -> Samples:
    """MNIST: 60,000 + 10,000 hand-written digits of 28x28 pixels in 10 classes.

    Writers (``writer_id``, ``hsf``) are read where the files have them.

    Args:
        root: folder that holds ``mnist/{train,test}.parquet``.
        pixels: ``unit``: in [0, 1]; ``inverted``: 1 minus that; ``standardised``: per pixel over
            all 70,000, as FedProx's generator does it.
        hub: from the Hugging Face hub instead of ``root``.

    Raises:
        DataError: if the files are missing or damaged.
    """
    return _load(IMAGE_DATASETS["mnist"], root, pixels, hub)


def fashion_mnist(
    root: Path | None, *, pixels: PixelScale = "standardised", hub: bool = False
) -> Samples:
    """Fashion-MNIST: 60,000 + 10,000 pictures of clothing of 28x28 pixels in 10 classes.

    Args:
        root: folder that holds ``fashion_mnist/{train,test}.parquet``.
        pixels: ``unit``: in [0, 1]; ``inverted``: 1 minus that; ``standardised``: per pixel by the
            training images, as Ditto's generator does it.
        hub: from the Hugging Face hub instead of ``root``.

    Raises:
        DataError: if the files are missing or damaged.
    """
    return _load(IMAGE_DATASETS["fashion_mnist"], root, pixels, hub)


def femnist(
    root: Path | None,
    *,
    pixels: PixelScale = "unit",
    test_only_writers: bool = False,
    hub: bool = False,
) -> Samples:
    """FEMNIST of LEAF: hand-written digits and letters of 28x28 pixels in 62 classes, by writer.

    The column ``writer_id`` names the writer. Images are dark on light, as NIST's are; MNIST and
    EMNIST are light on dark.

    Args:
        root: folder that holds ``femnist/{train,test}.parquet``.
        pixels: ``unit``: in [0, 1]; ``inverted``: 1 minus that; ``standardised``: per pixel by the
            training images.
        test_only_writers: add the writers of ``femnist/test_only_writers.parquet`` to the test
            rows: unseen clients.
        hub: from the Hugging Face hub instead of ``root`` (all writers, no split of its own).

    Raises:
        DataError: if the files are missing or damaged.
    """
    if hub and test_only_writers:
        raise DataError(
            "data.test_only_writers: the hub has no such file, got true; "
            "expected false with hub = true"
        )
    dataset = IMAGE_DATASETS["femnist"]
    if test_only_writers:
        dataset = replace(dataset, test=("test", "test_only_writers"))
    return _load(dataset, root, pixels, hub)


def emnist_letters_aj(root: Path | None, *, pixels: PixelScale = "unit") -> Samples:
    """EMNIST Letters A to J: 47,998 + 8,000 hand-written letters of 28x28 pixels in 10 classes.

    It stands for the NIST letters of FedProx's FEMNIST-10.

    Args:
        root: folder that holds ``emnist_letters_aj/{train,test}.parquet``.
        pixels: ``unit``: in [0, 1], light on dark; ``inverted``: 1 minus that, dark on light, as
            the images are that the FEMNIST-10 recipe takes; ``standardised``: per pixel by the
            training images.

    Raises:
        DataError: if the files are missing or damaged.
    """
    return _load(IMAGE_DATASETS["emnist_letters_aj"], root, pixels, hub=False)


def cifar10(
    root: Path | None, *, pixels: PixelScale = "standardised", hub: bool = False
) -> Samples:
    """CIFAR-10: 50,000 + 10,000 colour pictures of 32x32 pixels in 10 classes.

    Args:
        root: folder that holds ``cifar10/{train,test}.parquet``.
        pixels: ``unit``: in [0, 1]; ``inverted``: 1 minus that; ``standardised``: per colour
            channel by the training images.
        hub: from the Hugging Face hub instead of ``root``.

    Raises:
        DataError: if the files are missing or damaged.
    """
    return _load(IMAGE_DATASETS["cifar10"], root, pixels, hub)


def svhn(root: Path | None, *, pixels: PixelScale = "standardised", hub: bool = False) -> Samples:
    """SVHN, cropped digits: 73,257 + 26,032 colour pictures of house numbers, 32x32, 10 classes.

    Args:
        root: folder that holds ``svhn/{train,test}.parquet``, labels 0 to 9 (the 10 of the original
            files is a 0).
        pixels: ``unit``: in [0, 1]; ``inverted``: 1 minus that; ``standardised``: per colour
            channel by the training images.
        hub: from the Hugging Face hub instead of ``root``.

    Raises:
        DataError: if the files are missing or damaged.
    """
    return _load(IMAGE_DATASETS["svhn"], root, pixels, hub)


# --- reading --------------------------------------------------------------------------------------


def _load(dataset: ImageDataset, root: Path | None, scale: PixelScale, hub: bool) -> Samples:
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
    return Samples(
        torch.from_numpy(_scaled(dataset, [split.pixels for split in splits], scale)),
        torch.from_numpy(labels),
        len(dataset.labels),
        len(splits[0].labels),
        columns,
        dataset.labels,
    )


def _scaled(dataset: ImageDataset, pixels: list[images.Pixels], scale: PixelScale) -> images.Values:
    if scale == "standardised":
        over = 1
        if dataset.pooled:
            over = len(pixels)
        return images.standardise(*pixels, over=over, per_channel=dataset.per_channel)
    x = images.unit(*pixels)
    if scale == "inverted":
        np.subtract(1, x, out=x)
    return x


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
    def make() -> images.Pixels:
        table = open_parquet(path, wanted=lambda name: name == "image")
        return images.decode(bytes_of(table, "image", path), str(path))

    pixels = cached_images(path, "image", len(labels), make)
    return ImageSplit(pixels, labels.astype(np.int64), extra)
