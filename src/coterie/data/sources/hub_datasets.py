"""Any dataset of the Hugging Face hub, by its columns (extra ``hf``)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie.data.samples import Samples, Targets
from coterie.data.sources.columns import arrow_columns
from coterie.data.sources.files import samples_of_columns
from coterie.data.sources.folders import find_folder
from coterie.data.sources.roles import Roles
from coterie.errors import DataError, first_line, install_command

# The column that says which split of the dataset a row is of.
SPLIT = "coterie_split"


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

    Raises:
        DataError: if the package ``datasets`` is not installed, the dataset cannot be loaded, or a
            column is missing.
    """
    # A folder of this name is read in its place.
    splits = _load(str(find_folder(id, root) or id), id, subset)
    table = _one_table(splits)
    columns = arrow_columns(table, Path(id))
    samples = samples_of_columns(columns, Roles(features, label, client, SPLIT), targets)
    names = _class_names(next(iter(splits.values())), label)
    if len(names) == samples.classes:
        return replace(samples, label_names=names)
    return samples


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
