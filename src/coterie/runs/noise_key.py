"""The key of a private run's noise, which is in its folder and nowhere else.

The operating system draws it once. Only the owner of the folder may read the file, so that a run
that was killed goes on with the same noise, and nobody else can remove the noise.
"""

from __future__ import annotations

import os
from pathlib import Path

from coterie.core.keys import Key, system_secret
from coterie.errors import CheckpointError
from coterie.experiment import Experiment
from coterie.runs.folder.digests import NOISE_KEY, checked_file


def noise_key(config: Experiment, saved: Path | None = None) -> Key | None:
    """The key of the folder in which a partition is ``saved``, or a new one; ``None`` where no noise
    is secret. Who may not read the key of a folder gets a new one, with which no round is run."""
    if config.privacy is None or config.privacy.randomness != "system":
        return None
    if saved is not None:
        found = _stored(saved.parent)
        if found is not None:
            return found
    return system_secret()


def key_bytes(key: Key) -> bytes:
    """A key as its file has it."""
    return f"{key.seed:064x}\n".encode()


def _stored(folder: Path) -> Key | None:
    if not os.access(folder / NOISE_KEY, os.R_OK):
        return None
    data = checked_file(folder, NOISE_KEY)
    if data is None:
        return None
    return Key(int(data, 16))


def check_noise_key(folder: Path, key: Key | None) -> None:
    """Refuse to go on with a run by another key than the one that it began with."""
    if key is None:
        return
    # Where the file is damaged or may not be read, this says so.
    data = checked_file(folder, NOISE_KEY)
    if data != key_bytes(key):
        what = "the noise of the run cannot be drawn again"
        advice = "put the file that the run wrote back in its place"
        raise CheckpointError("missing", folder / NOISE_KEY, what, do=advice)
