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
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from string import digits as ascii_digits
from types import MappingProxyType

import numpy as np
import torch

from coterie.data.samples import Samples
from coterie.data.sources.image_files import HubAddress, ImageDataset, PixelScale, load_images
from coterie.errors import DataError

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


def digits(root: Path | None = None) -> Samples:
    """1,797 hand-written digits of 8x8 pixels in 10 classes, which come with scikit-learn.

    Pixels are divided by 16; the images have no test split of their own.
    """
    # One row a digit: 64 pixels from 0 to 16, then the label.
    table = np.loadtxt(_file_of_digits(), delimiter=",", dtype=np.uint8)
    images = table[:, :64].reshape(-1, 1, 8, 8)
    x = torch.from_numpy((images / 16).astype(np.float32))
    y = torch.from_numpy(table[:, 64].astype(np.int64))
    scaling = "pixels are divided by 16."
    return Samples(x, y, 10, len(x), label_names=DIGITS, scaling=scaling)


def _file_of_digits() -> Path:
    """The file of the digits in scikit-learn's package.

    It is read without scikit-learn's own loader: that one imports pandas and `scipy.stats`, which
    takes longer than a short run, in every process that needs the digits.
    """
    package = find_spec("sklearn")
    assert package is not None, "scikit-learn is a dependency"
    assert package.origin is not None, "its package has a file"
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


# --- the sources ----------------------------------------------------------------------------------


def mnist(root: Path | None, *, pixels: PixelScale = "standardised", hub: bool = False) -> Samples:
    """MNIST: 60,000 + 10,000 hand-written digits of 28x28 pixels in 10 classes.

    Writers (``writer_id``, ``hsf``) are read where the files have them. Pixels are standardised
    over all 70,000 images, as FedProx's generator does it.
    """
    return load_images(IMAGE_DATASETS["mnist"], root, pixels, hub)


def fashion_mnist(
    root: Path | None, *, pixels: PixelScale = "standardised", hub: bool = False
) -> Samples:
    """Fashion-MNIST: 60,000 + 10,000 pictures of clothing of 28x28 pixels in 10 classes.

    Pixels are standardised as Ditto's generator does it.
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
        hub: from the Hugging Face hub instead of ``root`` (all writers, no split of its own).
    """
    if hub and test_only_writers:
        raise DataError(
            "data.test_only_writers: the hub has no such file, got true; "
            "expected false with hub = true"
        )
    dataset = IMAGE_DATASETS["femnist"]
    if test_only_writers:
        dataset = replace(dataset, test=("test", "test_only_writers"))
    return load_images(dataset, root, pixels, hub)


def emnist_letters_aj(root: Path | None, *, pixels: PixelScale = "unit") -> Samples:
    """EMNIST Letters A to J: 47,998 + 8,000 hand-written letters of 28x28 pixels in 10 classes.

    It stands for the NIST letters of FedProx's FEMNIST-10. ``unit`` is light on dark; ``inverted``
    is dark on light, as the images are that the FEMNIST-10 recipe takes.
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
