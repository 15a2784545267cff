"""Run folders: what a run writes, what a resumed run starts from, and whether all of it is there."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from coterie.config.identity import differing
from coterie.config.own_code import changed_code
from coterie.config.trust import is_trusted, require_trust
from coterie.core.arrays import EMPTY
from coterie.errors import CheckpointError, ConfigError, CoterieError, DataError
from coterie.files import (
    canonical_json,
    plain,
    read_json,
    refuse_malformed,
    refuse_unwritable,
    refuse_unwritable_output,
    write_synced,
)
from coterie.headline import ACCURACY, Headline
from coterie.runs.folder import digests as record
from coterie.runs.folder.digests import (
    CHECKPOINT,
    CONFIG,
    DIGESTS,
    HEADLINE,
    NOISE_KEY,
    PARTITION,
    REPORT,
    WEIGHTS,
    Digests,
    changed_settings,
    checked_file,
    is_result,
    store_files,
)
from coterie.runs.folder.lock import locked
from coterie.runs.folder.results import ResultFiles
from coterie.runs.folder.rows import Row, RowFile
from coterie.terminal import first_few, warn

if TYPE_CHECKING:
    from coterie.experiment import Experiment
    from coterie.runs.folder.checkpoints import CheckpointFiles


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run; `RunFolder.create` or `RunFolder.open` make one. Names of clients and
    of anything else that was read are never names of files.

    Args:
        objects: the Python objects that the run was given, handed over again, by the arguments of
            `coterie.run`.
    """

    path: Path
    objects: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    # --- making and opening -----------------------------------------------------------------------

    @classmethod
    def create(
        cls, path: Path | str, resolved: Mapping[str, Any], files: Mapping[str, bytes] = EMPTY
    ) -> RunFolder:
        """Make the folder of a new run; it appears whole or not at all."""
        target = Path(path)
        cls.check_free(target)
        # Under another name until the configuration is in it: no other command takes half a
        # folder for a run.
        hidden = target.parent / f".{target.name}.tmp-{os.getpid()}"
        try:
            with refuse_unwritable_output("out", target):
                (hidden / "checkpoints").mkdir(parents=True)
                write_synced(hidden / CONFIG, tomli_w.dumps(resolved).encode())
                record.new_digests(hidden, resolved, files)
                hidden.rename(target)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
        return cls(target)

    @staticmethod
    def check_free(path: Path) -> None:
        """Refuse a path where a new run cannot go."""
        if (path / CONFIG).exists():
            what = "already contains a run"
            expected = f"a new folder, or `coterie resume {path}`"
            raise ConfigError("in-use", "out", what, found=path, allowed=expected)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ConfigError("in-use", "out", "not empty", found=path, allowed="a new folder")

    @classmethod
    def create_next(
        cls,
        parent: Path | str,
        stem: str,
        resolved: Mapping[str, Any],
        files: Mapping[str, bytes] = EMPTY,
    ) -> RunFolder:
        """Make ``<parent>/<stem>-<n>`` with the first free number ``n``."""
        # An algorithm may be called `module:factory`, and a name is never part of a path.
        safe = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-") or "run"
        number = 1
        while (Path(parent) / f"{safe}-{number}").exists():
            number += 1
        return cls.create(Path(parent) / f"{safe}-{number}", resolved, files)

    @classmethod
    def open(cls, path: Path | str | RunFolder) -> RunFolder:
        """The folder of a run that is there."""
        if isinstance(path, RunFolder):
            return path
        if not (Path(path) / CONFIG).is_file():
            expected = f"the folder of a run, {_runs_near(Path(path))}"
            raise ConfigError(
                "not-found", "run", "not a run folder", got=str(path), allowed=expected
            )
        return cls(Path(path))

    @property
    def resolved(self) -> dict[str, Any]:
        """The configuration that the folder holds now."""
        return record.read_config(self.path)

    def config(self, values: Mapping[str, Any] = EMPTY, *, trust: bool = False) -> Experiment:
        """The configuration of the run, with these values in place of its own. It is checked, which
        imports the code that it names; with ``trust`` also code that is not known to be the user's
        own."""
        resolved = self.resolved
        require_trust(self.path, resolved, self.code, trusted=trust)
        # The file may have been edited, and is not checked yet: the table may be gone.
        data = resolved.get("data")
        # Data that are in the folder itself move with it.
        if isinstance(data, Mapping) and data.get("source") == "saved":
            values = {**values, "data.root": str(self.path.absolute())}
        task = resolved.get("task")
        # Of an earlier version, by which networks learned targets as they are.
        if isinstance(task, Mapping) and task.get("kind") == "regression":
            values = {"task.scaling": task.get("scaling", "none"), **values}
        # Imported here: it waits for torch, and who only reads a run need not.
        from coterie.experiment import load_config
        from coterie.experiment.live import with_objects

        config = load_config(self.path / CONFIG, (), values)
        return with_objects(config, self.objects, self.file(WEIGHTS))

    @property
    def code(self) -> Mapping[str, str]:
        """File of the user's own code -> SHA-256 when the run began."""
        return record.read_digests(self.path).code

    @property
    def changed_code(self) -> list[str]:
        """The files of the user's own code that have changed since the run began."""
        return changed_code(self.resolved, self.code)

    def record_changed_code(self) -> None:
        """Record that a run goes on with other code: its rounds are those of no single code."""
        changed = dict.fromkeys(self.changed_code, "several")
        if changed:
            with refuse_unwritable(self.path):
                digests = record.read_digests(self.path)
                code = {**digests.code, **changed}
                record.write_digests(self.path, replace(digests, code=code))

    def write_headline(self, headline: Headline) -> None:
        """``headline.json``: what the run is measured by, where that is not accuracy."""
        if headline != ACCURACY:
            self.write({HEADLINE: canonical_json(headline.record()) + b"\n"})

    @property
    def headline(self) -> Headline:
        """What the run is measured by."""
        data = self.file(HEADLINE)
        if data is None:
            return ACCURACY
        with refuse_malformed(self.path / HEADLINE):
            return Headline.of(read_json(data))

    def locked(self) -> AbstractContextManager[None]:
        """The right to write the folder, held inside; one process has it at a time."""
        return locked(self.path)

    @contextmanager
    def taken_away_if_refused(self, *, is_new: bool) -> Iterator[None]:
        """Take a new folder away again where what is inside is refused before a round is stored: the
        same command must not be refused for the folder that it left."""
        try:
            yield
        except (ConfigError, DataError):
            if is_new and not self.rows():
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def forget_results(self) -> None:
        """Forget what the run wrote at an earlier end."""
        with refuse_unwritable(self.path):
            record.write_digests(self.path, record.read_digests(self.path).without_results())

    def plan_rounds(self, rounds: int) -> None:
        """Change how many rounds the run has."""
        with refuse_unwritable(self.path):
            record.plan_rounds(self.path, rounds)

    # --- rounds -----------------------------------------------------------------------------------

    def append_round(self, row: Mapping[str, Any]) -> None:
        """Add one row to ``rounds.jsonl``, at once. What is not finite becomes ``null``."""
        with refuse_unwritable(self.path):
            RowFile(self.path).append(plain(row))

    def rows(self) -> list[Row]:
        """The rows so far; a last line that a kill tore is left out."""
        return RowFile(self.path).read()

    def rewind(self, round: int) -> list[Row]:
        """Forget the rows and the checkpoints after a round; returns the rows that are left."""
        with refuse_unwritable(self.path):
            rows = RowFile(self.path).rewind(round)
            self.checkpoints.clear()
        return rows

    @property
    def checkpoints(self) -> CheckpointFiles:
        # Imported here: who only reads rows and results does not wait for torch.
        from coterie.runs.folder.checkpoints import CheckpointFiles

        return CheckpointFiles(self.path)

    # --- other files ------------------------------------------------------------------------------

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write files of the run, whole at any moment, and record their digests."""
        store_files(self.path, files)

    def file(self, name: str) -> bytes | None:
        """The bytes of a file of the run; ``None`` where the run wrote none."""
        return checked_file(self.path, name)

    @property
    def partition(self) -> Path:
        """The file that says who holds which samples, checked; it may be missing."""
        self.file(PARTITION)
        return self.path / PARTITION

    @property
    def results(self) -> ResultFiles:
        """What the run wrote at its end."""
        return ResultFiles(self.path)


def _runs_near(path: Path) -> str:
    """What runs there are, in a folder that is none itself or in ``runs``, or how to make one."""
    found: list[Path] = []
    for folder in (path, Path("runs")):
        if not found and folder.is_dir():
            found = sorted(file.parent for file in folder.glob("*/config.toml"))
    if not found:
        return "which `coterie run CONFIG.toml` creates"
    runs = sorted((*_method_and_seed(run), run) for run in found)
    names = [f"{run} ({name}, seed {seed})" if name else str(run) for name, seed, run in runs]
    return f"such as in `coterie show {runs[0][2]}`; runs there: {first_few(names, most=20)}"


def _method_and_seed(run: Path) -> tuple[str, int]:
    """The method and the seed of a run; an empty name where its configuration does not say them."""
    try:
        tables = record.read_config(run)
        return str(tables["algorithm"]["name"]), int(tables["seed"])
    except (CoterieError, LookupError, TypeError, ValueError):
        return "", 0


def check_folder(folder: RunFolder, *, resumed: bool = False) -> None:
    """Check every file of a run but its checkpoints, of which an older one may be used; a warning
    says what can be worked with. A resumed run writes damaged results again, so they are not
    refused."""
    file = folder.path / DIGESTS
    if not file.exists():
        if not resumed:
            advice = f"`coterie resume {folder.path}` writes it"
            raise CheckpointError("missing", file, do=advice)
        warn(f"{folder.path}: {DIGESTS} is missing, so damaged files cannot be detected")
    digests = record.read_digests(folder.path)
    _check_settings(folder, digests)
    changed = folder.changed_code
    # Otherwise the code is not run, and the refusal names the files.
    if changed and is_trusted(folder.path, folder.resolved):
        files = ", ".join(changed)
        warn(
            f"{folder.path}: {files} changed since the run began, so earlier rounds used other code"
        )
    for name in digests.files:
        # The noise is drawn again by a resumed run alone, and by nobody but its owner.
        if not CHECKPOINT.match(name) and (resumed or name != NOISE_KEY):
            try:
                folder.file(name)
            except CheckpointError as error:
                if name != REPORT and not (resumed and is_result(name)):
                    raise
                warn(str(error))
    # A resumed run says itself what it cuts.
    if not resumed:
        folder.rows()


def _check_settings(folder: RunFolder, digests: Digests) -> None:
    """Whether ``config.toml`` is the one of the run; what changes no result may differ."""
    file = folder.path / CONFIG
    now = digests.as_started(folder.resolved)
    keys = differing(digests.config, now)
    if keys:
        raise changed_settings(file, keys)
    if now != digests.config:
        warn(
            f"{file} has changed since the run began, but only in settings that do not affect results"
        )
