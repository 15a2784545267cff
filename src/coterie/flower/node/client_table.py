"""A client's own table: rows with columns of every kind, and what it reports of them.

The inputs of a network are made of the rows when the server has said how, by what all clients reported
(`coterie.flower.server.agreement`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from coterie.core.arrays import FloatArray
from coterie.data.rows.kinds import AS_TEXT, CATEGORY
from coterie.data.rows.reading import read_rows
from coterie.data.rows.table import Rows
from coterie.data.rows.texts import known_spelling
from coterie.data.sources.files import DataForm
from coterie.data.tabular.encoder import Encoder
from coterie.data.tabular.raw import Column, Encode, RawTable
from coterie.data.tabular.reports import column_report
from coterie.errors import DataError
from coterie.flower.node.client_data import ClientData, has_labels
from coterie.flower.node.data_sources import (
    is_unlabelled,
    label_of,
    labels_of,
    rows_to_test,
    split_files,
    with_labels,
)
from coterie.flower.node.node_source import is_database, read_query

LabelledRows = tuple[RawTable, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class ClientTable:
    """A client's own rows. Where they are not labelled, the labels of ``train`` are zeros, which
    nothing reads."""

    train: LabelledRows
    test: LabelledRows
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
    """
    labelled = has_labels(train, test)
    first = _rows(train, form, encode)
    if test is None:
        table = RawTable(form.table_columns, np.empty((0, len(form.columns))), encode)
        return ClientTable(first, (table, first[1][:0]), labelled)
    return ClientTable(first, _rows(test, form, encode))


def _rows(pair: tuple[Any, Any], form: DataForm, encode: Encode) -> LabelledRows:
    rows, labels = pair
    table = rows
    if not isinstance(rows, RawTable):  # not a share of a table for a trial
        rows = rows if isinstance(rows, Rows) else read_rows(rows, missing=form.missing)
        values = [_column(rows, column) for column in form.table_columns]
        table = RawTable(form.table_columns, np.stack(values, axis=1), encode)
    if labels is None:
        return table, form.targets(len(table.values)).numpy()
    if isinstance(pair[0], RawTable):
        return table, np.asarray(labels)
    where = rows.where if isinstance(rows, Rows) else "node"
    name = str(getattr(labels, "name", None) or "label")
    return table, labels_of(Rows(pd.DataFrame({name: labels}), where), name, form.classes)


def _column(rows: Rows, known: Column) -> FloatArray:
    """The values of a column, categories as their places in those that the server names."""
    if known.name not in rows.names:
        what = f"no column {known.name}"
        got = f"only {', '.join(rows.names)}"
        raise DataError("not-found", "node", what, found=got, allowed="all columns of deploy.toml")
    if known.kind != CATEGORY:
        values: FloatArray = rows.values(known.name, known.kind)
        return values
    codes, found = rows.factor(known.name)
    names = [known_spelling(name, known.categories) for name in found]
    # Places and not names travel on: all nodes have to mean the same category by a number.
    unknown = sorted(set(names) - set(known.categories))
    if unknown:
        what = f"column {known.name}: a category that the server does not list"
        expected = f"one of {', '.join(known.categories)}"
        raise DataError("unknown-choice", "node", what, got=unknown[0], allowed=expected)
    # A missing value stays missing: the encoder knows what becomes of it.
    places = [float(known.categories.index(name)) for name in names]
    return np.array([*places, np.nan])[codes]


def read_client_table(
    path: Path, options: Mapping[str, Any], form: DataForm, encode: Encode
) -> ClientTable:
    """The rows of a node from its files, or from a database.

    A folder has ``train`` and optionally ``test``, as parquet or CSV. Of a single file, a fifth of the
    rows becomes test data. Rows without a label are left out, unless the client has no labels at all.
    """
    texts = [column.name for column in form.table_columns if column.kind in AS_TEXT]
    label = label_of(options)
    if form.classes:
        texts.append(label)
    if is_database(str(options.get("data", ""))):
        found = [read_query(options, form.missing)]
    else:
        known = {column.name: column.categories for column in form.table_columns}
        known[label] = form.classes
        found = [
            read_rows(file, texts, known=known, missing=form.missing) for file in split_files(path)
        ]
    if is_unlabelled(options):
        return loaded_table((found[0], None), None, form, encode)
    found = [with_labels(rows, label, form.classes) for rows in found]
    if len(found) == 1 and not path.expanduser().is_dir():
        is_test = rows_to_test(len(found[0]))
        found = [found[0].kept(~is_test), found[0].kept(is_test)]
    pairs = [(rows, rows.frame[label]) for rows in found]
    return loaded_table(pairs[0], pairs[1] if len(pairs) > 1 else None, form, encode)
