"""The user's own data: a file, a dataset of the Hugging Face hub, or data that stay on their nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.config.schema import Count, takes_fields_of
from coterie.data.images.pixels import unit
from coterie.data.partition import read_npz
from coterie.data.rows.arrays import float32_inputs, plain_inputs
from coterie.data.rows.errors import missing_column
from coterie.data.rows.kinds import ARRAY, BOOLEAN, CATEGORY, NUMBER
from coterie.data.rows.reading import SUFFIXES
from coterie.data.rows.table import Rows
from coterie.data.samples import Samples, Targets
from coterie.data.sources.folders import find_file, find_folder, hub_splits, hub_table, is_saved
from coterie.data.tabular.arrow import image_pixels, is_images
from coterie.data.tabular.encoder import Encoder
from coterie.data.tabular.notes import described_columns, notes_on_values, row_numbers
from coterie.data.tabular.raw import Column, ColumnKind, Encode, Window
from coterie.data.tabular.roles import Roles, complete, read_targets, train_rows_first
from coterie.data.tabular.tables import ALL, is_mixed, table_samples
from coterie.data.tabular.training_rows import read_training_rows
from coterie.errors import DataError
from coterie.terminal import first_few, warn

# The column that says which split of the dataset a row is of.
SPLIT = "coterie_split"


def file(
    root: Path | None,
    *,
    path: str | list[str],
    features: str | list[str] = "x",
    label: str | list[str] = "y",
    client: str = "client",
    split: str = "split",
    shape: list[int] | None = None,
    columns: dict[str, ColumnKind] | None = None,
    missing: list[str] | None = None,
    encode: Encode | None = None,
    window: Window | None = None,
    targets: Targets = "classes",
    frame: Any = None,
) -> Samples:
    """Your own data: .parquet, .csv or .npz with features, labels and the client of each row.

    Labels, text or numbers, are mapped to ``0..c-1`` in sorted order; for a task with numbers they
    are unchanged. Images and lists of ``uint8`` are divided by 255. Columns of text, times and
    missing values are converted to numbers with what the clients report about them, see
    ``docs/tables.md``; columns of numbers alone are unchanged, unless ``encode`` or ``window`` is
    set.

    Args:
        path: the file; or a list of .parquet and .csv files, or a folder of them, with the rows of
            one federation.
        features: a column of lists, of image files (PNG or JPEG bytes) or of numbers; a list of
            columns of a table; or ``*`` for all columns of a table that have no other meaning.
        label: the column of labels; for several targets a list of columns, or one of lists.
        client: the column that names the client; it may be absent. The partition `natural` finds it
            as ``client``. ``(file)``: the name of the file that a row is in.
        split: a column with the values ``train`` and ``test``; without it, all rows are training
            rows.
        shape: shape of one input, if the file contains it flat (``[1, 28, 28]``).
        columns: kinds of columns, where they are not determined correctly: ``category``,
            ``number``, ``boolean``, ``time``; ``identifier`` and ``text`` are not inputs.
        missing: further words for missing values, such as ``["unknown", "-999"]``, in every column.
        encode: how columns of a table are converted to numbers.
        window: for series: which rows are an input, and which one has its target.
        targets: whether labels are classes, numbers for a task such as regression, or determined
            from their values.
        frame: a pandas DataFrame, or a table of pyarrow or Polars, in place of the file.
    """
    options = {
        "path": path,
        "features": features,
        "label": label,
        "client": client,
        "split": split,
        "columns": columns,
        "missing": missing,
        "encode": encode,
        "window": window,
    }
    found = read_file(root, options, targets, frame)
    return found.samples(shape)


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of `file`, and the kinds of its columns."""

    rows: Rows
    kinds: Mapping[str, str]
    roles: Roles
    encode: Encode | None
    window: Window | None
    targets: Targets

    def samples(self, shape: list[int] | None = None) -> Samples:
        if self.encode is not None or self.window is not None:
            encode = self.encode or Encode()
            return table_samples(
                self.rows, self.kinds, self.roles, encode, self.window, self.targets
            )
        samples = _samples_of_rows(self.rows, self.kinds, self.roles, shape, self.targets)
        return replace(samples, scaling="pixels are divided by 255, numbers are as in the file.")

    def described(self, targets: Targets) -> list[tuple[str, str, str]]:
        """Each column, its kind and why; none of arrays, whose columns have no kinds."""
        if Path(self.rows.where).suffix.lower() == ".npz":
            return []
        said = dict.fromkeys(self.roles.labels, "the label") | {self.roles.split: "train or test"}
        said |= {self.roles.client: "the client"}
        if self.window is not None:
            said[self.window.time] = "the time"
        kinds = dict(self.kinds)
        if targets == "numbers":
            kinds |= dict.fromkeys(self.roles.labels, NUMBER)
        return described_columns(self.rows, kinds, said)


