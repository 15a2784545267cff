"""From what a user has, a configuration or a bare file with a column of clients, to a
configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.config import RunConfig, check, load
from coterie.config.reading import put
from coterie.data.npz import read_npz
from coterie.data.sources.checks import missing_column
from coterie.errors import ConfigError, DataError

CLIENT = (
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
LABEL = ("y", "label", "labels", "target", "class")
FEATURES = ("x", "image", "features", "pixels", "img")
SPLIT = "split"
ROUNDS = 100  # of the configuration suggested for a bare file


def configuration(
    path: Path,
    assignments: Sequence[str] = (),
    values: Mapping[str, Any] = {},
    columns: Mapping[str, str | None] = {},
) -> RunConfig:
    """The configuration to advise on.

    Args:
        path: a ``.toml`` file, or a ``.parquet`` or ``.npz`` file of data.
        assignments: ``key=value``, each, as for ``coterie run``.
        values: key path -> value, set last.
        columns: for a file of data, ``client``, ``label`` and ``features`` by name; what is not
            named is looked for.

    Raises:
        ConfigError: with all that is wrong with a configuration.
        DataError: for a file without the columns.
    """
    if path.suffix not in (".parquet", ".npz"):
        return load(path, assignments, values)
    if not path.is_file():
        raise DataError(
            f"{path}: no such file, got nothing; expected a configuration, or a .parquet or .npz file"
        )
    tables = _tables(path, columns)
    for assignment in assignments:
        put(tables, assignment)
    for key, value in values.items():
        head, _, last = key.rpartition(".")
        if value is not None:
            tables.setdefault(head, {})[last] = value
    return check(tables, str(path))


def _tables(path: Path, columns: Mapping[str, str | None]) -> dict[str, Any]:
    numbers, names = _columns(path)
    client = _named(path, names, columns.get("client"), CLIENT, "client")
    label = _named(path, names, columns.get("label"), LABEL, "label")
    found = _features(path, names, numbers - {client, label, SPLIT}, columns.get("features"))
    source = {
        "source": "file",
        "path": str(path.absolute()),
        "features": found,
        "label": label,
        "client": client,
    }
    return {
        "data": {**source, "partition": {"kind": "natural"}},
        "model": {"name": "mclr"},
        "local": {"epochs": 5, "batch_size": 10},
        "train": {"rounds": ROUNDS, "clients_per_round": 1},
        "algorithm": {"name": "fedavg"},
    }


def _columns(path: Path) -> tuple[set[str], list[str]]:
    """The columns of numbers, and all of them."""
    if path.suffix == ".npz":
        arrays = read_npz(path)
        return {n for n, a in arrays.items() if a.ndim == 1 and a.dtype.kind in "iufb"}, list(
            arrays
        )
    import pyarrow.types as kinds

    every = {field.name: field.type for field in _schema(path)}
    simple = {
        n
        for n, t in every.items()
        if kinds.is_integer(t) or kinds.is_floating(t) or kinds.is_boolean(t)
    }
    return simple, list(every)


def _schema(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path}: cannot be read as parquet ({line})") from None


def _named(
    path: Path, names: Sequence[str], wanted: str | None, known: Sequence[str], what: str
) -> str:
    if wanted is not None:
        if wanted not in names:
            raise missing_column(path, wanted, names)
        return wanted
    found = next((name for name in known if name in names), None)
    if found is None:
        raise ConfigError(
            f"--{what}: no column that is called like one, got {', '.join(sorted(names)) or '(none)'}; "
            f"expected --{what} COLUMN"
        )
    return found


def _features(path: Path, names: Sequence[str], numbers: set[str], wanted: str | None) -> Any:
    if wanted is not None:
        chosen = [name.strip() for name in wanted.split(",")]
        for name in chosen:
            if name not in names:
                raise missing_column(path, name, names)
        if len(chosen) == 1:
            return chosen[0]
        return chosen
    found = next((name for name in FEATURES if name in names), None)
    if found is not None:
        return found
    if not numbers:
        raise ConfigError(
            f"--features: no column of features found, got {', '.join(sorted(names))}; expected --features COLUMN[,...]"
        )
    return [name for name in names if name in numbers]
