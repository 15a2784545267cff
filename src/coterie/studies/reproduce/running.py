"""The runs behind the lines: which there are, how long they take, and doing them so that a killed
one goes on."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import Timeout

from coterie.config import RunConfig
from coterie.config.identity import config_hash
from coterie.errors import ConfigError, CoterieError, DataError
from coterie.runs.run import Stopped
from coterie.runs.store import RunFolder
from coterie.studies.reproduce.computed import FORMULAS, NEED_DATA
from coterie.studies.reproduce.metrics import METRICS, compared
from coterie.studies.reproduce.tables import Line
from coterie.sweep.plan import ID_DIGITS, Run
from coterie.sweep.run_once import carry_out, is_done

STARTUP = 4.0  # seconds: processes, data, the first models
LOADING = 1.5  # seconds: data of a computed line
TAKEN = "another process works on it"
HOW_TO_GET = "docs/reproduce.md says how to get it"
FILES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("mnist", "fashion_mnist", "femnist", "emnist_letters_aj", "cifar10", "svhn"),
        ("train", "test"),
    ),
    "sent140": ("users", "others"),
}
HUB: Mapping[str, str] = {
    "mnist": "ylecun/mnist",
    "fashion_mnist": "zalando-datasets/fashion_mnist",
    "femnist": "flwrlabs/femnist",
    "cifar10": "uoft-cs/cifar10",
    "svhn": "ufldl-stanford/svhn",
}


def seeds_of(text: str) -> tuple[int, ...]:
    """The seeds of an option.

    Raises:
        ConfigError: if it is not of that form.

    Example:
        >>> seeds_of("0-2"), seeds_of("1,5-6")
        ((0, 1, 2), (1, 5, 6))
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if not (
            first.isascii()
            and first.isdigit()
            and (not dash or (last.isascii() and last.isdigit()))
        ):
            raise ConfigError(f"--seeds: not numbers, got {text!r}; expected 0-2 or 0,3,4")
        found += range(int(first), int(last or first) + 1)
    if not found or len(found) > 1000:
        raise ConfigError(f"--seeds: got {len(found)} of them; expected 1 to 1000, as 0-2")
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Job:
    """One run that lines need, perhaps several of them.

    Args:
        run: its name and configuration.
        config: the same, checked.
        seconds: a guess of how long it takes.
        line: the first line that needs it.
    """

    run: Run
    config: RunConfig
    seconds: float
    line: Line


