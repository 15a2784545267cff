"""Where the files of a source are looked for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coterie.errors import DataError, first_line, install_command


def dataset_folder(root: Path | None, name: str, advice: str) -> Path:
    """The folder of a dataset below the data folder; it need not exist."""
    base = root if root is not None else os.environ.get("COTERIE_DATA")
    if not base:
        raise DataError("missing", "data.source", f"no data folder for {name!r}", allowed=advice)
    return Path(base).expanduser() / name


def find_folder(path: str, root: Path | None) -> Path | None:
    """A folder that a user named: from the current folder, else in the data folder, else ``None``."""
    place = Path(path).expanduser()
    for folder in (place, Path(root or ".") / place):
        if folder.is_dir():
            return folder
    return None


def find_file(path: str, root: Path | None) -> Path | None:
    """A file that a user named: in the current folder, else in the data folder, else ``None``."""
    place = Path(path).expanduser()
    if place.is_file():
        return place
    if root is not None and (Path(root) / place).is_file():
        return Path(root) / place
    return None


def hub_splits(place: str, subset: str | None, option: str) -> Mapping[str, Any]:
    """The splits of a dataset of the Hugging Face hub, or of a folder in its form, by name.

    Args:
        option: what names the dataset, for error lines.
    """
    # Imported only here: the package is optional, and takes seconds.
    try:
        import datasets
    except ImportError:
        what = "the package 'datasets' is not installed"
        raise DataError("not-installed", option, what, do=install_command("hf")) from None
    try:
        found: Mapping[str, Any] = datasets.load_dataset(place, subset)
    except Exception as error:  # noqa: BLE001  the hub's client raises dozens of unrelated kinds
        what = f"{place} cannot be loaded ({first_line(error)})"
        raise DataError("cannot-be-read", option, what) from None
    return found


def hub_table(split: Any) -> Any:
    """The rows of such a split as a table of pyarrow."""
    # Without a format, columns stay as they are stored: images as their bytes.
    return split.with_format("arrow")[:]
