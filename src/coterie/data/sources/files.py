"""The user's own data: a file, a dataset of the Hugging Face hub, or data that stay on their nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.data.samples import Samples, Targets
from coterie.data.sources.folders import find_file, find_folder
from coterie.data.tabular.columns import Columns, arrow_columns, open_columns
from coterie.data.tabular.raw import Encode, Window
from coterie.data.tabular.roles import Roles, finite, read_targets, train_rows_first
from coterie.data.tabular.tables import is_mixed, table_samples
from coterie.errors import DataError, first_line, install_command

# The column that says which split of the dataset a row is of.
SPLIT = "coterie_split"

ColumnOption = Literal["number", "boolean", "date"] | list[str]


def file(
    root: Path | None,
    *,
    path: str,
    features: str | list[str] = "x",
    label: str | list[str] = "y",
    client: str = "client",
    split: str = "split",
    shape: list[int] | None = None,
    encode: Encode | None = None,
    window: Window | None = None,
    targets: Targets = "classes",
) -> Samples:
    """Your own data: one .parquet, .csv or .npz file with features, labels and the client of each row.

    Labels, text or numbers, are mapped to ``0..c-1`` in sorted order; for a task of numbers they are
    kept as they are. ``uint8`` features and images
    are divided by 255. Columns of text, dates and missing values become numbers by what the clients
    report of them, see ``docs/tables.md``; columns of numbers alone stay as they are, unless
    ``encode`` or ``window`` is set.

    Args:
        path: the file.
        features: a column of lists, of image files (PNG or JPEG bytes) or of numbers; a list of
            columns of a table; or ``*`` for all columns of a table that have no other meaning.
        label: the column of labels; for several targets a list of columns, or one of lists.
        client: the column that names the client; it may be absent. The partition `natural` finds it
            as ``client``.
        split: a column with the values ``train`` and ``test``; without it, all rows are training
            rows.
        shape: shape of one input, where the file has it flat (``[1, 28, 28]``).
        encode: how columns of a table become numbers.
        window: for series: which rows are an input, and which one has its target.
        targets: whether labels are classes, numbers for a task such as regression, or whatever they
            look like.
    """
    place = find_file(path, root)
    if place is None:
        raise DataError(
            f"data.path: no such file, got {path}; expected a .parquet, .csv or .npz file"
        )
    columns = open_columns(place)
    roles = Roles(features, label, client, split)
    if encode is not None or window is not None:
        return table_samples(columns, roles, encode or Encode(), window, targets)
    samples = _samples_of_columns(columns, roles, shape, targets)
    return replace(samples, scaling="pixels are divided by 255, numbers are as in the file.")


def _samples_of_columns(
    columns: Columns, roles: Roles, shape: list[int] | None, targets: Targets
) -> Samples:
    """Samples of columns of any kind: inputs of numbers, lists or images, or a table."""
    if is_mixed(columns, roles.features):
        return table_samples(columns, roles, Encode(), None, targets)
    place = columns.path
    features = roles.features
    for name in [features] if isinstance(features, str) else features:
        columns.check(name, "features")
    y, names = read_targets(columns, roles.label, targets)
    # `Samples` has training rows first; everything that has a value per row is put in this order.
    order, train_rows = train_rows_first(columns, roles.split, len(y))
    if not features:
        raise DataError(f"data.features: got no column of {place.name}; expected at least one")
    x = finite(columns.features(features), place)
    if x.size == 0:
        raise DataError(f"{place}: features, got none in {len(x)} rows; expected at least one")
    x = _shaped(x, shape, len(y), place)
    extra = roles.owners(columns, order)
    if order is not None:
        x = x[order]
        y = y[order]
    return Samples(torch.from_numpy(x), torch.from_numpy(y), len(names), train_rows, extra, names)


def _shaped(
    x: NDArray[np.float32], shape: list[int] | None, rows: int, path: Path
) -> NDArray[np.float32]:
    """The inputs in the shape that the user named."""
    if len(x) != rows:
        raise DataError(
            f"{path}: {len(x)} rows of features, {rows} labels; expected as many of each"
        )
    if shape is None:
        return x
    if min(shape, default=0) < 1 or np.prod(shape) * rows != x.size:
        raise DataError(
            f"data.shape: got {shape}; expected {x.size // rows} values, as the file has"
        )
    return x.reshape(rows, *shape)


def hub(
    root: Path | None,
    *,
    id: str,
    subset: str | None = None,
    features: str | list[str] = "image",
    label: str | list[str] = "label",
    client: str = "client",
    targets: Targets = "classes",
) -> Samples:
    """A dataset of the Hugging Face hub: its columns of features, labels and clients.

    Columns are read as those of a file: images, lists of numbers, numbers, or with ``*`` all
    columns of a table. The split ``test`` is for testing where there is one; all rows of a dataset
    with one split are training rows.

    Args:
        root: a folder of this name in it, or in the current folder, is read in place of the hub.
        id: of the dataset, as ``ylecun/mnist``.
        subset: its configuration, where it has several.
        features: a column, a list of columns of a table, or ``*``.
        label: the column of labels; for several targets a list of columns, or one of lists.
        client: the column that names the client; it may be absent. The partition `natural` finds it
            as ``client``.
        targets: whether labels are classes, numbers, or whatever they look like.
    """
    # A folder of this name is read in its place.
    splits = _load(str(find_folder(id, root) or id), id, subset)
    table = _one_table(splits)
    columns = arrow_columns(table, Path(id))
    samples = _samples_of_columns(columns, Roles(features, label, client, SPLIT), None, targets)
    scaling = "pixels are divided by 255, numbers are as in the dataset."
    names = _class_names(next(iter(splits.values())), label)
    if len(names) != samples.classes:
        names = samples.label_names
    return replace(samples, label_names=names, scaling=scaling)


def _load(place: str, id: str, subset: str | None) -> dict[str, Any]:
    """The training split and, where there is one, the test split."""
    # Imported only here: the package is optional, and takes seconds.
    try:
        import datasets
    except ImportError:
        raise DataError(
            "data.source: hub needs the package 'datasets', which is not installed; expected "
            f"{install_command('hf')}"
        ) from None
    try:
        found = datasets.load_dataset(place, subset)
    except Exception as error:  # noqa: BLE001  the hub's client raises dozens of unrelated kinds
        line = first_line(error)
        raise DataError(f"data.id: {id} cannot be loaded ({line}), got {place!r}") from None
    known = list(found)
    # A dataset with one split has it under any name.
    if "train" not in known and len(known) > 1:
        raise DataError(f"data.id: {id} has no split 'train', got {', '.join(known)}")
    first = "train" if "train" in known else known[0]
    splits = {"train": found[first]}
    if "test" in known and first != "test":
        splits["test"] = found["test"]
    return splits


def _one_table(splits: dict[str, Any]) -> Any:
    """All rows as a table of pyarrow, with the column of their split where there are two."""
    import pyarrow as pa

    tables = []
    for name, rows in splits.items():
        # Without a format, columns stay as they are stored: images as their bytes.
        table = rows.with_format("arrow")[:]
        tables.append(table.append_column(SPLIT, pa.array([name] * len(table))))
    return pa.concat_tables(tables)


def _class_names(rows: Any, label: str | list[str]) -> tuple[str, ...]:
    """The names of the classes, where the dataset has them."""
    if not isinstance(label, str):
        return ()
    return tuple(getattr(rows.features.get(label), "names", None) or ())


def nodes(
    root: Path | None = None,
    *,
    shape: tuple[int, ...],
    classes: tuple[str, ...],
    target_shape: tuple[int, ...] = (),
    columns: dict[str, ColumnOption] | None = None,
    encode: Encode | None = None,
) -> Samples:
    """Data that stay on the clients of a real federation: for `coterie deploy` alone. A simulation
    has no such data, so this always raises.

    Args:
        shape: of one input.
        classes: their names, in the order of the labels; none where targets are numbers.
        target_shape: of the targets of one sample, where there are several.
        columns: of a table, by name: ``number``, ``boolean``, ``date``, or a list of categories; the
            shape is ``[]`` then.
        encode: how columns of a table become numbers.
    """
    raise DataError(
        f"data.source: the data stay on their nodes, got inputs of shape {list(shape)} "
        f"in {len(classes)} classes; expected `coterie deploy`, or another source"
    )
