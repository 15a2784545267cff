"""Where samples come from: one factory a dataset, `SOURCES` by name.

The image sources read ``<root>/<name>/{train,test}.parquet`` with a column ``image`` of PNG or JPEG
bytes and a column ``label``; ``root`` is ``--data-root`` or the environment variable
``COTERIE_DATA``. With ``hub = true`` they come from the Hugging Face hub by their known id (extra
``hf``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from string import digits as ascii_digits
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.data import images
from coterie.data.files import bytes_of, column_of, file, open_parquet
from coterie.data.samples import Samples
from coterie.data.synthetic import synthetic
from coterie.data.text import sent140
from coterie.errors import DataError, install_command

PixelScale = Literal["unit", "inverted", "standardised"]
DIGITS = tuple(ascii_digits)
FASHION = (
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
CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True, slots=True)
class Dataset:
    """What is known of an image dataset: file stems, labels, further columns, statistics, and its
    id on the hub."""

    name: str
    labels: tuple[str, ...]
    columns: tuple[str, ...] = ()
    test: tuple[str, ...] = ("test",)
    pooled: bool = False  # standardise by train and test together, else by train alone
    per_channel: bool = False
    hub_id: str = ""
    hub_config: tuple[str, ...] = ()
    hub_splits: tuple[str, ...] = ("train", "test")
    hub_image: str = "image"
    hub_label: str = "label"


@dataclass(frozen=True, slots=True)
class Table:
    """One split: decoded images, labels, further columns."""

    pixels: images.Pixels
    labels: NDArray[np.int64]
    columns: dict[str, NDArray[Any]]


def digits(root: Path | None = None) -> Samples:
    """1,797 hand-written digits of 8x8 pixels, in 10 classes, that come with scikit-learn: no
    download.

    Pixels are divided by 16; the images have no test split of their own.

    Example:
        >>> s = digits()
        >>> tuple(s.x.shape), s.train_rows, float(s.x.max())
        ((1797, 1, 8, 8), 1797, 1.0)
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = torch.from_numpy((bunch.images / 16).astype(np.float32)[:, None])
    return Samples(
        x, torch.from_numpy(bunch.target.astype(np.int64)), 10, len(x), label_names=DIGITS
    )


def mnist(root: Path | None, *, pixels: PixelScale = "standardised", hub: bool = False) -> Samples:
    """MNIST: 60,000 + 10,000 hand-written digits of 28x28 pixels, 10 classes, with writers where
    the files have them.

    Args:
        root: folder that holds ``mnist/{train,test}.parquet``.
        pixels: ``unit``: in [0, 1]; ``inverted``: 1 minus that; ``standardised``: per pixel over
            all 70,000, as FedProx's generator does it.
        hub: from the Hugging Face hub instead of ``root``.

    Raises:
        DataError: if the files are missing or damaged.
    """
    dataset = Dataset(
        "mnist", DIGITS, columns=("writer_id", "hsf"), pooled=True, hub_id="ylecun/mnist"
    )
    return _load(dataset, root, pixels, hub)


def fashion_mnist(
    root: Path | None, *, pixels: PixelScale = "standardised", hub: bool = False
) -> Samples:
    """Fashion-MNIST: 60,000 + 10,000 pictures of clothing of 28x28 pixels, 10 classes.

    Args:
        root: folder that holds ``fashion_mnist/{train,test}.parquet``.
        pixels: ``unit``: in [0, 1]; ``inverted``: 1 minus that; ``standardised``: per pixel by the
            training images, as Ditto's generator does it.
        hub: from the Hugging Face hub instead of ``root``.

    Raises:
        DataError: if the files are missing or damaged.
    """
    return _load(
        Dataset("fashion_mnist", FASHION, hub_id="zalando-datasets/fashion_mnist"),
        root,
        pixels,
        hub,
    )


