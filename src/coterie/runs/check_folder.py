"""Checks that a run folder holds what the run wrote, before any command uses it."""

from __future__ import annotations

from coterie.config.identity import differing
from coterie.errors import CheckpointError
from coterie.runs.digests import CONFIG, DIGESTS, REPORT, ROWS, Digests, is_result
from coterie.runs.recorded_files import damaged_files
from coterie.runs.store import RunFolder
from coterie.terminal import warn

WITHOUT_RECORD = "a run folder without digests.json, so its files are read as they are"


def check_folder(folder: RunFolder, *, resumed: bool = False) -> None:
    """Check every file of a run; what can be worked with is said in a warning.

    Args:
        resumed: the run goes on, so damaged results are written anew and need no refusal.
    """
    digests = folder.digests
    if digests is None:
        _check_unrecorded(folder, resumed)
        return
    _check_settings(folder, digests)
    wrong = damaged_files(folder.path, digests.files)
    for name, line in wrong.items():
        if name == REPORT or (resumed and is_result(name)):
            warn(line)
        else:
            raise CheckpointError(line)
    # A run that goes on says itself what it cuts.
    if not resumed:
        folder.rows()


def _check_unrecorded(folder: RunFolder, resumed: bool) -> None:
    """A folder that lost its record, which only `coterie resume` makes anew."""
    found = folder.row_file.parse()
    if found.problem and not found.rows:
        what = f"another format, got no {DIGESTS} and no digests in {ROWS}"
        raise CheckpointError(f"{folder.path}: {what}; expected a run of this version of Coterie")
    if not resumed:
        file = folder.path / DIGESTS
        expected = f"that of the run; `coterie resume {folder.path}` makes one"
        raise CheckpointError(f"{file}: missing, got no file; expected {expected}")
    warn(f"{folder.path}: {WITHOUT_RECORD}")


def _check_settings(folder: RunFolder, digests: Digests) -> None:
    """Whether ``config.toml`` is the one of the run; what changes no result may differ."""
    file = folder.path / CONFIG
    now = digests.as_started(folder.resolved)
    keys = ", ".join(differing(digests.config, now))
    if keys:
        what = f"the configuration was changed, got other values of {keys}"
        expected = "those that the run was started with"
        raise CheckpointError(f"{file}: {what}; expected {expected}")
    if now != digests.config:
        warn(f"{file}: changed since the run was started, in settings that change no result")
