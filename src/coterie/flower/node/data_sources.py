"""Where a node's samples come from: the user's ``load_client``, parquet or CSV files, or for a trial a
share of a dataset. `coterie.flower.node.node_source` has databases and images."""

from __future__ import annotations

import math
import runpy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.config.wording import nearest
from coterie.data.rows.arrays import float32_inputs, lists_of, plain_inputs
from coterie.data.rows.kinds import ARRAY, NUMBER
from coterie.data.rows.reading import SUFFIXES, read_rows
from coterie.data.rows.table import Rows
from coterie.data.rows.texts import is_number, known_spelling, words_are_missing
from coterie.errors import DataError
from coterie.terminal import counted, warn

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
        what = f"cannot be read ({error.strerror})"
        raise DataError("cannot-be-read", file, what, allowed="a file with load_client") from None
    function = found.get("load_client")
    if not callable(function):
        advice = "define load_client(context) -> (train, test)"
        raise DataError("missing", file, "no function load_client", do=advice)
    return function


# --- files ----------------------------------------------------------------------------------------


def read_files(
    path: Path,
    options: Mapping[str, Any],
    classes: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
) -> tuple[Pair, Pair | None]:
    """Training and test samples from parquet or CSV files.

    A folder has ``train.parquet`` or ``train.csv``, and optionally ``test`` of the same kind. Of a
    single file, a fifth of the rows becomes test data. The column ``label`` holds whole numbers from
    0, names of classes, or the numbers or lists of another task. Inputs are a list of numbers in each
    row of the column ``x``, or else all other columns, one number each, by their names.

    Args:
        options: the node's options: ``label`` and ``input`` name other columns; ``shape``, such as
            ``"8,8"``, reshapes flat rows; ``unlabelled`` says that there are no labels.
        classes: names of the classes; ``None`` where they are not known.
        features: the columns of inputs, in the order that all nodes have; ``None`` where the server was
            not asked.

    Returns:
        ``None`` for the labels, and for the test samples, of a client without labels.
    """
    known = {label_of(options): classes} if classes else {}
    files = [read_rows(file, list(known), known=known) for file in split_files(path)]
    pairs = [pair_of_rows(rows, options, classes, features) for rows in files]
    names = [input_columns(rows, options, features) for rows in files]
    if len(names) > 1 and names[0] != names[1]:
        what = f"columns that differ from those in {files[0].name}"
        got = ", ".join(names[1])
        raise DataError("differs", files[1].where, what, found=got, allowed=", ".join(names[0]))
    train = pairs[0]
    if not path.expanduser().is_dir():
        return divide(*train)
    if train[1] is None:
        return train, None
    # Empty, but of the shape that is asked of all inputs.
    return train, pairs[1] if len(pairs) > 1 else (train[0][:0], train[1][:0])


def split_files(path: Path) -> list[Path]:
    """The file of a node; of a folder its training file, and its test file where there is one."""
    path = path.expanduser()
    if not path.is_dir():
        return [path]
    found = []
    for split in ("train", "test"):
        present = sorted(one for one in path.glob(f"{split}.*") if one.suffix.lower() in SUFFIXES)
        if not present and split == "train":
            expected = "train.parquet or train.csv"
            raise DataError("missing", path, "no training rows", allowed=expected)
        found += present[:1]
    return found


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


def label_of(options: Mapping[str, Any]) -> str:
    """The column of a node's labels."""
    return str(options.get("label", "label"))


def with_labels(rows: Rows, label: str, classes: Sequence[str] | None) -> Rows:
    """The rows that have a label; a warning says how many have none.

    Args:
        classes: names of the classes; none of numbers, ``None`` where it is not known.
    """
    if label not in rows.names:
        got = f"columns {', '.join(rows.names)}"
        expected = f"{label!r}, another column as --label, or --unlabelled"
        hint = nearest(label, rows.names)
        raise DataError("missing", rows.where, "no labels", found=got, allowed=expected, hint=hint)
    if rows.kind(label) == ARRAY:
        return rows
    if rows.kind(label) == NUMBER or (classes and words_are_missing(classes)):
        rows = rows.with_number_texts(label)
    present = rows.present(label, NUMBER if _are_numbers(classes) else None)
    lost = int((~present).sum())
    if lost:
        warn(f"{rows.name}: left out {counted(lost, 'row')} without {label}")
    return rows.kept(present)


