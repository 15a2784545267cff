"""The image datasets: digits that come with scikit-learn, and those of files or of a hub.

They are read from ``<root>/<name>/{train,test}.parquet`` with a column ``image`` of image
files and a column ``label``; ``root`` is ``--data-root`` or the environment variable
``COTERIE_DATA``. With ``hub = true`` they come from the Hugging Face hub (extra ``hf``).

``pixels`` says how they become inputs: ``unit``: in [0, 1]; ``inverted``: 1 minus that;
``standardised``: with mean 0 and standard deviation 1 over the training images, for each pixel, or
of colour pictures for each channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from string import digits as ascii_digits
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.core.arrays import IntArray
from coterie.data.images.cache import cached_images
from coterie.data.images.decoding import decode
from coterie.data.images.pixels import Pixels, Values, alike, standardise, unit
from coterie.data.rows.reading import read_rows
from coterie.data.rows.table import Rows
from coterie.data.samples import Samples
from coterie.data.sources.folders import dataset_folder, hub_splits, hub_table
from coterie.data.tabular.arrow import column_of, image_bytes
from coterie.errors import DataError

PixelScale = Literal["unit", "inverted", "standardised"]


@dataclass(frozen=True, slots=True)
class HubAddress:
    """Where the hub has an image dataset, and what its columns are called there."""

    id: str
    config: str | None = None
    splits: tuple[str, ...] = ("train", "test")
    image: str = "image"
    label: str = "label"


@dataclass(frozen=True, slots=True)
class ImageSplit:
    """The pixels ``[S, channels, height, width]`` and labels of a split, and further columns."""

    pixels: Pixels
    labels: IntArray
    columns: dict[str, NDArray[Any]]


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
                hub=HubAddress("ufldl-stanford/svhn", config="cropped_digits"),
            ),
        )
    }
)


def digits(root: Path | None = None) -> Samples:
    """1,797 hand-written digits of 8x8 pixels in 10 classes, which come with scikit-learn.

    Pixels are divided by 16; the images have no test split.
    """
    # One row a digit: 64 pixels from 0 to 16, then the label.
    # Read without scikit-learn's own loader: that one imports pandas and `scipy.stats`, which takes
    # longer than a short run, in every process that needs the digits.
    package = find_spec("sklearn")
    assert package is not None, "scikit-learn is a dependency"
    assert package.origin is not None, "its package has a file"
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    images = table[:, :64].reshape(-1, 1, 8, 8)
    x = torch.from_numpy((images / 16).astype(np.float32))
    y = torch.from_numpy(table[:, 64].astype(np.int64))
    scaling = "pixels are divided by 16."
    return Samples(x, y, 10, len(x), label_names=DIGITS, scaling=scaling)


# --- the sources ----------------------------------------------------------------------------------


def mnist(root: Path | None, *, pixels: PixelScale = "standardised", hub: bool = False) -> Samples:
    """MNIST: 60,000 + 10,000 hand-written digits of 28x28 pixels in 10 classes.

    Writers (``writer_id``, ``hsf``) are read if the files contain them. Pixels are standardised
    over all 70,000 images, as in FedProx's generator.
    """
    return load_images(IMAGE_DATASETS["mnist"], root, pixels, hub)


def fashion_mnist(
    root: Path | None, *, pixels: PixelScale = "standardised", hub: bool = False
) -> Samples:
    """Fashion-MNIST: 60,000 + 10,000 pictures of clothing of 28x28 pixels in 10 classes.

    Pixels are standardised as in Ditto's generator.
    """
    return load_images(IMAGE_DATASETS["fashion_mnist"], root, pixels, hub)


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
        test_only_writers: add the writers of ``femnist/test_only_writers.parquet`` to the test
            rows: unseen clients.
        hub: whether to read from the Hugging Face Hub instead of ``root`` (all writers, without a
            split).
    """
    if hub and test_only_writers:
        what = "the Hub has no file of test-only writers"
        expected = "false, or hub = false"
        raise DataError("not-found", "data.test_only_writers", what, got=True, allowed=expected)
    dataset = IMAGE_DATASETS["femnist"]
    if test_only_writers:
        dataset = replace(dataset, test=("test", "test_only_writers"))
    return load_images(dataset, root, pixels, hub)


