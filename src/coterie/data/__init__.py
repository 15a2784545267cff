"""Samples, who holds them, and how they were dealt."""

from coterie.data.loading import load_population, load_samples, make_parts, populate
from coterie.data.partitions import PARTITIONS, Parts, load_parts, save_parts
from coterie.data.population import Population, Split
from coterie.data.samples import Samples
from coterie.data.sources import SOURCES

__all__ = [
    "PARTITIONS",
    "SOURCES",
    "Parts",
    "Population",
    "Samples",
    "Split",
    "load_parts",
    "load_population",
    "load_samples",
    "make_parts",
    "populate",
    "save_parts",
]
