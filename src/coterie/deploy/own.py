"""Where a node's samples come from: the user's ``load_client``, parquet files, or for a trial a
share of a dataset."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coterie.errors import DataError

Pair = tuple[Any, Any]
TEST_SHARE = 0.2


def load_function(file: Path) -> Callable[[Any], Any]:
    """The function ``load_client`` of a file.

    Raises:
        DataError: if there is none.
    """
    try:
        found = runpy.run_path(str(file), run_name="client")
    except OSError as error:
        raise DataError(
            f"{file}: cannot be read ({error.strerror}), got no file; expected one with load_client"
        ) from None
    function = found.get("load_client")
    if not callable(function):
        raise DataError(
            f"{file}: no function load_client, got none; expected load_client(context) -> (train, test)"
        )
    return function


def read_own(path: Path, given: Mapping[str, Any]) -> tuple[Pair, Pair]:
    """Samples from parquet: a folder with ``train.parquet`` and maybe ``test.parquet``, or one
    file, cut 80 to 20.

    The column ``label`` (or the node's ``label``) holds whole numbers from 0; the column ``x`` (or
    the node's ``input``) a list of numbers a row, or else all other columns are numbers.

    Args:
        path: the file or folder.
        given: the node's configuration; ``shape`` as ``"8,8"`` shapes flat rows.

    Raises:
        DataError: if it cannot be read, or holds something else.
    """
    path = path.expanduser()
    shape = tuple(int(n) for n in str(given.get("shape", "")).split(",") if n.strip())
    names = (str(given.get("input", "x")), str(given.get("label", "label")))
    if path.is_dir():
        train = _read(path / "train.parquet", *names, shape)
        test = path / "test.parquet"
        return train, _read(test, *names, shape) if test.exists() else (train[0][:0], train[1][:0])
    x, y = _read(path, *names, shape)
    order = np.random.Generator(np.random.Philox(key=len(y))).permutation(len(y))
    cut = len(y) - int(TEST_SHARE * len(y))
    return (x[order[:cut]], y[order[:cut]]), (x[order[cut:]], y[order[cut:]])


def _read(file: Path, inputs: str, label: str, shape: tuple[int, ...]) -> Pair:
    import pyarrow.parquet as parquet

    try:
        table = parquet.read_table(file)
    except (OSError, ValueError) as error:
        line = (str(error).splitlines() or [""])[0]
        raise DataError(f"{file}: cannot be read, got {line}; expected a parquet file") from None
    if label not in table.column_names:
        raise DataError(
            f"{file}: no labels, got columns {', '.join(table.column_names)}; expected {label!r}"
        )
    y = table.column(label).to_numpy()
    others = (
        [inputs]
        if inputs in table.column_names
        else [name for name in table.column_names if name != label]
    )
    try:
        columns = [np.asarray(table.column(name).to_pylist(), np.float32) for name in others]
        x = columns[0] if columns[0].ndim > 1 else np.stack(columns, axis=1)
        return x.reshape(len(y), *shape) if shape else x, y.astype(np.int64)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{file}: not numbers, got {error}; expected inputs in {', '.join(others)}"
        ) from None


def share(config: str | Path | Mapping[str, Any], client: int) -> tuple[Pair, Pair]:
    """For a trial: what client number ``client`` holds in the simulation of a configuration.

    Args:
        config: its file, or its tables.
        client: from 0.

    Returns:
        ``(train, test)``, each inputs and labels.

    Raises:
        DataError: if there is no such client.
    """
    from coterie.config import check
    from coterie.config.reading import read
    from coterie.runs.prepare import load_data

    tables = read(config) if isinstance(config, str | Path) else config
    _, _, population = load_data(check(tables))
    if not 0 <= client < population.clients:
        raise DataError(
            f"share: no such client, got {client}; expected 0 to {population.clients - 1}"
        )
    pair = []
    for held in (population.train[client], population.test[client]):
        rows = np.asarray(held)
        pair.append((population.x[rows], population.y[rows]))
    return pair[0], pair[1]
