"""FedProx's FEMNIST of ten letters, which FedGroup and FlexCFL use."""

from __future__ import annotations

from typing import Literal

import numpy as np

from coterie.core.keys import Key
from coterie.data.partition import Partition
from coterie.data.partitions.helpers import (
    TEST_FRACTION,
    Count,
    consecutive_classes,
    rows_by_class,
    split_train_test,
    too_many_clients,
)
from coterie.data.samples import Samples


def femnist10(
    samples: Samples,
    key: Key,
    /,
    *,
    clients: Count = 200,
    # The paper's text says 5; the figures that FedGroup and FlexCFL print are reached with 3.
    classes_per_client: Count = 3,
    overlap: Literal["disjoint", "released"] = "disjoint",
    per_class: Count = 4000,
) -> Partition:
    """FedProx's FEMNIST of ten letters: consecutive classes in equal parts, lognormal sizes.

    Client ``u`` holds ``max(2, int(n / classes_per_client))`` samples of each of the classes
    ``(u + j) mod c``, with ``n ~ lognormal(4, 1) + 5``, from a pool of ``per_class`` random samples
    of each class. Train and test are pooled; each client's samples are split 90/10.

    Args:
        samples: of a source, whose own split is not used; their inputs are not read.
        key: the stream that draws.
        clients: number of clients ``N``.
        classes_per_client: classes that each client holds: 3 in the released script, 5 in the
            paper's text.
        overlap: ``disjoint``: no sample goes to two clients. ``released``: as in the released
            script, whose test for the end of a class is inverted, so that every client reads each
            class from its start. Clients share samples then, and one tests on what another trains
            on.
        per_class: size of the pool of each class.

    Raises:
        DataError: if a pool runs out (``disjoint``); it says how many clients it suffices for.

    Source: the script ``data/nist`` of Li et al., Federated Optimization in Heterogeneous Networks
    (2020).

    Example:
        >>> import torch
        >>> y = torch.arange(10).repeat_interleave(400)
        >>> samples = Samples(torch.zeros(4000, 1), y, classes=10, train_rows=4000)
        >>> parts = femnist10(samples, Key(3), clients=20)
        >>> len(np.unique(np.concatenate([*parts.train, *parts.test]))) == parts.samples
        True
    """
    held = consecutive_classes(clients, samples.classes, classes_per_client)
    pools = [
        key.of("pool").client(c).generator().permutation(pool)[:per_class]
        for c, pool in enumerate(rows_by_class(samples.labels, samples.classes))
    ]
    # The script divides a client's size evenly over its classes, two samples of each at least.
    sizes = key.of("sizes").generator().lognormal(4, 1, clients) + 5
    each = np.maximum(2, (sizes / classes_per_client).astype(np.int64))
    # Where the next client begins to read each class; it stays at 0 if clients may overlap.
    position = np.zeros(samples.classes, np.int64)
    rows = []
    for u in range(clients):
        mine = held[u]
        n = each[u]
        if overlap == "disjoint" and any(position[c] + n > len(pools[c]) for c in mine):
            raise too_many_clients(clients, u)
        rows.append(np.concatenate([pools[c][position[c] : position[c] + n] for c in mine]))
        if overlap == "disjoint":
            position[mine] += n
    return split_train_test(rows, key, TEST_FRACTION)
