"""The runs behind the printed values of papers: which there are, how long they take, and their
execution.

Used by the command ``coterie reproduce``. A `Line` is one printed value with the run, or the
pair of runs, that should give it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from filelock import Timeout

from coterie.errors import CoterieError, InUseError
from coterie.experiment import Experiment
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import Stopped
from coterie.studies.reproduce.computed import compute_line
from coterie.studies.reproduce.datasets import missing_data
from coterie.studies.reproduce.metrics import compared, read_run
from coterie.studies.reproduce.outcome import Outcome
from coterie.studies.reproduce.papers import Line
from coterie.sweep.plan import SweepRun
from coterie.sweep.run_once import carry_out, is_done

STARTUP_SECONDS = 4.0  # of a run: processes, data, the first models
TAKEN = "another process is working on it"

BeforeRun = Callable[[int, "PaperRun"], Callable[[], None]]


@dataclass(frozen=True)
class PaperRun:
    """One run that lines need, with the first of them, and an estimate of its seconds."""

    run: SweepRun
    config: Experiment
    seconds: float
    line: Line

    @classmethod
    def of(cls, line: Line, config: Experiment) -> PaperRun:
        """The run of a configuration of a line."""
        # Other than in a sweep, the data are not in the hash: to read all datasets takes minutes.
        run = SweepRun.of(config)
        return cls(run, config, STARTUP_SECONDS + line.rounds * line.seconds, line)


class Reproduction:
    """Lines, the runs that they need, and their results. A line that names seeds has as many of its
    own."""

    def __init__(
        self, lines: Sequence[Line], seeds: Sequence[int], runs: Path, root: str | None = None
    ) -> None:
        self.lines = list(lines)
        self.seeds = list(seeds)
        self.runs = runs
        self.root = root
        # Of the runs that failed, or that another process works on: id -> one line.
        self.problems: dict[str, str] = {}
        # line -> its seeds
        self.seeds_of = [list(line.seeds or self.seeds)[: len(self.seeds)] for line in self.lines]
        # line -> seed -> its run and, if it has one, the other run
        self.needs: list[list[tuple[PaperRun, ...]]] = [[] for _ in self.lines]
        by_id: dict[str, PaperRun] = {}
        # Seeds outside, so that all lines have one seed before any has two.
        for number in range(len(self.seeds)):
            for line, seeds, needs in zip(self.lines, self.seeds_of, self.needs, strict=True):
                configs = line.configs(seeds[number], root)
                made = [PaperRun.of(line, config) for config in configs]
                # Lines of several tables may need the same run; it is executed once.
                needs.append(tuple(by_id.setdefault(one.run.id, one) for one in made))
        self.all_runs = list(by_id.values())

    @cached_property
    def _computed(self) -> dict[int, Outcome]:
        return {
            index: compute_line(line, self.root)
            for index, line in enumerate(self.lines)
            if line.compute
        }

    def runs_left(self) -> list[PaperRun]:
        """The runs that are not done and whose data are there."""
        return [
            one
            for one in self.all_runs
            if not missing_data(one.config) and not is_done(one.run, self.runs)
        ]

    def seconds_left(self, runs: Sequence[PaperRun]) -> float:
        """About how many seconds runs still take on two cores."""
        return sum(one.seconds * (1 - self._share_done(one)) for one in runs)

    def _share_done(self, one: PaperRun) -> float:
        # A run that was not begun has no rows, and a damaged one is executed again.
        try:
            rows = RunFolder(self.runs / one.run.id).rows()
        except CoterieError:
            return 0.0
        return min(1.0, len(rows) / one.config.train.rounds)

    def run(
        self,
        runs: Sequence[PaperRun],
        *,
        before: BeforeRun,
        after: Callable[[], None] = lambda: None,
        stop: Callable[[], int] = lambda: 0,
    ) -> None:
        """Execute runs one after another. A failure is kept in ``problems`` and does not stop the
        others. ``before`` gets the number of a run, and returns what is called after each of its
        rounds.

        Raises:
            Stopped: if ``stop`` returned a signal. The state is saved, and the same call resumes.
        """
        self.runs.mkdir(parents=True, exist_ok=True)
        for number, one in enumerate(runs):
            # Not the message of the run: the user resumes this command, not a single run.
            message = f"stopped after {number} of {len(runs)} runs; the same command continues"
            signal = stop()
            if signal:
                raise Stopped(signal, message)
            try:
                carry_out(one.run, self.runs, _after_round(before(number, one), stop))
            except Stopped as stopped:
                raise Stopped(stopped.code - 128, message) from None
            except (Timeout, InUseError):
                self.problems[one.run.id] = TAKEN
            except CoterieError as error:
                self.problems[one.run.id] = " ".join(str(error).split())
            after()

    def outcomes(self) -> list[Outcome]:
        """What is known of each line."""
        found = []
        for index, line in enumerate(self.lines):
            if line.compute:
                found.append(self._computed[index])
            else:
                found.append(self._measured(line, self.seeds_of[index], self.needs[index]))
        return found

    def _measured(
        self, line: Line, seeds_of_line: Sequence[int], needs: Sequence[tuple[PaperRun, ...]]
    ) -> Outcome:
        """The result of a line from its runs of all seeds."""
        values: list[float] = []
        seeds: list[int] = []
        last10: list[float] = []
        folders: list[tuple[Path, ...]] = []
        problems: list[str] = []
        for seed, runs in zip(seeds_of_line, needs, strict=True):
            undone = [one for one in runs if not is_done(one.run, self.runs)]
            # A seed counts if all its runs are done, so that differences are between equal seeds.
            if undone:
                problems += [self._why_undone(one) for one in undone]
                continue
            found = [read_run(self.runs / one.run.id, line) for one in runs]
            folders.append(tuple(self.runs / one.run.id for one in runs))
            of_last_ten = found[0][1]
            if of_last_ten is not None:
                last10.append(of_last_ten)
            known = [value for value, _ in found if value is not None]
            if len(known) < len(found):
                problems.append(_why_unknown(line))
                continue
            seeds.append(seed)
            if len(known) == 2:
                values.append(compared(line.how, *known))
            else:
                values.append(known[0])
        rounds = 0
        if folders:
            rounds = line.until or line.rounds
        problem = "; ".join(dict.fromkeys(problems))
        return Outcome(
            line,
            values=tuple(values),
            seeds=tuple(seeds),
            last10=tuple(last10),
            rounds=rounds,
            problem=problem,
            folders=tuple(folders),
        )

    def _why_undone(self, one: PaperRun) -> str:
        return self.problems.get(one.run.id) or missing_data(one.config) or "not run yet"


def _why_unknown(line: Line) -> str:
    """Why a run that is done has no value for a line."""
    if line.metric == "rounds_to":
        return "not reached"
    return "not measured"


def _after_round(report: Callable[[], None], stop: Callable[[], int]) -> Callable[[], int]:
    """What a run calls after each round: it reports the round, and asks whether to stop."""

    def after() -> int:
        report()
        return stop()

    return after