def read_file(
    root: Path | None, options: Mapping[str, Any], targets: Targets, frame: Any = None
) -> FileRows:
    """The rows of `file` with its options."""
    roles = Roles(*(options[name] for name in ("features", "label", "client", "split")))
    columns = options["columns"] or {}
    encode = options["encode"]
    window = options["window"]
    places = [frame] if frame is not None else _places(options["path"], root)
    if frame is not None and (window is not None or (encode is not None and encode.noise)):
        what = "series, and reports with noise, need a file"
        allowed = "the path of a file, such as one from frame.to_parquet(...)"
        raise DataError("in-conflict", "data", what, found="data is a DataFrame", allowed=allowed)
    if frame is None and places[0].suffix.lower() == ".npz":
        if encode is not None or window is not None:
            what = "[data.encode] and [data.window] are for tables"
            raise DataError(
                "does-not-fit", "data.path", what, found=places[0].name, allowed=".parquet or .csv"
            )
        rows = _rows_of_arrays(places[0], roles)
        kinds = roles.kinds(targets)
    else:
        # What is forecast is a number.
        known = roles.kinds("numbers" if window is not None else targets)
        known |= dict.fromkeys((encode or Encode()).categories, CATEGORY) | dict(columns)
        time = window.time if window else None
        used = None
        if roles.features != ALL:
            named = [roles.features] if isinstance(roles.features, str) else roles.features
            used = {*named, *roles.kinds(targets), time or ""}
        left_out = (encode or Encode()).leave_out
        missing = options["missing"] or ()
        rows, kinds = read_training_rows(places, known, time, used, roles.labels, left_out, missing)
        for name in columns:
            rows.column(name, "columns")
    return FileRows(rows, kinds, roles, encode, window, targets)


def _places(path: str | list[str], root: Path | None) -> list[Path]:
    """The files of a path, of several, or of a folder."""
    found = []
    for one in [path] if isinstance(path, str) else path:
        folder = find_folder(one, root)
        if folder is not None:
            # What is hidden is left out, such as the ._a.csv that macOS leaves.
            every = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
            inside = [each for each in every if each.suffix.lower() in SUFFIXES]
            others = [each.name for each in every if each.suffix.lower() not in SUFFIXES]
            if others and inside:
                shown = first_few(others)
                warn(f"{folder.name}: skipped files that are neither .parquet nor .csv: {shown}")
            if not inside and is_saved(folder):
                what = "a folder of the package datasets"
                do = "read it with source = 'hub' and id = its path"
                raise DataError("wrong-type", "data.path", what, found=one, do=do)
            if not inside:
                what = "no .parquet or .csv file in the folder"
                raise DataError("not-found", "data.path", what, found=one)
            found += inside
            continue
        place = find_file(one, root)
        if place is None:
            expected = "a .parquet, .csv or .npz file"
            raise DataError("not-found", "data.path", found=one, allowed=expected)
        found.append(place)
    if not found:
        raise DataError("missing", "data.path", allowed="at least one file")
    return found


