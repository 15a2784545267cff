"""Data by the name of their source, from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coterie.core.keys import Key
from coterie.data import load_samples, make_partition, populate
from coterie.data.population import DataOrigin, Population
from coterie.data.samples import Targets


def load(
    source: str | Mapping[str, Any] = "digits",
    *,
    partition: Mapping[str, Any],
    seed: int = 0,
    root: str | None = None,
    targets: Targets = "auto",
    **options: Any,
) -> Population:
    """A population from a named source and partition.

    Args:
        source: a name of ``coterie list datasets``, or ``module:factory``, which makes a population
            or samples; or a table of ``kind`` and options, as for a source with a seed of its own,
            ``{"kind": "synthetic", "seed": 1}``.
        partition: ``kind`` and its parameters.
        seed: of the partition.
        root: folder of the datasets; default the environment variable ``COTERIE_DATA``.
        targets: whether labels are ``classes``, ``numbers`` for a task such as regression, or what
            they look like (``auto``).
        options: of the source.

    Example:
        >>> load("digits", partition={"kind": "iid", "clients": 5}).clients
        5
    """
    table = {"kind": source} if isinstance(source, str) else source
    folder = None
    if root:
        folder = Path(root)
    # In three steps and not by `load_population`: a run folder needs the partition itself.
    samples = load_samples({**table, **options}, root=folder, targets=targets)
    key = Key(seed).of("data")
    parts = make_partition(samples, partition, key)
    population = populate(samples, parts, key)
    origin = DataOrigin(
        _data_table({**table, **options}, partition, root),
        seed,
        parts,
        tuple(samples.label_names),
    )
    # Frozen records set their own fields this way.
    object.__setattr__(population, "origin", origin)
    return population


def _data_table(
    source: Mapping[str, Any], partition: Mapping[str, Any], root: str | None
) -> dict[str, Any]:
    """``[data]`` of a configuration for the same data."""
    # Copies: a caller may use its tables again.
    table = dict(source)
    for alias in ("kind", "name"):
        if alias in table and "source" not in table:
            table["source"] = table.pop(alias)
    split = dict(partition)
    if "name" in split:
        split["kind"] = split.pop("name")
    table["partition"] = split
    if root:
        table["root"] = root
    return table
