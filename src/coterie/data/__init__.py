"""Sources of samples, partitions of them over clients, and shifts of both over time."""

from typing import Any

from coterie.data.loading import load_population, load_samples, make_partition, populate
from coterie.data.partitions import PARTITIONS, Partition, load_partition, save_partition
from coterie.data.population import Population, Split
from coterie.data.samples import Samples
from coterie.data.sources import SOURCES
from coterie.deprecated import renamed

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
    "save_partition",
]


def __getattr__(name: str) -> Any:
    names = {
        "Parts": "Partition",
        "load_parts": "load_partition",
        "make_parts": "make_partition",
        "save_parts": "save_partition",
    }
    return renamed(__name__, name, names)
