"""Who gets which samples: pure functions from samples to index arrays, `PARTITIONS` by kind.

A partition is called as ``partition(samples, key, **options)``. The options are those of the table
``[data.partition]`` of a configuration. To add one, write its file next to these and name it in
`PARTITIONS`, and in `READS_NO_LABELS` if it works without class labels.
"""

from collections.abc import Callable
from types import MappingProxyType

from coterie.data.partition import Partition, load_partition, partition_bytes
from coterie.data.partitions.dirichlet import dirichlet, dirichlet_by_size
from coterie.data.partitions.few_classes import majority_classes, shards
from coterie.data.partitions.iid import feature_noise, iid, quantity_skew
from coterie.data.partitions.natural import natural, predefined
from coterie.data.partitions.planted import planted, planted_mixture
from coterie.data.partitions.power_law import by_classes, ditto, femnist10, power_law

__all__ = [
    "KEEP_CLIENTS",
    "PARTITIONS",
    "READS_NO_LABELS",
    "Partition",
    "load_partition",
    "partition_bytes",
]

PARTITIONS: MappingProxyType[str, Callable[..., Partition]] = MappingProxyType(
    {
        "power_law": power_law,
        "classes": by_classes,
        "dirichlet": dirichlet,
        "ditto": ditto,
        "femnist10": femnist10,
        "natural": natural,
        "iid": iid,
        "planted": planted,
        "planted_mixture": planted_mixture,
        "shards": shards,
        "quantity_skew": quantity_skew,
        "feature_noise": feature_noise,
        "dirichlet_by_size": dirichlet_by_size,
        "rfedavg": majority_classes,
        "given": predefined,
    }
)

# Partitions that keep the clients of a source. They read no labels, which a federation that is made
# client by client does not have.
KEEP_CLIENTS = ("given",)
# Partitions of samples whose targets are no classes.
READS_NO_LABELS = ("iid", "natural", "given", "quantity_skew", "feature_noise")
