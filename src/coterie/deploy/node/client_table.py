"""A client's own table: rows with columns of every kind, and what it reports of them.

The inputs of a network are made of the rows when the server has said how, by what all clients reported
(`coterie.deploy.server.agreement`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import FloatArray
from coterie.data.tabular.columns import open_table
from coterie.data.tabular.encoder import Encoder
from coterie.data.tabular.raw import Column, Encode, RawTable
from coterie.data.tabular.raw_columns import category_text, read_column
from coterie.data.tabular.reports import column_report
from coterie.deploy.node.client_data import ClientData, has_labels
from coterie.deploy.node.data_sources import is_unlabelled, rows_to_test
from coterie.deploy.node.node_source import is_database, read_query
from coterie.deploy.settings import DataForm
from coterie.errors import DataError

Rows = tuple[RawTable, NDArray[Any]]  # rows, and their labels
SUFFIXES = (".parquet", ".csv")


@dataclass(frozen=True, eq=False)
class ClientTable:
    """A client's own rows.

    Args:
        labelled: whether the rows have labels. Without them ``train`` has the rows, and zeros for
            labels, which nothing reads.
    """

    train: Rows
    test: Rows
    labelled: bool = True

    def report(self) -> FloatArray:
        """What the client reports of the columns of its training rows, float64
        ``[report_width]``."""
        table = self.train[0]
        return column_report(table, np.arange(len(table.values)))

    def encoded(self, encoder: Encoder, form: DataForm) -> ClientData:
        """The rows as inputs."""
        train = (encoder.encode(self.train[0]), self.train[1])
        if not self.labelled:
            return ClientData.of((train[0], None), None, form)
        test = (encoder.encode(self.test[0]), self.test[1])
        return ClientData.of(train, test, form)


def loaded_table(
    train: tuple[Any, Any], test: tuple[Any, Any] | None, form: DataForm, encode: Encode
) -> ClientTable:
    """The table that the user's ``load_client`` returned.

    Args:
        train: rows, a table of pandas or pyarrow, and labels: names of classes, or numbers; ``None`` for
            the labels of a client that has none.
        test: the same, or ``None``.
    """
    labelled = has_labels(train, test)
    first = _rows(train, form, encode)
    if test is None:
        table = RawTable(form.columns, np.empty((0, len(form.columns))), encode)
        return ClientTable(first, (table, first[1][:0]), labelled)
    return ClientTable(first, _rows(test, form, encode))


def _rows(pair: tuple[Any, Any], form: DataForm, encode: Encode) -> Rows:
    rows, labels = pair
    if isinstance(rows, RawTable):  # a share of a table for a trial
        if labels is None:
            labels = form.targets(len(rows.values)).numpy()
        return rows, np.asarray(labels)
    if not hasattr(rows, "column_names"):
        import pyarrow as pa

        rows = pa.Table.from_pandas(rows)
    values = [_column(rows, column) for column in form.columns]
    table = RawTable(form.columns, np.stack(values, axis=1), encode)
    if labels is None:
        return table, form.targets(len(table.values)).numpy()
    return table, _targets(labels, form)


def _column(rows: Any, known: Column) -> FloatArray:
    """The values of a column, categories as their places in those that the server names."""
    if known.name not in rows.column_names:
        got = ", ".join(rows.column_names)
        raise DataError(f"node: no column {known.name}, got {got}; expected it (deploy.toml)")
    own, values = read_column(rows[known.name], known.name, "node", known.kind)
    if known.kind != "category":
        return values
    # Places and not names travel on: all nodes have to mean the same category by a number.
    unknown = sorted(set(own.categories) - set(known.categories))
    if unknown:
        what = f"column {known.name}: a category that the server does not name, got {unknown[0]!r}"
        raise DataError(f"node: {what}; expected one of {', '.join(known.categories)}")
    places = np.array([known.categories.index(name) for name in own.categories], np.float64)
    # A missing value stays missing: the encoder knows what becomes of it.
    found = np.full(len(values), np.nan)
    present = ~np.isnan(values)
    found[present] = places[values[present].astype(np.int64)]
    return found


def _targets(labels: Sequence[Any], form: DataForm) -> NDArray[Any]:
    """Labels as places in the names of the classes; numbers as they are."""
    if form.numbers:
        return np.asarray(labels)
    names = [category_text(label) for label in labels]
    unknown = sorted({str(name) for name in names if name not in form.classes})
    if unknown:
        what = f"a label that is no class, got {unknown[0]!r}"
        raise DataError(f"node: {what}; expected one of {', '.join(form.classes)}")
    return np.array([form.classes.index(str(name)) for name in names], np.int64)


def read_client_table(
    path: Path, options: Mapping[str, Any], form: DataForm, encode: Encode
) -> ClientTable:
    """The rows of a node from its files, or from a database.

    A folder has ``train`` and optionally ``test``, as parquet or CSV. Of a single file, a fifth of the
    rows becomes test data. Rows without a label are left out, unless the client has no labels at all.

    Args:
        options: of the node: ``label`` names the column of labels; ``unlabelled`` says that there are
            none.
    """
    if is_unlabelled(options):
        return loaded_table((_rows_alone(path, options), None), None, form, encode)
    label = str(options.get("label", "label"))
    if is_database(str(options.get("data", ""))):
        table = _with_labels(read_query(options), "--query", label)
        return _divided(table, label, form, encode)
    path = path.expanduser()
    if not path.is_dir():
        return _divided(_labelled(path, label), label, form, encode)
    files = [path / f"{split}{suffix}" for split in ("train", "test") for suffix in SUFFIXES]
    present = [file for file in files if file.exists()]
    # In the order of `files`: a test file alone would come first here, and is no training data.
    if not present or present[0].stem != "train":
        raise DataError(f"{path}: no training rows; expected train.parquet or train.csv")
    pairs = [_pair(_labelled(file, label), label) for file in present]
    if len(pairs) == 1:
        return loaded_table(pairs[0], None, form, encode)
    return loaded_table(pairs[0], pairs[1], form, encode)


def _rows_alone(path: Path, options: Mapping[str, Any]) -> Any:
    """All rows of a client without labels, as a table of pyarrow."""
    if is_database(str(options.get("data", ""))):
        return read_query(options)
    path = path.expanduser()
    if not path.is_dir():
        return open_table(path)
    files = [path / f"train{suffix}" for suffix in SUFFIXES]
    present = [file for file in files if file.exists()]
    if not present:
        raise DataError(f"{path}: no rows; expected train.parquet or train.csv")
    return open_table(present[0])


def _divided(table: Any, label: str, form: DataForm, encode: Encode) -> ClientTable:
    """Rows without a split, of which a fifth becomes test data."""
    is_test = rows_to_test(len(table))
    train = _pair(table.filter(~is_test), label)
    return loaded_table(train, _pair(table.filter(is_test), label), form, encode)


def _pair(table: Any, label: str) -> tuple[Any, list[Any]]:
    return table, table[label].to_pylist()


def _labelled(file: Path, label: str) -> Any:
    """The rows of a file that have a label, as a table of pyarrow."""
    return _with_labels(open_table(file), str(file), label)


def _with_labels(table: Any, where: str, label: str) -> Any:
    """The rows of a table that have a label."""
    import pyarrow.compute as pc

    if label not in table.column_names:
        got = f"columns {', '.join(table.column_names)}"
        raise DataError(f"{where}: no labels, got {got}; expected {label!r}, or --unlabelled")
    return table.filter(pc.is_valid(table[label]))
