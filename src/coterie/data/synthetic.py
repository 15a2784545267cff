"""FedProx's synthetic federation, Synthetic(alpha, beta)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field

from coterie.data.samples import Samples
from coterie.keys import Key
from coterie.types import FloatArray, IntArray

FEATURES = 60
CLASSES = 10


def synthetic(
    root: Path | None = None,
    *,
    alpha: Annotated[float, Field(ge=0)] = 1.0,
    beta: Annotated[float, Field(ge=0)] = 1.0,
    clients: Annotated[int, Field(ge=1)] = 100,
    iid: bool = False,
    seed: Annotated[int, Field(ge=0)] = 0,
) -> Samples:
    """FedProx's Synthetic(alpha, beta): a linear teacher and an input mean per client; deal it by the column `client`.

    Client ``k`` has ``u_k ~ N(0, alpha)``, ``B_k ~ N(0, beta)``; ``W_k, b_k ~ N(u_k, 1)`` and ``v_k ~ N(B_k, 1)`` in
    every entry; ``x ~ N(v_k, diag(j^-1.2))`` in 60 features, ``y = argmax(x W_k + b_k)`` in 10 classes; it holds
    ``int(lognormal(4, 2)) + 50`` samples (FedProx, section 5.1 and generator; alpha and beta are standard deviations).

    Args:
        root: not used.
        alpha: how much the teachers differ.
        beta: how much the inputs differ.
        clients: number of clients ``N``.
        iid: one teacher, and inputs around zero, for everybody.
        seed: of the data; the run's own seed does not change them.

    Example:
        >>> s = synthetic(clients=3)
        >>> s.x.shape[1:], s.classes, np.unique(s.columns["client"]).tolist()
        (torch.Size([60]), 10, [0, 1, 2])
    """
    key = Key(seed).of("synthetic")
    sizes = key.of("sizes").generator().lognormal(4, 2, clients).astype(np.int64) + 50
    made = [_client(key, 0 if iid else k, k, int(n), alpha, beta, iid) for k, n in enumerate(sizes)]
    return Samples(
        x=torch.from_numpy(np.concatenate([x for x, _ in made]).astype(np.float32)),
        y=torch.from_numpy(np.concatenate([y for _, y in made])),
        classes=CLASSES,
        train_rows=int(sizes.sum()),
        columns={"client": np.repeat(np.arange(clients), sizes)},
        label_names=tuple(str(c) for c in range(CLASSES)),
    )


def _client(
    key: Key, teacher: int, k: int, n: int, alpha: float, beta: float, iid: bool
) -> tuple[FloatArray, IntArray]:
    rng = key.of("teacher").client(teacher).generator()
    centre = 0.0 if iid else rng.normal(0, alpha)
    weight = rng.normal(centre, 1, (FEATURES, CLASSES))
    bias = rng.normal(centre, 1, CLASSES)
    rng = key.of("inputs").client(k).generator()
    mean = np.zeros(FEATURES) if iid else rng.normal(rng.normal(0, beta), 1, FEATURES)
    deviation = np.arange(1, FEATURES + 1) ** -0.6  # the square root of the variances j^-1.2
    x = mean + deviation * rng.standard_normal((n, FEATURES))
    return x, np.argmax(x @ weight + bias, axis=1).astype(np.int64)
