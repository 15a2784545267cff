"""FedProx's synthetic federation, Synthetic(alpha, beta)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.core.threads import one_library_thread
from coterie.data.lazy import drawn
from coterie.data.samples import Samples

FEATURES = 60
CLASSES = 10


def synthetic(
    root: Path | None = None,
    *,
    alpha: Annotated[float, Field(ge=0)] = 1.0,
    beta: Annotated[float, Field(ge=0)] = 1.0,
    clients: Annotated[int, Field(ge=1)] = 100,
    iid: bool = False,
    lazy: bool = False,
    seed: Annotated[int, Field(ge=0)] = 0,
) -> Samples:
    """FedProx's Synthetic(alpha, beta): a teacher and an input mean per client; deal it by
    `client`, or as `given`.

    Client ``k`` has ``u_k ~ N(0, alpha)``, ``B_k ~ N(0, beta)``; ``W_k, b_k ~ N(u_k, 1)`` and ``v_k
    ~ N(B_k, 1)`` in every entry; ``x ~ N(v_k, diag(j^-1.2))`` in 60 features, ``y = argmax(x W_k +
    b_k)`` in 10 classes; it holds ``int(lognormal(4, 2)) + 50`` samples (FedProx, section 5.1 and
    generator; alpha and beta are standard deviations).

    Args:
        root: not used.
        alpha: how much the teachers differ.
        beta: how much the inputs differ.
        clients: number of clients ``N``.
        iid: one teacher, and inputs around zero, for everybody.
        lazy: make a client's samples when they are asked for: the same ones, in memory that does
            not grow with them. Such a federation is dealt as `given`.
        seed: of the data; the run's own seed does not change them.

    Example:
        >>> s = synthetic(clients=3)
        >>> s.x.shape[1:], s.classes, np.unique(s.columns["client"]).tolist()
        (torch.Size([60]), 10, [0, 1, 2])
    """
    key = Key(seed).of("synthetic")
    sizes = key.of("sizes").generator().lognormal(4, 2, clients).astype(np.int64) + 50
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    make = Synthetic(key, sizes, alpha, beta, iid)
    if lazy:
        (x, y), columns = drawn(make, offsets, (FEATURES,)), {}
    else:
        with one_library_thread():  # as where they are made when they are asked for
            made = [make(k) for k in range(clients)]
        x, y = (torch.from_numpy(np.concatenate(each)) for each in zip(*made, strict=True))
        columns = {"client": np.repeat(np.arange(clients), sizes)}
    names = tuple(str(c) for c in range(CLASSES))
    return Samples(x, y, CLASSES, int(offsets[-1]), columns, names, offsets)


@dataclass(frozen=True)
class Synthetic:
    """Makes the samples of one client of Synthetic(alpha, beta): inputs float32 ``[n, 60]``, labels
    int64 ``[n]``."""

    key: Key
    sizes: IntArray
    alpha: float
    beta: float
    iid: bool

    def __call__(self, k: int, /) -> tuple[NDArray[np.float32], IntArray]:
        rng = self.key.of("teacher").client(0 if self.iid else k).generator()
        centre = 0.0 if self.iid else rng.normal(0, self.alpha)
        weight = rng.normal(centre, 1, (FEATURES, CLASSES))
        bias = rng.normal(centre, 1, CLASSES)
        rng = self.key.of("inputs").client(k).generator()
        mean = np.zeros(FEATURES) if self.iid else rng.normal(rng.normal(0, self.beta), 1, FEATURES)
        deviation = np.arange(1, FEATURES + 1) ** -0.6  # the square root of the variances j^-1.2
        x = rng.standard_normal((int(self.sizes[k]), FEATURES))
        x *= deviation
        x += mean
        return x.astype(np.float32), np.argmax(x @ weight + bias, axis=1).astype(np.int64)
