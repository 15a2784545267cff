"""Sources that draw their samples: FedProx's synthetic federation, and streams whose concept drifts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.core.process import one_library_thread
from coterie.data.lazy import lazy_columns
from coterie.data.samples import Samples

FEATURES = 60
CLASSES = 10

Deviation = Annotated[float, Field(ge=0)]

Function = Literal["sea", "sine", "circle"]

# The sums of the first two features up to which a point of SEA is of class 1.
SEA_THRESHOLDS = (8.0, 9.0, 7.0, 9.5)
# The centre and the radius of each concept's circle.
CIRCLES = (((0.2, 0.5), 0.15), ((0.6, 0.5), 0.25))


def synthetic(
    root: Path | None = None,
    *,
    alpha: Deviation = 1.0,
    beta: Deviation = 1.0,
    clients: Annotated[int, Field(ge=1)] = 100,
    iid: bool = False,
    lazy: bool = False,
    seed: Annotated[int, Field(ge=0)] = 0,
) -> Samples:
    """FedProx's Synthetic(alpha, beta): a teacher and an input mean per client.

    Client ``k`` has ``u_k ~ N(0, alpha)``, ``B_k ~ N(0, beta)``; ``W_k, b_k ~ N(u_k, 1)`` and
    ``v_k ~ N(B_k, 1)`` in every entry; ``x ~ N(v_k, diag(j^-1.2))`` in 60 features,
    ``y = argmax(x W_k + b_k)`` in 10 classes. Each client holds ``int(lognormal(4, 2)) + 50``
    samples. ``alpha`` and ``beta`` are standard deviations. The partitions `natural` (column
    ``client``) and `given` keep the clients.

    Args:
        alpha: how much the teachers differ.
        beta: how much the inputs differ.
        clients: number of clients ``N``.
        iid: whether all clients have one teacher, and inputs around zero.
        lazy: whether to generate a client's samples when they are needed: the same samples, in
            memory that does not grow with them. Such a federation needs the partition `given`.
        seed: the seed of the data; the run's seed does not change them.

    Source: Li et al., Federated Optimization in Heterogeneous Networks (2020), section 5.1, and its
    generator.
    """
    key = Key(seed).of("synthetic")
    sizes = key.of("sizes").generator().lognormal(4, 2, clients).astype(np.int64) + 50
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    # Sizes are drawn for all clients at once, before any sample is made: the pool's layout is then
    # known, and a lazy federation needs nothing else.
    make = SyntheticClient(key, sizes, alpha, beta, iid)
    columns = {}
    if lazy:
        x, y = lazy_columns(make, offsets, (FEATURES,))
    else:
        # Labels hang on the last bits of a product, so it is summed as where samples are made one
        # client at a time: on one thread.
        with one_library_thread():
            made = [make(k) for k in range(clients)]
        x = torch.from_numpy(np.concatenate([inputs for inputs, _ in made]))
        y = torch.from_numpy(np.concatenate([labels for _, labels in made]))
        columns = {"client": np.repeat(np.arange(clients), sizes)}
    names = tuple(str(c) for c in range(CLASSES))
    scaling = "not at all, they are as they were drawn."
    return Samples(x, y, CLASSES, int(offsets[-1]), columns, names, offsets, scaling=scaling)


@dataclass(frozen=True)
class SyntheticClient:
    """Makes the samples of one client of Synthetic(alpha, beta).

    The draws of a client come from streams of its own, so that it has the same samples in every
    process and in any order.
    """

    key: Key
    sizes: IntArray
    alpha: float
    beta: float
    iid: bool

    def __call__(self, k: int, /) -> tuple[NDArray[np.float32], IntArray]:
        """The inputs float32 ``[n, 60]`` and the labels int64 ``[n]`` of client ``k``."""
        weight, bias = self._teacher(k)
        rng = self.key.of("inputs").client(k).generator()
        mean = np.zeros(FEATURES)
        if not self.iid:
            mean = rng.normal(rng.normal(0, self.beta), 1, FEATURES)
        # The square roots of the variances j^-1.2.
        deviation = np.arange(1, FEATURES + 1) ** -0.6
        x = rng.standard_normal((int(self.sizes[k]), FEATURES))
        x *= deviation
        x += mean
        # Labels are those of the float64 inputs: rounding first would move some across a border.
        y = np.argmax(x @ weight + bias, axis=1).astype(np.int64)
        return x.astype(np.float32), y

    def _teacher(self, k: int) -> tuple[FloatArray, FloatArray]:
        """``W_k [60, 10]`` and ``b_k [10]``; those of client 0 for all if the data are iid."""
        if self.iid:
            rng = self.key.of("teacher").client(0).generator()
            centre = 0.0
        else:
            rng = self.key.of("teacher").client(k).generator()
            centre = rng.normal(0, self.alpha)
        weight = rng.normal(centre, 1, (FEATURES, CLASSES))
        bias = rng.normal(centre, 1, CLASSES)
        return weight, bias


def drift_stream(
    root: Path | None = None,
    *,
    function: Function = "sea",
    samples: Annotated[int, Field(ge=10)] = 10_000,
    seed: Annotated[int, Field(ge=0)] = 0,
) -> Samples:
    """Points in [0, 1] with two classes, whose border is different in each concept.

    - ``sea``: three features; class 1 where ``10 (x_1 + x_2) <= theta``, with ``theta`` of 8, 9, 7
      and 9.5 in the four concepts.
    - ``sine``: two features; class 1 where ``x_2 <= sin(x_1)``, and in the second concept the other
      way round.
    - ``circle``: two features; class 1 outside a circle around (0.2, 0.5) with radius 0.15, and in
      the second concept around (0.6, 0.5) with 0.25.

    Labels are those of the first concept. The columns ``concept_0``, ``concept_1``, ... have the
    labels of each concept, for `planted` with ``how = "columns"``.

    Args:
        function: the name of the function.
        samples: number of points.
        seed: the seed of the points; the run's seed does not change them.

    Source: Street and Kim, A Streaming Ensemble Algorithm (SEA) for Large-Scale Classification (2001);
    Pesaranghader et al., Fast Hoeffding Drift Detection Method for Evolving Data Streams (2016).
    """
    rng = Key(seed).of("drift_stream").generator()
    features = 3 if function == "sea" else 2
    x = rng.random((samples, features))
    labels = concept_labels(function, x)
    columns = {f"concept_{c}": of_concept for c, of_concept in enumerate(labels)}
    return Samples(
        torch.from_numpy(x.astype(np.float32)),
        torch.from_numpy(labels[0]),
        2,
        samples,
        columns,
        ("0", "1"),
        scaling="not at all, they are between 0 and 1.",
    )


def concept_labels(function: Function, x: FloatArray) -> list[IntArray]:
    """The labels of some points in each concept."""
    if function == "sea":
        total = 10 * (x[:, 0] + x[:, 1])
        found = [total <= threshold for threshold in SEA_THRESHOLDS]
    elif function == "sine":
        below = x[:, 1] <= np.sin(x[:, 0])
        found = [below, ~below]
    else:
        squares = [((x - centre) ** 2).sum(axis=1) for centre, _ in CIRCLES]
        found = [square > radius**2 for square, (_, radius) in zip(squares, CIRCLES, strict=True)]
    return [labels.astype(np.int64) for labels in found]