def _are_numbers(classes: Sequence[str] | None) -> bool:
    """Whether labels are known to be numbers, and not classes."""
    return classes is not None and not len(classes)


def pair_of_rows(
    rows: Rows,
    options: Mapping[str, Any],
    classes: Sequence[str] | None,
    features: Sequence[str] | None = None,
) -> Pair:
    """The inputs and labels of a table; ``None`` for the labels of a client without any.

    Raises:
        DataError: if it holds something else; `NotNumbersError` for columns of another kind.
    """
    label = label_of(options)
    unlabelled = is_unlabelled(options)
    if not unlabelled:
        rows = with_labels(rows, label, classes)
    columns = input_columns(rows, options, features)
    names = columns[0] if len(columns) == 1 else columns
    try:
        inputs = plain_inputs(rows, names)
    except DataError as error:
        raise NotNumbersError.of(error.problems) from None
    inputs = float32_inputs(inputs, rows.where, names)
    said = str(options.get("shape", ""))
    sizes = [size.strip() for size in said.split(",") if size.strip()]
    if not all(size.isdecimal() and int(size) for size in sizes):
        raise DataError("wrong-type", "--shape", got=said, allowed="numbers from 1, such as 8,8")
    shape = tuple(map(int, sizes))
    if shape:
        if math.prod(shape) != math.prod(inputs.shape[1:]):
            got = f"{math.prod(inputs.shape[1:])} values per row"
            expected = f"--shape {options['shape']}"
            raise DataError("wrong-shape", rows.where, found=got, allowed=expected)
        inputs = inputs.reshape(len(inputs), *shape)
    if unlabelled:
        return inputs, None
    return inputs, labels_of(rows, label, classes)


def input_columns(
    rows: Rows, options: Mapping[str, Any], features: Sequence[str] | None
) -> list[str]:
    """The column that holds inputs as lists, or the columns of numbers in the order of all nodes."""
    if features:
        for name in features:
            rows.column(name)
        return list(features)
    inputs = str(options.get("input", "x"))
    if inputs in rows.names:
        return [inputs]
    # By name: the order in a file says nothing.
    names = sorted(name for name in rows.names if name != label_of(options))
    if features is not None and len(names) > 1:
        what = "inputs are columns, but the server does not list their names"
        expected = f"features = [...] in deploy.toml, or a column {inputs!r}"
        raise DataError("does-not-fit", rows.where, what, found=", ".join(names), allowed=expected)
    return names


def labels_of(rows: Rows, label: str, classes: Sequence[str] | None) -> NDArray[Any]:
    """Labels as places in the names of the classes, where they are named; numbers as they are."""
    found: NDArray[Any]
    if rows.kind(label) == ARRAY:
        found = lists_of(rows, label)
        return found
    if _are_numbers(classes):
        return _whole(rows.numbers(label))
    codes, names = rows.factor(label)
    if not classes:
        # Whether labels or numbers is known by the run, which checks them.
        if all(map(is_number, names)):
            return _whole(rows.numbers(label))
        found = rows.texts(label)
        return found
    spelled = [known_spelling(name, classes) for name in names]
    unknown = [name for name in spelled if name not in classes]
    if not unknown:
        return np.array([classes.index(name) for name in spelled], np.int64)[codes]
    # Whole numbers may be places, where no class has a number for its name.
    if all(map(is_number, names)) and not any(map(is_number, classes)):
        return _whole(rows.numbers(label))
    raise not_a_class(unknown[0], classes)


def not_a_class(label: str, classes: Sequence[str]) -> DataError:
    """The error for a label that names no class of the federation."""
    expected = f"one of {', '.join(classes)}"
    what = "a label that is not a class"
    return DataError("unknown-choice", "node", what, got=label, allowed=expected)


def _whole(numbers: NDArray[np.float64]) -> NDArray[Any]:
    """Whole numbers as such."""
    if (numbers == np.round(numbers)).all():
        return numbers.astype(np.int64)
    return numbers


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
        raise DataError("not-found", "client", found=client, allowed=expected)

    def samples(rows: Any) -> Pair:
        rows = np.asarray(rows)
        table = population.table
        if table is None:
            return population.x[rows], population.y[rows]
        # As they were read: what becomes of columns follows from what the nodes report.
        values = table.raw.values[table.first[rows]]
        return replace(table.raw, values=values), population.y[rows]

    return samples(population.train[client]), samples(population.test[client])
