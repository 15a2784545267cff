"""The configuration to advise on, from a configuration file or from a bare file of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.config import RunConfig, check, load_config
from coterie.config.reading import put
from coterie.data.npz import read_npz
from coterie.data.sources.checks import missing_column
from coterie.errors import ConfigError, DataError, first_line

DATA_FILES = (".parquet", ".npz")

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
    "group_id",
)
LABEL_COLUMNS = ("y", "label", "labels", "target", "class")
FEATURE_COLUMNS = ("x", "image", "features", "pixels", "img")
SPLIT_COLUMN = "split"

SUGGESTED_ROUNDS = 100  # of the configuration suggested for a bare file


def is_bare(path: Path) -> bool:
    """Whether a file holds samples, and no configuration."""
    return path.suffix in DATA_FILES


def configuration(
    path: Path,
    assignments: Sequence[str] = (),
    values: Mapping[str, Any] = {},
    columns: Mapping[str, str | None] = {},
) -> RunConfig:
    """Read the configuration to advise on, or make one for a bare file of samples.

    Args:
        path: a ``.toml`` file, or a ``.parquet`` or ``.npz`` file of samples.
        assignments: ``key=value``, each, as for ``coterie run``.
        values: key path -> value, set last; ``None`` sets nothing.
        columns: of a bare file, the names for ``client``, ``label`` and ``features``. For those
            that are not named, columns of a usual name are searched.

    Raises:
        ConfigError: with everything that is wrong with a configuration.
        DataError: for a file without the columns.
    """
    if not is_bare(path):
        return load_config(path, assignments, values)
    if not path.is_file():
        expected = "a configuration, or a .parquet or .npz file"
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
    numeric, names = _columns_of(path)
    client = _column(path, names, columns.get("client"), CLIENT_COLUMNS, "client")
    label = _column(path, names, columns.get("label"), LABEL_COLUMNS, "label")
    # What names a client, a class or a split is a number in many files, but no input.
    numeric -= {client, label, SPLIT_COLUMN}
    features = _feature_columns(path, names, numeric, columns.get("features"))
    data = {
        "source": "file",
        "path": str(path.absolute()),
        "features": features,
        "label": label,
        "client": client,
        "partition": {"kind": "natural"},
    }
    return {
        "data": data,
        # The smallest model: it trains in seconds, whatever the data are.
        "model": {"name": "mclr"},
        "local": {"epochs": 5, "batch_size": 10},
        # The cohort is chosen later, when the number of clients is known.
        "train": {"rounds": SUGGESTED_ROUNDS, "clients_per_round": 1},
        "algorithm": {"name": "fedavg"},
    }


def _columns_of(path: Path) -> tuple[set[str], list[str]]:
    """The columns with one number per sample, and all columns."""
    if path.suffix == ".npz":
        arrays = read_npz(path)
        numeric = {
            name for name, array in arrays.items() if array.ndim == 1 and array.dtype.kind in "iufb"
        }
        return numeric, list(arrays)
    import pyarrow.types as kinds

    # Only the schema is read: the samples may be large.
    types = {field.name: field.type for field in _schema(path)}
    numeric = {
        name
        for name, kind in types.items()
        if kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)
    }
    return numeric, list(types)


def _schema(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = first_line(error)
        raise DataError(f"{path}: cannot be read as parquet ({reason})") from None


def _column(
    path: Path, names: Sequence[str], named: str | None, usual: Sequence[str], option: str
) -> str:
    """The column that the user named, or the first one of a usual name."""
    if named is not None:
        if named not in names:
            raise missing_column(path, named, names)
        return named
    found = next((name for name in usual if name in names), None)
    if found is None:
        present = ", ".join(sorted(names)) or "(none)"
        raise ConfigError(
            f"--{option}: no column has a usual name for it, got {present}; "
            f"expected --{option} COLUMN"
        )
    return found


def _feature_columns(
    path: Path, names: Sequence[str], numeric: set[str], named: str | None
) -> str | list[str]:
    """The columns of features: those named, or one of a usual name, or all other numbers."""
    if named is not None:
        chosen = [name.strip() for name in named.split(",")]
        for name in chosen:
            if name not in names:
                raise missing_column(path, name, names)
        if len(chosen) == 1:
            return chosen[0]
        return chosen
    # A column of arrays (an image, a vector) has one of these names, as a rule.
    found = next((name for name in FEATURE_COLUMNS if name in names), None)
    if found is not None:
        return found
    if not numeric:
        present = ", ".join(sorted(names))
        raise ConfigError(
            f"--features: no column of features found, got {present}; "
            "expected --features COLUMN[,...]"
        )
    # In the order of the file, so that the same file gives the same inputs.
    return [name for name in names if name in numeric]