def _samples_of_rows(
    rows: Rows, kinds: Mapping[str, str], roles: Roles, shape: list[int] | None, targets: Targets
) -> Samples:
    """Samples of columns of any kind: inputs of numbers, lists or images, or a table."""
    if is_mixed(rows, roles.features, kinds):
        return table_samples(rows, kinds, roles, Encode(), None, targets)
    features = roles.features
    roles.named_features(rows)
    if not features:
        what = f"no column of {rows.name}"
        raise DataError("missing", "data.features", what, allowed="at least one")
    kept = complete(rows, kinds, roles.required(rows))
    roled = [name for name in roles.kinds(targets) if name in rows.names]
    used = {name: kinds[name] for name in roled if rows.kind(name) != ARRAY}
    lines = [*rows.lines, *notes_on_values(rows, used, (*roles.labels, roles.split))[0]]
    if not isinstance(features, str):
        lines += row_numbers(rows, features)
    for line in lines:
        warn(line)
    # Of all rows: images are cached for the whole file.
    x = _shaped(_inputs(rows, features, kinds), shape, rows.where)
    rows = rows.kept(kept)
    y, names = read_targets(rows, roles.label, targets)
    # `Samples` has training rows first; everything that has a value per row is put in this order.
    order, train_rows = train_rows_first(rows, roles.split)
    owners = {name: values[order] for name, values in roles.owners(rows).items()}
    if len(order) < len(x) or roles.split in rows.names:
        x = x[np.flatnonzero(kept)[order]]
    inputs = [features] if isinstance(features, str) else features
    return Samples(
        torch.from_numpy(x),
        torch.from_numpy(y[order]),
        len(names),
        train_rows,
        owners,
        names,
        booleans=tuple(name for name in inputs if kinds.get(name) == BOOLEAN),
    )


def _inputs(rows: Rows, features: str | list[str], kinds: Mapping[str, str]) -> NDArray[np.float32]:
    if isinstance(features, str) and is_images(rows.frame[features]):
        return unit(image_pixels(rows, features))
    x = float32_inputs(plain_inputs(rows, features, kinds), rows.where, features)
    if x.size == 0:
        what = f"no feature has a value in {len(x)} rows"
        raise DataError("missing", rows.where, what)
    return x


def _rows_of_arrays(path: Path, roles: Roles) -> Rows:
    """The arrays of an npz file as columns, those of several dimensions as lists."""
    # All arrays at once, so that a damaged one is found before anything is computed.
    arrays = read_npz(path)
    labels = arrays.get(roles.labels[0])
    if labels is None or not labels.ndim:
        raise missing_column(str(path), roles.labels[0], arrays, "label")
    columns = {}
    for name, array in arrays.items():
        if array.ndim and len(array) == len(labels):
            columns[name] = pd.Series(array if array.ndim == 1 else list(array))
        elif name == roles.features:
            raise _wrong_length(path, "rows of features", array, labels)
        elif name in (roles.client, roles.split):
            raise _wrong_length(path, f"values of {name}", array, labels)
    return Rows(pd.DataFrame(columns), str(path))


def _wrong_length(path: Path, values: str, array: Any, labels: Any) -> DataError:
    what = f"{len(array)} {values}, {len(labels)} labels"
    return DataError("wrong-shape", path, what, allowed="the same number of each")