@dataclass(frozen=True)
class Outcome:
    """What became of a line.

    Args:
        line: which.
        values: one for each seed that was run, in the line's unit.
        last10: mean accuracy of the last ten evaluated rounds of its own runs, in percent.
        rounds: rounds of each of its runs.
        problem: why there is nothing, or not all.
        folders: of its own runs.
    """

    line: Line
    values: tuple[float, ...] = ()
    last10: tuple[float, ...] = ()
    rounds: int = 0
    problem: str = ""
    folders: tuple[Path, ...] = field(default=(), compare=False)

    @property
    def mean(self) -> float | None:
        """Over seeds."""
        if self.values:
            return statistics.fmean(self.values)
        return None

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds, from two on."""
        if len(self.values) > 1:
            return statistics.stdev(self.values)
        return None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        if self.mean is None or self.line.printed is None:
            return None
        return self.mean - self.line.printed


def missing(config: RunConfig) -> str:
    """One line on the data of a configuration that are not there, empty where they are; it looks
    for files only."""
    source = config.data.source
    if source not in FILES or getattr(config.data, "hub", False):
        return ""
    root = getattr(config.data, "root", None) or os.environ.get("COTERIE_DATA")
    if root and all(
        (Path(root).expanduser() / source / f"{stem}.parquet").is_file() for stem in FILES[source]
    ):
        return ""
    files = "{" + ",".join(FILES[source]) + "}.parquet"
    hub = f", on the Hugging Face hub {HUB[source]}" if source in HUB else ""
    return f"needs the data {source} ({source}/{files} under --data-root or COTERIE_DATA{hub}); {HOW_TO_GET}"


class Reproduction:
    """Lines, the runs that they need, and what those say.

    Args:
        lines: as a profile runs them.
        seeds: of every run.
        runs: folder of the runs, one folder each, named by the hash of its configuration.
        root: folder of the datasets; default the environment variable ``COTERIE_DATA``.

    Raises:
        ConfigError: if a configuration is not valid.

    Example:
        >>> from coterie.studies.reproduce.tables import choose
        >>> made = Reproduction(choose(["rfedavg"], "quick"), [0], Path("runs"))
        >>> len(made.lines), len(made.jobs)
        (3, 4)
    """

    def __init__(
        self, lines: Sequence[Line], seeds: Sequence[int], runs: Path, root: str | None = None
    ) -> None:
        self.lines = list(lines)
        self.seeds = list(seeds)
        self.runs = runs
        self.root = root
        self.problems: dict[str, str] = {}
        found: dict[str, Job] = {}
        self.needs: list[list[tuple[Job, ...]]] = [
            [] for _ in self.lines
        ]  # line -> seed -> its run, and the other
        for seed in self.seeds:  # so that all lines have one seed before any has two
            for at, line in enumerate(self.lines):
                made = [_job(line, config) for config in line.configs(seed, root)]
                self.needs[at].append(tuple(found.setdefault(job.run.id, job) for job in made))
        self.jobs = list(found.values())

    @cached_property
    def _computed(self) -> dict[int, Outcome]:
        return {at: computed(line, self.root) for at, line in enumerate(self.lines) if line.compute}

    def left(self) -> tuple[list[Job], float]:
        """The runs that are not done and whose data are there, and about how many seconds they take
        on two cores."""
        open_ = [
            job for job in self.jobs if not missing(job.config) and not is_done(job.run, self.runs)
        ]
        return open_, sum(job.seconds * (1 - self._share(job)) for job in open_)

    def _share(self, job: Job) -> float:
        """How much of a run is done."""
        try:
            return min(1.0, len(RunFolder(self.runs / job.run.id).rows()) / job.config.train.rounds)
        except CoterieError:
            return 0.0

    def run(
        self,
        jobs: Sequence[Job],
        *,
        before: Callable[[int, Job], Callable[[], None]],
        after: Callable[[], None] = lambda: None,
        stop: Callable[[], int] = lambda: 0,
    ) -> None:
        """Carry out runs one after another; what goes wrong with one is kept in ``problems`` and
        stops no other.

        Args:
            jobs: of `left`.
            before: called before each with its number; gives what is called after each of its
                rounds.
            after: called after each.
            stop: asked after each round; the number of a signal, or 0 to go on.

        Raises:
            Stopped: if ``stop`` said so; the state is saved and the same call goes on.
        """
        self.runs.mkdir(parents=True, exist_ok=True)
        for number, job in enumerate(jobs):
            message = f"stopped after {number} of {len(jobs)} runs; the same command goes on"
            if stop():
                raise Stopped(stop(), message)
            try:
                carry_out(job.run, self.runs, _telling(before(number, job), stop))
            except Stopped as stopped:
                raise Stopped(stopped.code - 128, message) from None
            except Timeout:
                self.problems[job.run.id] = TAKEN
            except CoterieError as error:
                self.problems[job.run.id] = " ".join(str(error).split())
            after()

    def outcomes(self) -> list[Outcome]:
        """What is known of each line."""
        return [
            self._computed[at] if line.compute else self._measured(line, self.needs[at])
            for at, line in enumerate(self.lines)
        ]

    def _measured(self, line: Line, needs: Sequence[tuple[Job, ...]]) -> Outcome:
        values: list[float] = []
        last10: list[float] = []
        folders: list[Path] = []
        why: list[str] = []
        for jobs in needs:
            undone = [job for job in jobs if not is_done(job.run, self.runs)]
            if undone:
                why += [
                    self.problems.get(job.run.id) or missing(job.config) or "not run yet"
                    for job in undone
                ]
                continue
            found = [_read(self.runs / job.run.id, line) for job in jobs]
            folders.append(self.runs / jobs[0].run.id)
            last10 += [found[0]["last10"]] if found[0]["last10"] is not None else []
            known = [one["value"] for one in found if one["value"] is not None]
            if len(known) < len(found):
                why.append("not reached" if line.metric == "rounds_to" else "not measured")
            else:
                values.append(compared(line.how, *known) if len(known) == 2 else known[0])
        said = "; ".join(dict.fromkeys(why))
        return Outcome(
            line, tuple(values), tuple(last10), line.rounds if folders else 0, said, tuple(folders)
        )


def _job(line: Line, config: RunConfig) -> Job:
    resolved = config.resolved()
    run = Run(config_hash(resolved)[:ID_DIGITS], config.algorithm.name, config.seed, (), resolved)
    return Job(run, config, STARTUP + line.rounds * line.seconds, line)


def _telling(told: Callable[[], None], stop: Callable[[], int]) -> Callable[[], int]:
    """What is asked after each round, which also tells of it."""

    def asked() -> int:
        told()
        return stop()

    return asked


def computed(line: Line, root: str | None = None) -> Outcome:
    """A line that needs no run."""
    gone = missing(line.config(root)) if line.compute in NEED_DATA else ""
    if gone:
        return Outcome(line, problem=gone)
    try:
        return Outcome(line, (float(FORMULAS[line.compute](line, root)),))
    except DataError as error:
        return Outcome(line, problem=" ".join(str(error).split()))


def _read(folder: Path, line: Line) -> dict[str, Any]:
    """The line's metric of a finished run, and the mean of its last ten evaluated rounds."""
    run = RunFolder(folder)
    rows = run.rows()
    summary = run.summary() or {}
    last = METRICS["last10"](rows, summary, 0.0)
    return {"value": METRICS[line.metric](rows, summary, line.target), "last10": last}
