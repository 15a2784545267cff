"""Whether the files of a dataset are there, without reading them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from coterie.data.sources.image_datasets import IMAGE_DATASETS
from coterie.data.sources.text import SENT140_FILES
from coterie.errors import DataError
from coterie.experiment import Experiment

HOW_TO_GET = "docs/reproduce.md says how to get it"


def missing_data(config: Experiment) -> str:
    """One line about a configuration's dataset if its files are missing, before a sweep of hours
    finds out."""
    source = config.name("source")
    # With `hub` the library downloads them when a run starts.
    stems = _stems_of(source)
    if not stems or getattr(config.data, "hub", False):
        return ""
    root = getattr(config.data, "root", None) or os.environ.get("COTERIE_DATA")
    if root:
        folder = Path(root).expanduser() / source
        # All files of a dataset: a run fails if one is missing.
        if all((folder / f"{stem}.parquet").is_file() for stem in stems):
            return ""
    files = f"{source}/{{{','.join(stems)}}}.parquet"
    where = f"{files} under --data-root or COTERIE_DATA"
    if source in IMAGE_DATASETS:
        hub = IMAGE_DATASETS[source].hub
        if hub is not None:
            where += f", on the Hugging Face hub {hub.id}"
    return f"needs the data {source} ({where}); {HOW_TO_GET}"


def no_data(configs: Iterable[Experiment], root: str | None) -> DataError:
    """What is said where no run has its data: which folder was looked into, and for what."""
    named = root or os.environ.get("COTERIE_DATA")
    if not named:
        got = "no folder"
    elif not Path(named).expanduser().is_dir():
        got = f"{named!r}, which is not a folder"
    else:
        got = f"{named!r} without them"
    sources = ", ".join(dict.fromkeys(one.name("source") for one in configs if missing_data(one)))
    expected = f"a folder with {sources}, by --data-root or COTERIE_DATA; {HOW_TO_GET}"
    what = "the data of all lines are missing"
    return DataError("does-not-fit", "reproduce", what, found=got, allowed=expected)


def _stems_of(source: str) -> tuple[str, ...]:
    """The names of a dataset's files without their ending; none for a source without files."""
    if source in IMAGE_DATASETS:
        return ("train", *IMAGE_DATASETS[source].test)
    if source == "sent140":
        return SENT140_FILES
    return ()
