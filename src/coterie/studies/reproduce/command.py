"""``coterie reproduce``: chooses lines, runs what is not done, and reports in the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import cast, get_args

from coterie.core.process import cores
from coterie.errors import ConfigError, SweepError
from coterie.studies.reproduce import PAPERS, LineOptions
from coterie.studies.reproduce.computed import NEED_DATA, seconds_of
from coterie.studies.reproduce.datasets import missing_data, no_data
from coterie.studies.reproduce.outcome import outcomes_headline, value_text
from coterie.studies.reproduce.page import write_reproduction
from coterie.studies.reproduce.papers import Line, Profile, Tables
from coterie.studies.reproduce.reproduction import TAKEN, PaperRun, Reproduction
from coterie.studies.reproduce.tables import overlay, paper, read_toml
from coterie.sweep.grid import read_seeds
from coterie.terminal import columns_table, console, counted, duration, say

PROGRESS_SECONDS = 20.0  # between two lines of progress within a run
PAGE_SECONDS = 30.0  # between two writings of the page


def open_reproduction(
    papers: Sequence[str], options: LineOptions, out: Path, root: str | None = None
) -> tuple[Reproduction, Profile]:
    """The lines that were selected, their runs, and the profile."""
    known = get_args(Profile)
    if options.profile not in known:
        expected = f"one of {', '.join(known)}"
        raise ConfigError("unknown-choice", "--profile", got=options.profile, allowed=expected)
    profile = cast(Profile, options.profile)
    lines = choose(papers, profile, options.table, options.row or ())
    seeds = _default_seeds(lines, profile)
    if options.seeds is not None:
        seeds = read_seeds(options.seeds)
        # An option on the command line wins over the seeds that a line names.
        lines = [replace(line, seeds=()) for line in lines]
    return Reproduction(lines, seeds, out / "runs", root), profile


def _default_seeds(lines: Sequence[Line], profile: Profile) -> list[int]:
    if profile == "quick":
        return [0]
    return list(range(max(paper(line.paper).seeds for line in lines)))


def list_lines(
    papers: Sequence[str], options: LineOptions, out: Path, root: str | None = None
) -> None:
    """Print the lines and what they cost. Nothing is run or written."""
    made, profile = open_reproduction(papers, options, out, root)
    rows = []
    for line, needs in zip(made.lines, made.needs, strict=True):
        runs = [one for seed in needs for one in seed]
        # One missing dataset is enough to say so.
        state = next(
            (f"needs {r.config.name('source')}" for r in runs if missing_data(r.config)), ""
        )
        cost = duration(sum(one.seconds for one in runs))
        if line.compute:
            cost = "computed"
        rounds = str(line.rounds or "-")
        rows.append([_name(line), value_text(line.printed, line), rounds, cost, state])
    console().print(columns_table(["line", "paper", "rounds", "alone", ""], rows), soft_wrap=True)
    _announce(made, made.runs_left(), profile)


def reproduce_tables(
    papers: Sequence[str],
    options: LineOptions,
    out: Path,
    root: str | None = None,
    stop: Callable[[], int] = lambda: 0,
) -> None:
    """Run what is not done of the lines that are selected, and write the page.

    Raises:
        DataError: if the data of all lines are missing and none has a value; no page is written.
        SweepError: if runs failed; the page is written.
        Stopped: if ``stop`` returned a signal; the page is written.
    """
    made, profile = open_reproduction(papers, options, out, root)
    runs = made.runs_left()
    _announce(made, runs, profile)
    _raise_without_data(made, runs, root)
    begun = time.monotonic()
    written = begun

    def before(number: int, one: PaperRun) -> Callable[[], None]:
        config = one.config
        algorithm = f"{config.name('algorithm')} for {_name(one.line)}"
        rounds = counted(config.train.rounds, "round")
        say(f"run {number + 1} of {len(runs)}: {algorithm}, seed {config.seed}, {rounds}")
        return RoundProgress()

    def after() -> None:
        # The page grows with the runs; to write it after each of many short ones takes too long.
        nonlocal written
        if time.monotonic() - written > PAGE_SECONDS:
            write_reproduction(out, made.outcomes(), profile, made.seeds)
            written = time.monotonic()

    # The page is written whatever happens: it has what is done so far.
    try:
        made.run(runs, before=before, after=after, stop=stop)
    finally:
        markdown, html = write_reproduction(out, made.outcomes(), profile, made.seeds)
    _say_result(made, time.monotonic() - begun)
    say(f"page: {html.resolve()} and {markdown.name}")
    raise_failures(made)


def _say_result(made: Reproduction, seconds: float) -> None:
    """What came out in how many seconds, and how many runs lack their data."""
    say(f"{outcomes_headline(made.outcomes())}; {duration(seconds)}")
    left_out = sum(bool(missing_data(one.config)) for one in made.all_runs)
    if left_out:
        verb = "are" if len(made.all_runs) > 1 else "is"
        of = counted(len(made.all_runs), "run")
        say(f"{left_out} of {of} {verb} left out because their data are missing")


def _raise_without_data(made: Reproduction, runs: Sequence[PaperRun], root: str | None) -> None:
    """Refuse to report where nothing is known and nothing can be run."""
    if runs or any(outcome.values for outcome in made.outcomes()):
        return
    configs = [one.config for one in made.all_runs]
    # Some formulas need data, too.
    configs += [line.config(root) for line in made.lines if line.compute in NEED_DATA]
    if any(missing_data(config) for config in configs):
        raise no_data(configs, root)


def raise_failures(made: Reproduction) -> None:
    """Raise a `SweepError` with a line for each run that failed, if any."""
    # A run that another process works on did not fail.
    failed = {id_: problem for id_, problem in made.problems.items() if problem != TAKEN}
    if failed:
        lines = [f"{made.runs / id_}: {problem}" for id_, problem in failed.items()]
        count = f"{len(failed)} of {len(made.all_runs)}"
        raise SweepError("\n".join([*lines, f"reproduce: runs failed ({count})"]))


# --- lines of progress ----------------------------------------------------------------------------


def _name(line: Line) -> str:
    return f"{line.paper} {line.table} {line.name}"


def _announce(made: Reproduction, runs: Sequence[PaperRun], profile: Profile) -> None:
    """What is to do and how long it takes, and which data are missing."""
    seconds = made.seconds_left(runs) + sum(seconds_of(line) for line in made.lines)
    missing = [missing_data(one.config) for one in made.all_runs]
    done = sum(not line for line in missing) - len(runs)
    seeds = ", ".join(map(str, made.seeds))
    lines = counted(len(made.lines), "line")
    say(
        f"profile {profile}, seeds {seeds}: {lines}, {counted(len(runs), 'run')} to do, {done} "
        f"done; about {duration(seconds)} on two idle cores (this machine has {cores()})"
    )
    for line in dict.fromkeys(missing):
        if line:
            say(f"left out: {line}")


@dataclass
class RoundProgress:
    """Called after each round of a run; prints a line now and then."""

    printed: float = field(default_factory=time.monotonic)
    rounds: int = 0

    def __call__(self) -> None:
        self.rounds += 1
        if time.monotonic() - self.printed > PROGRESS_SECONDS:
            say(f"    {counted(self.rounds, 'round')} done since the start or the last resume")
            self.printed = time.monotonic()


# --- which lines ----------------------------------------------------------------------------------


def choose(
    papers: Sequence[str],
    profile: Profile = "quick",
    table: str | None = None,
    rows: Sequence[str] = (),
) -> list[Line]:
    """Choose lines, as a profile runs them; the quick one has only some, unless ``rows`` are named.
    Table ``4`` is ``4a`` to ``4d``."""
    for name in papers:
        if name not in PAPERS:
            expected = f"one of {', '.join(PAPERS)}"
            raise ConfigError("unknown-choice", "paper", got=name, allowed=expected)
    tables = [one for name in papers or PAPERS for one in paper(name).tables]
    found = tables
    if table is not None:
        found = [one for one in tables if table in (one.name, one.name.rstrip("abcd"))]
    if not found:
        names = ", ".join(dict.fromkeys(one.name for one in tables))
        raise ConfigError("unknown-choice", "--table", got=table, allowed=f"one of {names}")
    lines = [line for one in found for line in one.lines]
    # A misspelt row would else be left out without a word.
    for row in rows:
        if not any(_matches(line, row) for line in lines):
            names = ", ".join(dict.fromkeys(line.name.split("/")[0] for line in lines))
            expected = f"one of {names}, or row/column"
            raise ConfigError("unknown-choice", "--row", got=row, allowed=expected)
    # Lines that are named run with any profile: the user asked for them.
    if rows:
        chosen = [line for line in lines if any(_matches(line, row) for row in rows)]
    elif profile == "quick":
        chosen = [line for line in lines if line.quick]
    else:
        chosen = lines
    return [with_profile(line, profile) for line in chosen]


def _matches(line: Line, row: str) -> bool:
    return fnmatchcase(line.name, row) or line.name.split("/")[0] == row


def with_profile(line: Line, profile: Profile) -> Line:
    """The line as printed, or as the quick profile runs it: with fewer rounds, and the changes that the
    paper's file names."""
    if profile == "full" or line.compute or line.tables is None:
        return line
    quick = line.shortcut
    against = None
    if line.against is not None:
        against = _shortened(line, line.against)
    return replace(
        line,
        tables=_shortened(line, line.tables),
        against=against,
        until=min(line.until, quick.get("rounds", line.until)),
        seconds=line.seconds * quick.get("speed", 1.0),
        notes=(*line.notes, *quick.get("notes", ())),
    )


def _shortened(line: Line, tables: Tables) -> Tables:
    """A configuration of a line as the quick profile runs it."""
    quick = line.shortcut
    # A line of few rounds in print does not get more of them.
    rounds = min(quick.get("rounds", line.full_rounds), line.full_rounds)
    found = overlay(tables, {"train": {"rounds": rounds}})
    parts = read_toml(line.paper)["part"]
    for part in quick.get("parts", ()):
        found = overlay(found, parts[part])
    return found
