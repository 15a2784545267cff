"""Sources of samples, partitions of them over clients, and shifts of both over time."""

from coterie.data.loading import load_population, load_samples, make_partition, populate
from coterie.data.partitions import PARTITIONS, Partition, load_partition
from coterie.data.population import Population, Split
from coterie.data.samples import Samples
from coterie.data.sources import SOURCES

__all__ = [
    "PARTITIONS",
    "SOURCES",
    "Partition",
    "Population",
    "Samples",
    "Split",
    "load_partition",
    "load_population",
    "load_samples",
    "make_partition",
    "populate",
]
