"""Few classes per client: McMahan's shards, and RFedAvg's majority class."""

from __future__ import annotations

from typing import Literal

import numpy as np

from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data.partition import Partition
from coterie.data.partitions.helpers import (
    Count,
    check_classes_per_client,
    concatenate_rows,
    cut_as,
    shuffle_and_split,
    shuffled_pools,
    too_large,
    too_many_clients,
    train_and_test_pools,
)
from coterie.data.samples import Samples

Truncation = Literal["rejection", "clip"]

# The normal distribution of the majority class, counted from 1 (RFedAvg, sec. IV-C).
MEAN = 5.0
VARIANCE = 10.0


def shards(
    samples: Samples, key: Key, /, *, clients: Count = 100, shards_per_client: Count = 2
) -> Partition:
    """Rows are sorted by label and cut into shards of equal size, and each client gets a few
    shards.

    With two shards most clients hold two classes. Test rows of a class are split as its training
    rows are. A source without a test split gives a random tenth of each class to test on.

    Source: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized
    Data (2017), section 3.
    """
    train, tests = train_and_test_pools(samples, key)
    # Shuffled within a class: unshuffled, shards would follow the order of the source.
    by_label = concatenate_rows(shuffled_pools(train, key))
    count = clients * shards_per_client
    if count > len(by_label):
        raise too_many_clients(clients, len(by_label) // shards_per_client)
    cut = np.array_split(by_label, count)
    drawn = key.of("shards").generator().permutation(count).reshape(clients, shards_per_client)
    rows = tuple(concatenate_rows([cut[at] for at in mine]) for mine in drawn.tolist())
    labels = samples.labels
    counts = np.stack([np.bincount(labels[held], minlength=len(train)) for held in rows])
    return Partition(rows, cut_as(counts, tests))


def majority_classes(
    samples: Samples,
    key: Key,
    /,
    *,
    clients: Count = 100,
    classes_per_client: Count = 10,
    largest: Count = 100,
    truncation: Truncation = "rejection",
) -> Partition:
    """RFedAvg's data: a majority class for each device, by a rounded normal distribution.

    Device ``k`` draws its majority class ``a = round(N(5, variance 10))`` in ``1..c`` (label
    ``a - 1``) and ``B`` sizes from ``1..largest``. The largest is that of its majority class; the
    others go to ``B - 1`` further classes. The samples of a class are read in turn, and from the
    start again if it runs out, so devices may share some. All test rows are used, split evenly, so
    that the accuracy over all clients is that of the whole test set.

    Args:
        samples: the samples of a source; their inputs are not read. Without test rows, a tenth of
            each class is tested on.
        classes_per_client: classes that each device holds, ``B``.
        largest: largest number of samples of a class that a device holds.
        truncation: a majority class out of range is drawn again (``rejection``), or moved to the
            nearest (``clip``), which gives the first and the last class too many devices.

    Source: RFedAvg with adaptive clustering by cosine similarity, sec. IV-C. The paper draws sizes
    from 0 on; here they begin at 1, since a size of 0 would take a class from the device.
    """
    classes = samples.classes
    check_classes_per_client(classes_per_client, classes)
    train, tests = train_and_test_pools(samples, key)
    counts = _draw_counts(key, (clients, classes), classes_per_client, largest, truncation)
    # Reading goes round, so a class may be used more than once, but not twice by one device.
    for c, pool in enumerate(train):
        if counts[:, c].max() > len(pool):
            what = f"class {c} has {len(pool)} training samples"
            raise too_large("largest", what, largest, min(map(len, train)))
    train_rows = shuffled_pools(train, key)
    # Where each device begins to read a class: behind what the devices before it have read.
    start = np.cumsum(counts, axis=0) - counts
    rows = []
    for k in range(clients):
        runs = []
        for c in np.flatnonzero(counts[k]).tolist():
            # After the last sample of a class comes the first.
            places = start[k, c] + np.arange(counts[k, c])
            runs.append(train_rows[c][places % len(train_rows[c])])
        rows.append(concatenate_rows(runs))
    test = shuffle_and_split(concatenate_rows(tests), key.of("test"), clients)
    return Partition(tuple(rows), tuple(test))


def _draw_counts(
    key: Key, shape: tuple[int, int], each: int, largest: int, truncation: Truncation
) -> IntArray:
    """Samples per device and class, int64 ``[K, c]``; ``shape`` is ``(K, c)``."""
    clients, classes = shape
    counts = np.zeros(shape, np.int64)
    for k in range(clients):
        # One stream per device: its data do not depend on how many devices there are.
        rng = key.of("sizes").client(k).generator()
        major = _draw_majority(rng, classes, truncation)
        sizes = np.sort(rng.integers(1, largest, each, endpoint=True))[::-1]
        # The majority class has the largest size, the others get theirs in random order.
        others = rng.permutation(np.delete(np.arange(classes), major))[: each - 1]
        counts[k, major] = sizes[0]
        counts[k, others] = rng.permutation(sizes[1:])
    return counts


def _draw_majority(rng: np.random.Generator, classes: int, truncation: Truncation) -> int:
    while True:
        label = int(np.rint(rng.normal(MEAN, np.sqrt(VARIANCE)))) - 1
        if 0 <= label < classes:
            return label
        if truncation == "clip":
            return min(max(label, 0), classes - 1)
