"""Where a node's samples come from: the user's ``load_client``, parquet or CSV files, or for a trial a
share of a dataset. `coterie.deploy.node.node_source` has databases and images."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.data.tabular.arrow import open_csv
from coterie.errors import DataError

Pair = tuple[Any, Any]  # inputs [n, ...] and labels [n]
TEST_SHARE = 0.2


def is_unlabelled(options: Mapping[str, Any]) -> bool:
    """Whether a node's configuration says that its data have no labels.

    Example:
        >>> is_unlabelled({"data": "scans", "unlabelled": True}), is_unlabelled({"data": "scans"})
        (True, False)
    """
    # Said, and not seen by a missing column: a site that names the wrong column must not lose its
    # labels without a word.
    return options.get("unlabelled") in (True, "true")


def inputs_alone(loaded: tuple[Any, Any], options: Mapping[str, Any]) -> tuple[Any, Any]:
    """What ``load_client`` returned, without the labels that a node says it does not have.

    Example:
        >>> inputs_alone((([[1.0]], [0]), ([[2.0]], [1])), {"unlabelled": True})
        (([[1.0]], None), None)
    """
    train = loaded[0]
    if not is_unlabelled(options) or not isinstance(train, tuple | list):
        return loaded
    return (train[0], None), None


class NotNumbersError(DataError):
    """Columns that are no inputs by themselves, as those of a table."""


def load_function(file: Path) -> Callable[[Any], Any]:
    """The function ``load_client`` of a Python file."""
    # Not as `__main__`: what a user wrote there to try the file by hand is left out.
    try:
        found = runpy.run_path(str(file), run_name="client")
    except OSError as error:
        what = f"cannot be read ({error.strerror}), got no file"
        raise DataError(f"{file}: {what}; expected one with load_client") from None
    function = found.get("load_client")
    if not callable(function):
        expected = "load_client(context) -> (train, test)"
        raise DataError(f"{file}: no function load_client; expected {expected}")
    return function


# --- files ----------------------------------------------------------------------------------------


def read_files(path: Path, options: Mapping[str, Any]) -> tuple[Pair, Pair | None]:
    """Training and test samples from parquet or CSV files.

    A folder has ``train.parquet`` or ``train.csv``, and optionally ``test`` of the same kind. Of a
    single file, a fifth of the rows becomes test data. The column ``label`` holds whole numbers from
    0, names of classes, or the numbers or lists of another task. Inputs are a list of numbers in each
    row of the column ``x``, or else all other columns, one number each.

    Args:
        options: of the node: ``label`` and ``input`` name other columns; ``shape``, for example
            ``"8,8"``, reshapes flat rows; ``unlabelled`` says that there are no labels.

    Returns:
        ``None`` for the labels, and for the test samples, of a client without labels.
    """
    path = path.expanduser()
    if path.is_dir():
        kind = ".csv" if (path / "train.csv").exists() else ".parquet"
        train = _read_table(path / f"train{kind}", options)
        if is_unlabelled(options):
            return train, None
        test_file = path / f"test{kind}"
        if test_file.exists():
            return train, _read_table(test_file, options)
        # Empty, but of the shape that is asked of all inputs.
        return train, (train[0][:0], train[1][:0])
    return divide(*_read_table(path, options))


def divide(x: Any, y: Any) -> tuple[Pair, Pair | None]:
    """Samples without a split as training and test samples, a fifth of them; those without labels
    (``y`` is ``None``) as they are."""
    if y is None:
        return (x, None), None
    order, cut = _split(len(y))
    return (x[order[:cut]], y[order[:cut]]), (x[order[cut:]], y[order[cut:]])


def _split(rows: int) -> tuple[NDArray[np.int64], int]:
    """The rows of a file in the order in which they are divided, and how many are to train on."""
    # The same rows are test data whenever the file is read again: the key is its length.
    order = np.random.Generator(np.random.Philox(key=rows)).permutation(rows)
    return order, rows - int(TEST_SHARE * rows)


def rows_to_test(rows: int) -> NDArray[np.bool_]:
    """Which rows of a file without a split are test data, bool ``[rows]``."""
    order, cut = _split(rows)
    chosen = np.zeros(rows, bool)
    chosen[order[cut:]] = True
    return chosen


def _read_table(file: Path, options: Mapping[str, Any]) -> Pair:
    import pyarrow.parquet as parquet

    try:
        table = open_csv(file) if file.suffix == ".csv" else parquet.read_table(file)
    except (OSError, ValueError) as error:
        line = (str(error).splitlines() or [""])[0]
        raise DataError(f"{file}: cannot be read, got {line}; expected a parquet file") from None
    return pair_of_table(table, str(file), options)


def pair_of_table(table: Any, where: str, options: Mapping[str, Any]) -> Pair:
    """The inputs and labels of a table of pyarrow; ``None`` for the labels of a client without any.

    Raises:
        DataError: if it holds something else; `NotNumbersError` for columns of another kind.
    """
    label = str(options.get("label", "label"))
    unlabelled = is_unlabelled(options)
    if label not in table.column_names and not unlabelled:
        got = f"columns {', '.join(table.column_names)}"
        raise DataError(f"{where}: no labels, got {got}; expected {label!r}, or --unlabelled")
    names = _input_columns(table.column_names, options)
    try:
        inputs = _stack([table.column(name).to_pylist() for name in names])
        shape = _shape_option(options)
        if shape:
            inputs = inputs.reshape(len(inputs), *shape)
        if unlabelled:
            return inputs, None
        # Whether labels or numbers is known by the run, which checks them.
        return inputs, np.asarray(table.column(label).to_pylist())
    except (ValueError, TypeError) as error:
        expected = f"inputs in {', '.join(names)}"
        line = f"{where}: not numbers, got {error}; expected {expected}"
        raise NotNumbersError(line) from None


def _input_columns(columns: list[str], options: Mapping[str, Any]) -> list[str]:
    """The column that holds inputs as lists, or all columns but the labels'."""
    inputs = str(options.get("input", "x"))
    if inputs in columns:
        return [inputs]
    label = str(options.get("label", "label"))
    return [name for name in columns if name != label]


