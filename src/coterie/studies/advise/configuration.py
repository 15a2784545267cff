"""The configuration to advise on, from a configuration file or from a bare file of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel

from coterie.config.schema import plain, table_of
from coterie.config.toml_text import put
from coterie.errors import DataError
from coterie.experiment import Experiment, check, load_config
from coterie.experiment.experiment import record_types, table_names
from coterie.studies.advise.columns import ChosenColumns
from coterie.terminal import say

DATA_FILES = (".parquet", ".csv", ".npz")

SUGGESTED_ROUNDS = 100  # of the configuration suggested for a bare file


def is_bare(path: Path) -> bool:
    """Whether a file holds samples, and no configuration."""
    return path.suffix in DATA_FILES


def configuration(
    path: Path,
    assignments: Sequence[str] = (),
    values: Mapping[str, Any] = {},
    columns: Mapping[str, str | None] = {},
) -> Experiment:
    """Read the configuration to advise on, or make one for a bare file of samples.

    Args:
        values: key path -> value, set last; ``None`` sets nothing.
        columns: of a bare file, the names for ``client``, ``label`` and ``features``. For those
            that are not named, columns of a usual name are searched.
    """
    if not is_bare(path):
        return load_config(path, assignments, values)
    if not path.is_file():
        expected = "a configuration, or a .parquet, .csv or .npz file"
        raise DataError(f"{path}: no such file, got nothing; expected {expected}")
    # Assignments come last: the user may choose another model or cohort.
    tables = _tables(path, columns)
    for assignment in assignments:
        put(tables, assignment)
    for key, value in values.items():
        table, _, last = key.rpartition(".")
        if value is not None:
            tables.setdefault(table, {})[last] = value
    return check(tables, str(path))


def _tables(path: Path, columns: Mapping[str, str | None]) -> dict[str, Any]:
    chosen = ChosenColumns.of(path, columns)
    for line in chosen.lines:
        say(line)
    data = {
        "source": "file",
        "path": str(path.absolute()),
        "features": chosen.features,
        "label": chosen.label,
        "client": chosen.client,
        "partition": {"kind": "natural"},
    }
    if chosen.scaled and path.suffix != ".npz":
        data["encode"] = {"scaling": "standard"}
    return {
        "data": data,
        # The smallest model: it trains in seconds, whatever the data are.
        "model": {"name": "mclr"},
        "local": {"epochs": 5, "batch_size": 10},
        # The cohort is chosen later, when the number of clients is known.
        "train": {"rounds": SUGGESTED_ROUNDS, "clients_per_round": 1},
        "algorithm": {"name": "fedavg"},
    }


# --- what is suggested ----------------------------------------------------------------------------

# A reader wants to see these, also where they have their defaults.
ESSENTIALS = {
    "local": ("epochs", "batch_size", "lr"),
    "train": ("rounds", "clients_per_round"),
}


def short_toml(config: Experiment) -> str:
    """A configuration as TOML, without what has its default: the seed, the essentials of training, and
    what differs."""
    resolved = config.resolved()
    tables = _differing(_changed(config), resolved)
    brief: dict[str, Any] = {"seed": config.seed}
    for name, keys in ESSENTIALS.items():
        brief[name] = {key: resolved[name][key] for key in keys}
    for name, table in tables.items():
        if isinstance(table, Mapping):
            brief[name] = {**brief.get(name, {}), **table}
        else:
            brief[name] = table
    # In the order in which all configurations have their tables.
    ordered = {name: brief[name] for name in resolved if name in brief}
    # Some defaults follow from other tables; where leaving one out changes the run, nothing is.
    if check(ordered, config.file).resolved() != resolved:
        ordered = resolved
    return tomli_w.dumps(ordered)


def _changed(config: Experiment) -> dict[str, Any]:
    """The tables without the keys that have their defaults."""
    found = {}
    for name in table_names():
        value = getattr(config, name)
        if name in record_types() and value is not None:
            value = table_of(type(value)).model_validate(plain(value))
        if isinstance(value, BaseModel):
            value = value.model_dump(mode="json", exclude_defaults=True)
        found[name] = plain(value)
    return {name: value for name, value in found.items() if value is not None}


def _differing(tables: Any, resolved: Any) -> Any:
    """Tables without what is ``None``, which TOML has not, and without empty tables."""
    if not isinstance(tables, Mapping):
        return resolved
    found = {name: _differing(tables[name], resolved[name]) for name in tables if name in resolved}
    return {name: value for name, value in found.items() if value != {}}
