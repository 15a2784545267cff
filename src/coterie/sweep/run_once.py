"""One run of a sweep, executed once: skipped if it is done, resumed if it was interrupted, and begun
anew if the user's own code has changed since.

The process that works on a run holds the lock next to its folder. The operating system releases the
lock when the process ends, however it ends.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, Timeout

from coterie.config.identity import config_hash
from coterie.errors import CheckpointError, ConfigError
from coterie.experiment import check
from coterie.files import refuse_unwritable
from coterie.headline import Headline
from coterie.runs.compose import compose
from coterie.runs.folder.digests import CONFIG
from coterie.runs.folder.lock import is_locked
from coterie.runs.folder.store import RunFolder, check_folder
from coterie.runs.run import execute, make_folder
from coterie.sweep.plan import SweepPlan, SweepRun

EARLIER = "earlier"  # in the folder of the sweep: runs whose code has changed since


def is_done(run: SweepRun, out: Path) -> bool:
    """Whether a run is complete in the folder of the sweep, with files that can be read, and with
    the user's own code as it is now."""
    folder = RunFolder(out / run.id)
    try:
        summary = folder.results.summary()
        # Asked first, since most runs of a new sweep have no folder yet.
        if summary is None:
            return False
        resolved = folder.resolved
        if folder.changed_code:
            return False
    except (CheckpointError, ConfigError):
        return False
    if not isinstance(summary, dict) or not summary.get("complete"):
        return False
    # The folder's name also depends on the data. A user may have put other files in it by hand.
    return config_hash(resolved) == config_hash(run.tables)


def outdated(run: SweepRun, out: Path) -> list[str]:
    """The files of the user's own code that have changed since a run of the sweep began."""
    folder = RunFolder(out / run.id)
    if not (folder.path / CONFIG).exists():
        return []
    try:
        return folder.changed_code
    except (CheckpointError, ConfigError):
        return []


def _set_aside(run: SweepRun, out: Path) -> None:
    """Keep a run of earlier code in a folder of its own, where no table or report reads it."""
    number = 1
    while (out / EARLIER / f"{run.id}-{number}").exists():
        number += 1
    with refuse_unwritable(out):
        (out / EARLIER).mkdir(exist_ok=True)
        (out / run.id).rename(out / EARLIER / f"{run.id}-{number}")


def lock_of(run: SweepRun, out: Path) -> FileLock:
    """The lock of a run. To acquire it does not wait: it raises ``Timeout`` if it is held."""
    return FileLock(out / f".{run.id}.lock", timeout=0)


@contextmanager
def _locked(run: SweepRun, out: Path) -> Iterator[None]:
    """The lock of a run, held inside."""
    lock = lock_of(run, out)
    with refuse_unwritable(out):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def is_taken(run: SweepRun, out: Path) -> bool:
    """Whether another process works on a run."""
    try:
        with _locked(run, out):
            return is_locked(out / run.id)
    except Timeout:
        return True


def carry_out(run: SweepRun, out: Path, stop: Callable[[], int] | None = None) -> bool:
    """Execute a run, or resume it from its last checkpoint; returns whether there was anything to
    do.

    Raises:
        Timeout, InUseError: if another process works on it.
        Stopped: if ``stop``, called after each round, returned a signal; the state is saved.
        CoterieError: for anything expected.
    """
    with _locked(run, out):
        # Checked under the lock: another sweep may just have finished it.
        if is_done(run, out):
            return False
        # A process that was killed while it made the folder left one under a temporary name.
        for left in out.glob(f".{run.id}.tmp-*"):
            shutil.rmtree(left, ignore_errors=True)
        if outdated(run, out):
            _set_aside(run, out)
        folder = RunFolder(out / run.id)
        if (folder.path / CONFIG).exists():
            # `coterie resume` of this run alone knows the folder and not the sweep.
            with folder.locked():
                config = check(run.tables, str(folder.path))
                # A damaged checkpoint is skipped there, for the one before it.
                checkpoint = folder.checkpoints.latest(config.resolved())
                check_folder(folder, resumed=True)
                # The saved partition, so that a library of another version deals no other samples.
                composed = compose(config, folder.partition)
                execute(composed, folder, checkpoint=checkpoint, resume=True, stop=stop)
        else:
            composed = compose(check(run.tables, str(folder.path)))
            make_folder(composed, folder.path)
            with folder.locked():
                execute(composed, folder, stop=stop)
        return True


# --- runs of any folders -----------------------------------------------------------------------


def plan_of_runs(folders: Sequence[Path]) -> SweepPlan:
    """The plan of finished runs of any origin, which are compared as they are.

    Raises:
        ConfigError: for a run that is not finished, several runs of an algorithm with one seed, and
            algorithms or metrics that cannot be compared.
    """
    cells: dict[tuple[str, int, int], SweepRun] = {}
    headlines = []
    for path in folders:
        folder = RunFolder.open(path)
        changed = folder.changed_code
        if changed:
            what = f"code has changed since {path} was run"
            do = "run it again, or restore the code"
            raise ConfigError("differs", "compare", what, found=", ".join(changed), do=do)
        run = replace(SweepRun.of(folder.config()), id=str(path.absolute()))
        if not is_done(run, Path()):
            raise ConfigError("does-not-fit", "compare", "the run is not finished", got=str(path))
        cell = (run.algorithm, 0, run.seed)
        if cell in cells:
            what = f"a second run of {run.name}"
            do = ""
            if "type" in run.tables["algorithm"]:
                do = "give each method a name, as in dataclasses.replace(method, name='other')"
            raise ConfigError("in-conflict", "compare", what, got=str(path), do=do)
        cells[cell] = run
        headlines.append(folder.headline)
    names = tuple(dict.fromkeys(name for name, _, _ in cells))
    seeds = tuple(dict.fromkeys(seed for _, _, seed in cells))
    if len(cells) < len(names) * len(seeds):
        what = "not every algorithm has a run with every seed"
        raise ConfigError("missing", "compare", what, found=f"seeds {', '.join(map(str, seeds))}")
    if len(set(headlines)) > 1:
        raise different_headlines(headlines)
    return SweepPlan(names, seeds, (), ((),), cells, headline=headlines[0])


def different_headlines(found: Iterable[Headline]) -> ConfigError:
    """The refusal of runs that were measured by different metrics."""
    names = ", ".join(sorted({one.name for one in found}))
    what = "the runs have different headline metrics"
    return ConfigError("differs", "task", what, found=names, allowed="one")