def _stack(columns: list[list[Any]]) -> np.ndarray:
    """Columns as inputs float32 ``[n, ...]``: one column of lists, or several of numbers."""
    arrays = [np.asarray(column, np.float32) for column in columns]
    if arrays[0].ndim > 1:
        return arrays[0]
    return np.stack(arrays, axis=1)


def _shape_option(options: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(int(size) for size in str(options.get("shape", "")).split(",") if size.strip())


# --- a share of a dataset -------------------------------------------------------------------------


def trial_share(config: str | Path | Mapping[str, Any], client: int) -> tuple[Pair, Pair]:
    """What a client holds in the simulation of a configuration, for a trial on one machine.

    Args:
        config: its file, or its tables.
        client: the client's number, from 0.

    Returns:
        ``(train, test)``, each inputs and labels.
    """
    # Imported here: a node with samples of its own needs none of this.
    from coterie.config.toml_text import read
    from coterie.experiment import check
    from coterie.runs.data import load_data

    if isinstance(config, str | Path):
        config = read(config)
    _, _, population = load_data(check(config))
    if not 0 <= client < population.clients:
        expected = f"0 to {population.clients - 1}"
        raise DataError(f"trial_share: no such client, got {client}; expected {expected}")

    def samples(rows: Any) -> Pair:
        rows = np.asarray(rows)
        table = population.table
        if table is None:
            return population.x[rows], population.y[rows]
        # As they were read: what becomes of columns follows from what the nodes report.
        values = table.raw.values[table.first[rows]]
        return replace(table.raw, values=values), population.y[rows]

    return samples(population.train[client]), samples(population.test[client])
