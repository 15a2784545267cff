"""Where the files of a source are looked for."""

from __future__ import annotations

import os
from pathlib import Path

from coterie.errors import DataError


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
