"""The configuration to advise on, from a configuration file or from a bare file of samples.

What the columns of a bare file are for is named by the user, or guessed, which is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel

from coterie.config.schema import table_of, to_plain
from coterie.config.toml_text import put_all
from coterie.data.partition import read_npz
from coterie.data.rows.errors import missing_column
from coterie.data.rows.kinds import ARRAY, CATEGORY, EMPTY, IDENTIFIER, TEXT
from coterie.data.rows.reading import read_rows
from coterie.data.rows.table import Rows
from coterie.errors import ConfigError, DataError
from coterie.experiment import Experiment, check, load_config
from coterie.experiment.tables import record_types, table_names
from coterie.terminal import first_few, say

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
    """Read the configuration to advise on, or make one for a bare file of samples. Columns of the
    file that are not named are searched by their usual names. A value of ``None`` sets nothing."""
    if not is_bare(path):
        return load_config(path, assignments, values)
    if not path.is_file():
        expected = "a configuration, or a .parquet, .csv or .npz file"
        raise DataError("not-found", path, "no such file", allowed=expected)
    # Assignments come last: the user may choose another model or cohort.
    tables = _tables(path, columns)
    put_all(tables, assignments, values)
    return check(tables, str(path))


def _tables(path: Path, columns: Mapping[str, str | None]) -> dict[str, Any]:
    names = _names(path)
    client = _column(path, names, columns.get("client"), CLIENT_COLUMNS, "client")
    label = _column(path, names, columns.get("label"), LABEL_COLUMNS, "label")
    # What names a client, a class or a split is a number in many files, but no input.
    others = [name for name in names if name not in (client, label, SPLIT_COLUMN)]
    features = _named_features(path, names, columns.get("features"))
    if features is None:
        features = _taken(path, others)
    data = {
        "source": "file",
        "path": str(path.absolute()),
        "features": features,
        "label": label,
        "client": client,
        "partition": {"kind": "natural"},
    }
    # A single column may hold arrays, which are taken as they are, as those of an .npz file.
    if isinstance(features, list) and path.suffix != ".npz":
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
    # This table has a meaning even where it has its defaults.
    if resolved["data"].get("encode"):
        brief["data"].setdefault("encode", {"scaling": resolved["data"]["encode"]["scaling"]})
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
            value = table_of(type(value)).model_validate(to_plain(value))
        if isinstance(value, BaseModel):
            value = value.model_dump(mode="json", exclude_defaults=True)
        found[name] = to_plain(value)
    return {name: value for name, value in found.items() if value is not None}


def _differing(tables: Any, resolved: Any) -> Any:
    """Tables without what is ``None``, which TOML has not, and without empty tables."""
    if not isinstance(tables, Mapping):
        return resolved
    found = {name: _differing(tables[name], resolved[name]) for name in tables if name in resolved}
    return {name: value for name, value in found.items() if value != {}}


# --- the columns of a bare file -------------------------------------------------------------------

# Usual names of the columns of a bare file; the first that the file has is taken.
CLIENT_COLUMNS = (
    "client",
    "client_id",
    "user",
    "user_id",
    "site",
    "writer",
    "device",
    "node",
    "hospital",
    "patient",
    "subject",
    "station",
    "group_id",
)
LABEL_COLUMNS = ("y", "label", "labels", "target", "class", "outcome", "diagnosis")
FEATURE_COLUMNS = ("x", "image", "features", "pixels", "img")
SPLIT_COLUMN = "split"
# A text with another value in more rows than this share is a name of the row, and no category.
NAMES = 0.5
SHOWN = 60  # columns in a line: all of most tables, since a second label among them matters


def _names(path: Path) -> list[str]:
    """All columns."""
    if path.suffix == ".npz":
        return list(read_npz(path))
    return list(read_rows(path).names)


def _column(
    path: Path, names: Sequence[str], named: str | None, usual: Sequence[str], option: str
) -> str:
    """The column that the user named, or the first one of a usual name."""
    if named is not None:
        if named not in names:
            raise missing_column(str(path), named, names)
        return named
    found = _usual(names, usual)
    if found is None:
        where = f"--{option}"
        what = "no column has one of the usual names"
        expected = f"--{option} COLUMN"
        got = ", ".join(sorted(names)) or "no columns"
        raise ConfigError("not-found", where, what, found=got, allowed=expected)
    say(
        f"{option}: the column {found}, chosen by its name; use --{option} to select a different one"
    )
    return found


def _usual(names: Sequence[str], usual: Sequence[str]) -> str | None:
    """The first column of a usual name, or else of a name that has it as a word."""
    lowered = {name.lower(): name for name in reversed(names)}
    for name in usual:
        if name in lowered:
            return lowered[name]
    for name in usual:
        for column in names:
            # One letter, as of `y`, is a part of too many words.
            if len(name) > 1 and name in column.lower().replace("-", "_").split("_"):
                return column
    return None


def _named_features(path: Path, names: Sequence[str], named: str | None) -> str | list[str] | None:
    """The features that the user named, or a column of arrays of a usual name; ``None``: neither."""
    if named is not None:
        chosen = [name.strip() for name in named.split(",")]
        for name in chosen:
            if name not in names:
                raise missing_column(str(path), name, names)
        if len(chosen) == 1:
            return chosen[0]
        return chosen
    # A column of arrays (an image, a vector) has one of these names, as a rule.
    found = next((name for name in FEATURE_COLUMNS if name in names), None)
    if found is not None:
        say(
            f"features: the column {found}, chosen by its name; use --features to select different ones"
        )
    return found


def _taken(path: Path, others: Sequence[str]) -> list[str]:
    """All columns that can be inputs, in the order of the file."""
    if path.suffix == ".npz":
        arrays = read_npz(path)
        taken = [
            name for name in others if arrays[name].ndim == 1 and arrays[name].dtype.kind in "iufb"
        ]
        left = {name: "not one number per row" for name in others if name not in taken}
    else:
        rows = read_rows(path)
        left = {name: why for name in others if (why := _why_left(rows, name))}
        taken = [name for name in others if name not in left]
    if not taken:
        what = "no feature columns found"
        got = ", ".join(sorted(others))
        advice = "specify them with --features COLUMN[,...]"
        raise ConfigError("not-found", "--features", what, found=got, do=advice)
    say(f"features: {first_few(taken, SHOWN)}")
    if left:
        shown = first_few([f"{name} ({why})" for name, why in left.items()], SHOWN)
        say(f"left out: {shown}")
    return taken


def _why_left(rows: Rows, name: str) -> str:
    """Why a column is no input; empty for an input."""
    kind = rows.kind(name)
    if kind == ARRAY:
        return rows.type_of(name)
    if kind == EMPTY:
        return "no value"
    if kind in (CATEGORY, IDENTIFIER, TEXT):
        different = rows.frame[name].nunique()
        if different > NAMES * len(rows):
            return f"text with {different:,} different values"
    return ""
