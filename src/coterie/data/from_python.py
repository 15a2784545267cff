"""Data from Python: a source and its partition, or a frame, in one call."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from coterie.config.arguments import refuse_arguments, validated
from coterie.config.choice_tables import completed
from coterie.config.registry import find
from coterie.config.schema import Seed, python_values
from coterie.core import Key
from coterie.data.loading import load_samples, make_partition, populate
from coterie.data.population import FRAME, DataOrigin, Population
from coterie.data.rows.reading import frame_columns
from coterie.data.samples import Targets
from coterie.data.tabular.tables import ALL
from coterie.errors import ConfigError

# The name of a choice, or a table of its name and its options, as a configuration has it.
Choice = str | Mapping[str, Any]
Table = Mapping[str, Any]


def load(
    source: Choice | Any = "digits",
    *,
    partition: Table | None = None,
    seed: Seed = 0,
    root: str | PathLike[str] | None = None,
    targets: Targets = "auto",
    **options: Any,
) -> Population:
    """Load a dataset and divide it among clients.

    Args:
        source: a name from ``coterie list datasets``; ``module:factory``, which returns a
            population or samples; a table of ``source`` and options, for example for a source with
            its own seed, ``{"source": "synthetic", "seed": 1}``; or a pandas DataFrame, or a table
            of pyarrow or Polars, with the options of the source ``file``. Without ``features``,
            inputs come from the column ``x``, or else from all columns that have no other role. The
            folder of a run on such a table contains its inputs.
        partition: ``kind`` and its parameters. Without it, the column ``client`` says which client
            a row belongs to; this works for a DataFrame, and if the option ``client`` is given.
        seed: the seed of the partition.
        root: folder of the datasets; default the environment variable ``COTERIE_DATA``.
        targets: whether labels are ``classes``, ``numbers`` for a task such as regression, or
            determined from their values (``auto``).
        options: options of the source.

    Example:
        >>> load("digits", partition={"kind": "iid", "clients": 5}).clients
        5
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"age": range(40), "ward": ["a", "b"] * 20, "ill": [0, 1, 1, 0] * 10})
        >>> load(frame, features="*", label="ill", partition={"kind": "iid", "clients": 2}).shape
        (3,)
    """
    table = data_table(source)
    given = {"partition": partition, "root": root}
    given = {name: value for name, value in given.items() if value is not None} | options
    twice = [name for name in given if name in table]
    refuse_arguments(twice, given, "either a key of the table or an argument")
    return population_of({**table, **given}, seed, targets)


def data_table(data: Any) -> dict[str, Any]:
    """``[data]`` as a table, if the source stands alone."""
    return dict(data) if isinstance(data, Mapping) else {"source": data}


def population_of(table: Mapping[str, Any], seed: int, targets: Targets) -> Population:
    """The population of the table ``[data]``, whose source may be a frame."""
    frame = table.get("source")
    names = frame_columns(frame)
    if names is None:
        if not isinstance(frame, str):
            allowed = "a name, a table of options, or a DataFrame"
            raise ConfigError("wrong-type", "source", got=frame, allowed=allowed)
        named = completed(python_values(table))
        frame = None
    else:
        if "path" in table:
            what = "both a path and a DataFrame"
            expected = "one source"
            raise ConfigError("in-conflict", "data.path", what, got=table["path"], allowed=expected)
        features = "x" if "x" in names else ALL
        table = {"features": features, "partition": {"kind": "natural"}, **table, "source": "file"}
        named = {**completed(python_values(table)), "path": FRAME}
    partition = named.pop("partition", None)
    return _loaded(named, partition, named.pop("root", None), seed, targets, frame)


@validated
def _loaded(
    table: Table,
    partition: Table | None,
    root: str | None,
    seed: Seed,
    targets: Targets,
    frame: Any,
) -> Population:
    """The population of a source and a partition, which knows what it was made from."""
    if partition is None:
        allowed = "a table, such as {'kind': 'iid'}, or client=COLUMN"
        raise ConfigError("missing", "partition", allowed=allowed)
    reads_targets = "targets" in inspect.signature(find("source", table["source"])).parameters
    if targets != "auto" and not reads_targets:
        what = f"{table['source']} has targets of one kind only"
        raise ConfigError("does-not-fit", "targets", what, got=targets, do="leave it out")
    folder = None if root is None else Path(root)
    # In three steps and not by `load_population`: a run folder needs the partition itself.
    samples = load_samples(table, root=folder, targets=targets, frame=frame)
    key = Key(seed).of("data")
    parts = make_partition(samples, partition, key)
    population = populate(samples, parts)
    named = {**table, "partition": partition}
    if root is not None:
        named["root"] = root
    labels = tuple(samples.label_names)
    origin = DataOrigin(named, seed, parts, labels, reads_targets, samples.booleans)
    # Frozen records set their own fields this way.
    object.__setattr__(population, "origin", origin)
    return population