def femnist(
    root: Path | None,
    *,
    pixels: PixelScale = "unit",
    test_only_writers: bool = False,
    hub: bool = False,
) -> Samples:
    """FEMNIST of LEAF: hand-written digits and letters of 28x28 pixels, 62 classes, by writer
    (column `writer_id`).

    Dark on light, as NIST's images are; MNIST and EMNIST are light on dark.

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
            "data.test_only_writers: the hub has no such file, got true; expected false with hub = true"
        )
    dataset = Dataset(
        "femnist",
        (*ascii_digits, *ascii_uppercase, *ascii_lowercase),
        columns=("writer_id",),
        test=("test", "test_only_writers") if test_only_writers else ("test",),
        hub_id="flwrlabs/femnist",
        hub_splits=("train",),
        hub_label="character",
    )
    return _load(dataset, root, pixels, hub)


def emnist_letters_aj(root: Path | None, *, pixels: PixelScale = "unit") -> Samples:
    """EMNIST Letters A to J: 47,998 + 8,000 hand-written letters of 28x28 pixels, 10 classes (for
    FEMNIST-10).

    Args:
        root: folder that holds ``emnist_letters_aj/{train,test}.parquet``.
        pixels: ``unit``: in [0, 1], light on dark; ``inverted``: 1 minus that, dark on light, as
            the images are that the FEMNIST-10 recipe takes; ``standardised``: per pixel by the
            training images.

    Raises:
        DataError: if the files are missing or damaged.
    """
    return _load(Dataset("emnist_letters_aj", tuple("ABCDEFGHIJ")), root, pixels, hub=False)


def cifar10(
    root: Path | None, *, pixels: PixelScale = "standardised", hub: bool = False
) -> Samples:
    """CIFAR-10: 50,000 + 10,000 colour pictures of 32x32 pixels, 10 classes.

    Args:
        root: folder that holds ``cifar10/{train,test}.parquet``.
        pixels: ``unit``: in [0, 1]; ``inverted``: 1 minus that; ``standardised``: per colour
            channel by the training images.
        hub: from the Hugging Face hub instead of ``root``.

    Raises:
        DataError: if the files are missing or damaged.
    """
    return _load(
        Dataset("cifar10", CIFAR, per_channel=True, hub_id="uoft-cs/cifar10", hub_image="img"),
        root,
        pixels,
        hub,
    )


def svhn(root: Path | None, *, pixels: PixelScale = "standardised", hub: bool = False) -> Samples:
    """SVHN, cropped digits: 73,257 + 26,032 colour pictures of house numbers of 32x32 pixels, 10
    classes.

    Args:
        root: folder that holds ``svhn/{train,test}.parquet``, labels 0 to 9 (the 10 of the original
            files is a 0).
        pixels: ``unit``: in [0, 1]; ``inverted``: 1 minus that; ``standardised``: per colour
            channel by the training images.
        hub: from the Hugging Face hub instead of ``root``.

    Raises:
        DataError: if the files are missing or damaged.
    """
    dataset = Dataset(
        "svhn",
        DIGITS,
        per_channel=True,
        hub_id="ufldl-stanford/svhn",
        hub_config=("cropped_digits",),
    )
    return _load(dataset, root, pixels, hub)


def nodes(root: Path | None = None, *, shape: tuple[int, ...], classes: tuple[str, ...]) -> Samples:
    """Data that lie on the clients of a real federation, and never here: for `coterie deploy`
    alone.

    Args:
        root: not looked at.
        shape: of one input.
        classes: their names, in the order of the labels.

    Raises:
        DataError: always.
    """
    raise DataError(
        f"data.source: the data stay on their nodes, got inputs of shape {list(shape)} in {len(classes)} classes; "
        "expected `coterie deploy`, or another source"
    )


SOURCES: MappingProxyType[str, Callable[..., Samples]] = MappingProxyType(
    {
        "digits": digits,
        "synthetic": synthetic,
        "mnist": mnist,
        "fashion_mnist": fashion_mnist,
        "femnist": femnist,
        "emnist_letters_aj": emnist_letters_aj,
        "cifar10": cifar10,
        "svhn": svhn,
        "sent140": sent140,
        "file": file,
        "nodes": nodes,
    }
)


def _load(dataset: Dataset, root: Path | None, scale: PixelScale, hub: bool) -> Samples:
    if scale not in get_args(PixelScale):
        raise DataError(
            f"data.pixels: unknown scale, got {scale!r}; expected {', '.join(get_args(PixelScale))}"
        )
    tables = _from_hub(dataset) if hub else _from_root(dataset, root)
    labels = np.concatenate([t.labels for t in tables])
    if labels.min() < 0 or labels.max() >= len(dataset.labels):
        raise DataError(
            f"{dataset.name}: labels, got {labels.min()} to {labels.max()}; expected 0 to {len(dataset.labels) - 1}"
        )
    train_rows = len(tables[0].labels)
    names = [name for name in dataset.columns if all(name in t.columns for t in tables)]
    columns = {name: np.concatenate([t.columns[name] for t in tables]) for name in names}
    pixels = [t.pixels for t in tables]
    if scale != "standardised":
        x = images.unit(*pixels)
        if scale == "inverted":
            np.subtract(1, x, out=x)
    else:
        x = images.standardise(
            *pixels, over=None if dataset.pooled else 1, per_channel=dataset.per_channel
        )
    return Samples(
        torch.from_numpy(x),
        torch.from_numpy(labels),
        len(dataset.labels),
        train_rows,
        columns,
        dataset.labels,
    )


def _from_root(dataset: Dataset, root: Path | None) -> list[Table]:
    folder = _folder(dataset, root)
    paths = [folder / f"{stem}.parquet" for stem in ("train", *dataset.test)]
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path}: no such file; {_advice(dataset)}")
    return [_read(path, dataset.columns) for path in paths]


def _folder(dataset: Dataset, root: Path | None) -> Path:
    base = root if root is not None else os.environ.get("COTERIE_DATA")
    if not base:
        raise DataError(f"data.source: no data folder for {dataset.name!r}; {_advice(dataset)}")
    folder = Path(base).expanduser() / dataset.name
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; {_advice(dataset)}")
    return folder


def _advice(dataset: Dataset) -> str:
    stems = ",".join(("train", *dataset.test))
    hub = " or hub = true to use the Hugging Face hub" if dataset.hub_id else ""
    return f"expected --data-root (or COTERIE_DATA) to name a folder with {dataset.name}/{{{stems}}}.parquet{hub}"


def _read(path: Path, columns: Sequence[str]) -> Table:
    table = open_parquet(path, wanted=lambda name: name == "label" or name in columns)
    labels = column_of(table, "label", path)
    if labels.dtype.kind not in "iu":
        raise DataError(f"{path}: column label, got {labels.dtype}; expected whole numbers")
    extra = {name: column_of(table, name, path) for name in columns if name in table.column_names}

    def make() -> images.Pixels:
        return images.decode(
            bytes_of(open_parquet(path, wanted=lambda name: name == "image"), "image", path),
            str(path),
        )

    return Table(images.cached(path, "image", len(labels), make), labels.astype(np.int64), extra)


def _from_hub(dataset: Dataset) -> list[Table]:
    try:
        import datasets
    except ImportError:
        raise DataError(
            f"data.hub: the package 'datasets' is not installed; expected {install_command('hf')}"
        ) from None
    try:
        return [_from_split(datasets, dataset, split) for split in dataset.hub_splits]
    except DataError:
        raise
    except Exception as error:  # noqa: BLE001  the hub's client raises dozens of unrelated kinds
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"data.hub: {dataset.hub_id} cannot be loaded ({line})") from None


def _from_split(datasets: Any, dataset: Dataset, split: str) -> Table:
    rows = datasets.load_dataset(dataset.hub_id, *dataset.hub_config, split=split)
    rows = rows.cast_column(dataset.hub_image, datasets.Image(decode=False))
    blobs = [image["bytes"] for image in rows[dataset.hub_image]]
    extra = {name: np.asarray(rows[name]) for name in dataset.columns if name in rows.column_names}
    labels = np.asarray(rows[dataset.hub_label], dtype=np.int64)
    return Table(images.decode(blobs, f"{dataset.hub_id} {split}"), labels, extra)