def emnist_letters_aj(root: Path | None, *, pixels: PixelScale = "unit") -> Samples:
    """EMNIST Letters A to J: 47,998 + 8,000 hand-written letters of 28x28 pixels in 10 classes.

    It replaces the NIST letters of FedProx's FEMNIST-10. ``unit`` is light on dark; ``inverted`` is
    dark on light, like the images that the FEMNIST-10 recipe uses.
    """
    return load_images(IMAGE_DATASETS["emnist_letters_aj"], root, pixels, hub=False)


def cifar10(
    root: Path | None, *, pixels: PixelScale = "standardised", hub: bool = False
) -> Samples:
    """CIFAR-10: 50,000 + 10,000 colour pictures of 32x32 pixels in 10 classes."""
    return load_images(IMAGE_DATASETS["cifar10"], root, pixels, hub)


def svhn(root: Path | None, *, pixels: PixelScale = "standardised", hub: bool = False) -> Samples:
    """SVHN, cropped digits: 73,257 + 26,032 colour pictures of house numbers, 32x32, 10 classes.

    Labels are 0 to 9: the 10 of the original files is a 0.
    """
    return load_images(IMAGE_DATASETS["svhn"], root, pixels, hub)


# --- reading --------------------------------------------------------------------------------------


def load_images(dataset: ImageDataset, root: Path | None, scale: PixelScale, hub: bool) -> Samples:
    """The samples of an image dataset, from the data folder or from the hub."""
    if hub:
        splits = _load_from_hub(dataset.hub, dataset.columns)
    else:
        splits = _load_from_root(dataset, root)
    labels = np.concatenate([split.labels for split in splits])
    last = len(dataset.labels) - 1
    if labels.min() < 0 or labels.max() > last:
        got = f"labels from {labels.min()} to {labels.max()} in {dataset.name}"
        raise DataError("out-of-range", "data.source", found=got, allowed=f"0 to {last}")
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
    files = f"{dataset.name}/{{{','.join(stems)}}}.parquet"
    advice = f"set --data-root (or COTERIE_DATA) to a folder with {files}"
    if dataset.hub is not None:
        advice += ", or hub = true to use the Hugging Face hub"
    folder = dataset_folder(root, dataset.name, advice)
    if not folder.is_dir():
        raise DataError("not-found", folder, do=advice)
    paths = [folder / f"{stem}.parquet" for stem in stems]
    # All are looked for before the first is decoded, which takes seconds.
    for path in paths:
        if not path.is_file():
            raise DataError("not-found", path, do=advice)
    return [_read_split(path, dataset.columns) for path in paths]


def _read_split(path: Path, columns: tuple[str, ...]) -> ImageSplit:
    rows = read_rows(path, columns=("label", *columns))

    # The image column is the bulk of the file, and is read only where the cache has no copy.
    def make() -> Pixels:
        images = image_bytes(read_rows(path, columns=["image"]), "image")
        return decode(images, (str(path), "column image"))

    labels = _labels(rows, "label")
    return _split(rows, labels, columns, cached_images(path, "image", len(rows), make))


def _load_from_hub(address: HubAddress | None, columns: tuple[str, ...]) -> list[ImageSplit]:
    """The splits of a dataset on the hub, the training rows first."""
    assert address is not None, "only datasets with an address have the option `hub`"
    found = hub_splits(address.id, address.config, "data.hub")
    splits = []
    for name in address.splits:
        rows = replace(read_rows(hub_table(found[name])), where=f"{address.id} {name}")
        pixels = decode(image_bytes(rows, address.image), ("data.hub", rows.where))
        splits.append(_split(rows, _labels(rows, address.label), columns, pixels))
    return splits


def _labels(rows: Rows, name: str) -> IntArray:
    labels = column_of(rows, name)
    if labels.dtype.kind not in "iu":
        raise rows.refused("wrong-type", name, labels.dtype, "whole numbers")
    return labels.astype(np.int64)


def _split(rows: Rows, labels: IntArray, columns: tuple[str, ...], pixels: Pixels) -> ImageSplit:
    extra = {name: column_of(rows, name) for name in columns if name in rows.names}
    return ImageSplit(pixels, labels, extra)
