"""A toy dataset that needs no download."""

from __future__ import annotations

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
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = torch.from_numpy((bunch.images / 16).astype(np.float32)[:, None])
    y = torch.from_numpy(bunch.target.astype(np.int64))
    return Samples(x, y, 10, len(x), label_names=tuple("0123456789"))
