"""A toy dataset that needs no download."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from coterie.data.samples import Samples


def digits(root: Path | None = None) -> Samples:
    """1,797 hand-written digits of 8x8 pixels in 10 classes, which come with scikit-learn.

    Pixels are divided by 16; the images have no test split of their own.

    Example:
        >>> s = digits()
        >>> tuple(s.x.shape), s.train_rows, float(s.x.max())
        ((1797, 1, 8, 8), 1797, 1.0)
    """
    # One row a digit: 64 pixels from 0 to 16, then the label.
    table = np.loadtxt(_file_of_digits(), delimiter=",", dtype=np.uint8)
    images = table[:, :64].reshape(-1, 1, 8, 8)
    x = torch.from_numpy((images / 16).astype(np.float32))
    y = torch.from_numpy(table[:, 64].astype(np.int64))
    return Samples(x, y, 10, len(x), label_names=tuple("0123456789"))


def _file_of_digits() -> Path:
    """The file of the digits in scikit-learn's package.

    It is read without scikit-learn's own loader: that one imports pandas and `scipy.stats`, which
    takes longer than a short run, in every process that needs the digits.
    """
    package = find_spec("sklearn")
    assert package is not None, "scikit-learn is a dependency"
    assert package.origin is not None, "its package has a file"
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