def _shaped(x: NDArray[np.float32], shape: list[int] | None, where: str) -> NDArray[np.float32]:
    """The inputs in the shape that the user named."""
    if shape is None:
        return x
    if min(shape, default=0) < 1 or np.prod(shape) * len(x) != x.size:
        expected = f"{x.size // len(x)} values, as in the file"
        raise DataError("wrong-shape", "data.shape", found=shape, allowed=expected)
    return x.reshape(len(x), *shape)


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
    columns of a table. The split ``test``, if there is one, is used for testing; all rows of a
    dataset with one split are training rows.

    Args:
        root: if it or the current folder contains a folder of this name, that folder is read in
            place of the Hub.
        id: the identifier of the dataset, such as ``ylecun/mnist``; or a folder that
            ``save_to_disk`` wrote, which is read without that package.
        subset: the configuration of the dataset, if it has several.
        features: a column, a list of columns of a table, or ``*``.
        label: the column of labels; for several targets a list of columns, or one of lists.
        client: the column that names the client; it may be absent. The partition `natural` finds it
            as ``client``.
        targets: whether labels are classes, numbers, or determined from their values.
    """
    # A folder of this name is read in its place.
    place = str(find_folder(id, root) or id)
    splits = _train_and_test(hub_splits(place, subset, "data.id"), id)
    table = _one_table(splits)
    roles = Roles(features, label, client, SPLIT)
    rows, kinds = read_training_rows([table], roles.kinds(targets), labels=roles.labels)
    samples = _samples_of_rows(replace(rows, where=id), kinds, roles, None, targets)
    scaling = "pixels are divided by 255, numbers are as in the dataset."
    names = samples.label_names
    if isinstance(label, str):
        # The dataset may have names of its classes.
        said = getattr(splits["train"].features.get(label), "names", None) or ()
        names = tuple(said) if len(said) == samples.classes else names
    return replace(samples, label_names=names, scaling=scaling)


def _train_and_test(found: Mapping[str, Any], id: str) -> dict[str, Any]:
    """The training split and, where there is one, the test split."""
    known = list(found)
    # A dataset with one split has it under any name.
    if "train" not in known and len(known) > 1:
        raise DataError(
            "missing", "data.id", f"{id} has no split 'train'", found=f"only {', '.join(known)}"
        )
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
        table = hub_table(rows)
        tables.append(table.append_column(SPLIT, pa.array([name] * len(table))))
    return pa.concat_tables(tables)


# --- data of nodes --------------------------------------------------------------------------------

# Of nodes: a kind, or the names of all categories.
ColumnOption = ColumnKind | list[str]


@dataclass(frozen=True, slots=True)
class DataForm:
    """What the samples of all clients of a real federation have in common.

    Args:
        shape: the shape of one input.
        classes: the names of the classes, or of the tokens, in order; none where targets are numbers.
        target_shape: the shape of the targets of one sample, if there are several.
        features: the columns of numbers that are the inputs, in their order, where the data of nodes
            have a column for each; names are compared, and no places.
        columns: the columns of a table, by name: ``number``, ``boolean``, ``time``, or a list of
            categories. The shape is ``()`` then, since the inputs are made of them.
        missing: further words for missing values in these columns, and in that of labels.

    Example:
        >>> DataForm((8,), ("cat", "dog")).targets(3).dtype, DataForm((8,), (), (2,)).targets(3).shape
        (torch.int64, torch.Size([3, 2]))
    """

    shape: tuple[Count, ...]
    classes: tuple[str, ...]
    target_shape: tuple[Count, ...] = ()
    features: tuple[str, ...] = ()
    columns: dict[str, ColumnOption] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def numbers(self) -> bool:
        """Whether targets are numbers, and not labels or tokens."""
        return not self.classes

    @property
    def table_columns(self) -> tuple[Column, ...]:
        """The columns of a table of which inputs are made."""
        return tuple(_column(name, kind) for name, kind in self.columns.items())

    def targets(self, n: int) -> Tensor:
        """Zeros in the form of the targets of ``n`` samples, float32 or int64 ``[n, ...]``."""
        dtype = torch.float32 if self.numbers else torch.int64
        return torch.zeros(n, *self.target_shape, dtype=dtype)

    def encoded(self, encoder: Encoder) -> DataForm:
        """The form of the inputs that are made of the columns."""
        return replace(self, shape=(len(encoder.features),))


def _column(name: str, kind: ColumnOption) -> Column:
    if isinstance(kind, list):
        return Column(name, "category", tuple(sorted(kind)))
    return Column(name, kind)


@takes_fields_of(DataForm)
def nodes(root: Path | None = None, *, encode: Encode | None = None, **form: Any) -> Samples:
    """Data that stay on the clients of a real federation: for `coterie deploy` alone.

    A simulation has no such data, so this always raises.

    Args:
        encode: how columns of a table are converted to numbers.
        form: the form of the samples, as the fields of `DataForm`.
    """
    known = DataForm(**form)
    got = f"inputs of shape {list(known.shape)} in {len(known.classes)} classes"
    what = f"the data are on the nodes ({got})"
    expected = "`coterie deploy`, or another source"
    raise DataError("does-not-fit", "data.source", what, allowed=expected)
