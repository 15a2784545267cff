"""Label skew by shards: McMahan's split, as flwr-datasets' ``ShardPartitioner`` has it."""

from __future__ import annotations

import numpy as np

from coterie.core.keys import Key
from coterie.data.partition import Partition
from coterie.data.partitions.helpers import (
    Count,
    apportion,
    concatenate_rows,
    cut_pools,
    too_many_clients,
    train_and_test_pools,
)
from coterie.data.samples import Samples


def shards(
    samples: Samples, key: Key, /, *, clients: Count = 100, shards_per_client: Count = 2
) -> Partition:
    """Rows sorted by label and cut into shards of equal size, of which each client gets a few.

    With two shards most clients hold two classes. Test rows of a class are split as its training
    rows are. A source without a test split gives a random tenth of each class to test on.

    Args:
        samples: of a source; their inputs are not read.
        key: the stream that shuffles.
        clients: number of clients ``N``.
        shards_per_client: of each client.

    Raises:
        DataError: if there are fewer training samples than shards.

    Source: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized
    Data (2017), section 3.

    Example:
        >>> import torch
        >>> y = torch.arange(4).repeat_interleave(10)
        >>> samples = Samples(torch.zeros(40, 1), y, classes=4, train_rows=40)
        >>> parts = shards(samples, Key(0), clients=4, shards_per_client=1)
        >>> [set(y[torch.from_numpy(rows)].tolist()) for rows in parts.train[:1]], parts.clients
        ([{0}], 4)
    """
    train, tests = train_and_test_pools(samples, key)
    # Shuffled within a class: unshuffled, shards would follow the order of the source.
    pools = [
        key.of("order").client(c).generator().permutation(pool) for c, pool in enumerate(train)
    ]
    by_label = concatenate_rows(pools)
    count = clients * shards_per_client
    if count > len(by_label):
        raise too_many_clients(clients, len(by_label) // shards_per_client)
    cut = np.array_split(by_label, count)
    drawn = key.of("shards").generator().permutation(count).reshape(clients, shards_per_client)
    rows = tuple(concatenate_rows([cut[at] for at in mine]) for mine in drawn.tolist())
    labels = samples.labels
    counts = np.stack([np.bincount(labels[held], minlength=len(train)) for held in rows])
    shares = [apportion(counts[:, c], len(pool)) for c, pool in enumerate(tests)]
    return Partition(rows, cut_pools(tests, np.stack(shares, axis=1)))
