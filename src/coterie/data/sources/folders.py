"""Where the files of a source are looked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from coterie.errors import DataError, first_line, install_command
from coterie.files import MALFORMED, read_json

# Of a folder that the package datasets wrote: its splits, and the files of one of them.
SPLITS = "dataset_dict.json"
STATE = "state.json"


def dataset_folder(root: Path | None, name: str, advice: str) -> Path:
    """The folder of a dataset below the data folder; it need not exist."""
    base = root if root is not None else os.environ.get("COTERIE_DATA")
    if not base:
        raise DataError("missing", "data.source", f"no data folder for {name!r}", do=advice)
    return Path(base).expanduser() / name


def find_folder(path: str, root: Path | None) -> Path | None:
    """A folder that a user named: from the current folder, else in the data folder, else ``None``."""
    return _found(path, root, Path.is_dir)


def find_file(path: str, root: Path | None) -> Path | None:
    """A file that a user named: in the current folder, else in the data folder, else ``None``."""
    return _found(path, root, Path.is_file)


def _found(path: str, root: Path | None, fits: Callable[[Path], bool]) -> Path | None:
    place = Path(path).expanduser()
    return next(filter(fits, (place, Path(root or ".") / place)), None)


def hub_splits(place: str, subset: str | None, option: str) -> Mapping[str, Any]:
    """The splits of a dataset of the Hugging Face hub, or of a folder in its form, by name.

    Args:
        option: what names the dataset, for error lines.
    """
    saved = _saved_splits(Path(place))
    if saved:
        return saved
    # Imported only here: the package is optional, and takes seconds.
    try:
        import datasets
    except ImportError:
        what = "the package 'datasets' is not installed"
        raise DataError("not-installed", option, what, do=f"run {install_command('hf')}") from None
    try:
        found: Mapping[str, Any] = datasets.load_dataset(place, subset)
    except Exception as error:  # noqa: BLE001  the hub's client raises dozens of unrelated kinds
        what = f"{place} cannot be loaded ({first_line(error)})"
        raise DataError("cannot-be-read", option, what) from None
    return found


@dataclass(frozen=True, slots=True)
class SavedSplit:
    """A split of a folder that ``save_to_disk`` of the package datasets wrote.

    Args:
        table: a table of pyarrow.
        features: what the dataset says of its columns; classes have ``names``.
    """

    table: Any
    features: Mapping[str, Any]


def is_saved(folder: Path) -> bool:
    """Whether ``save_to_disk`` of the package datasets wrote a folder."""
    return (folder / SPLITS).is_file() or (folder / STATE).is_file()


def _saved_splits(folder: Path) -> dict[str, SavedSplit]:
    """The splits of such a folder; none of another one."""
    if not is_saved(folder):
        return {}
    # Read by pyarrow alone: that package refuses to load them as it does others.
    try:
        if (folder / SPLITS).is_file():
            names = read_json(folder / SPLITS)["splits"]
            return {name: _saved_split(folder / name) for name in names}
        return {"train": _saved_split(folder)}
    except (*MALFORMED, OSError) as error:
        what = f"{folder} cannot be loaded ({first_line(error)})"
        raise DataError("cannot-be-read", "data.id", what) from None


def _saved_split(folder: Path) -> SavedSplit:
    import pyarrow as pa

    tables = []
    for one in read_json(folder / STATE)["_data_files"]:
        with pa.memory_map(str(folder / one["filename"])) as file:
            tables.append(pa.ipc.open_stream(file).read_all())
    table = pa.concat_tables(tables)
    said = read_json((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    features = said.get("info", {}).get("features", {})
    named = {name: one for name, one in features.items() if isinstance(one, Mapping)}
    names = {name: tuple(map(str, one.get("names") or ())) for name, one in named.items()}
    return SavedSplit(table, {name: SimpleNamespace(names=names[name]) for name in names})


def hub_table(split: Any) -> Any:
    """The rows of such a split as a table of pyarrow."""
    if isinstance(split, SavedSplit):
        return split.table
    # Without a format, columns stay as they are stored: images as their bytes.
    return split.with_format("arrow")[:]
