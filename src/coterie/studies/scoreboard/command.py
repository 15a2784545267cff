"""The command ``coterie scoreboard``: runs a suite, and writes its results and its page."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.config import registry
from coterie.config.wording import nearest
from coterie.errors import ConfigError, SweepError
from coterie.files import refuse_unwritable
from coterie.studies.scoreboard import SuiteOptions
from coterie.studies.scoreboard.figures import SuiteFigures
from coterie.studies.scoreboard.page import result_sentence, write_scoreboard
from coterie.studies.scoreboard.results_file import (
    Results,
    check_mergeable,
    merge,
    published,
    read_results,
    results_of,
    write_scoreboard_results,
)
from coterie.studies.scoreboard.running import DEFAULTS, Scoreboard
from coterie.studies.scoreboard.suite import BASELINE, Suite, find_suite
from coterie.studies.scoreboard.tables import rank_table, refusals
from coterie.sweep.grid import read_seeds, split_values
from coterie.sweep.plan import SweepRun
from coterie.terminal import columns_table, console, counted, duration, say

FILE = "scoreboard.json"
PUBLISHED = "published"
PROGRESS_SECONDS = 20.0  # between two lines of progress


def chosen_suite(name: str, options: SuiteOptions) -> Suite:
    """The suite with what was chosen of it."""
    suite = find_suite(name)
    methods = [one for one in split_values(options.methods) if one]
    federations = [one for one in split_values(options.federations) if one]
    changes: dict[str, object] = {}
    if methods:
        changes["methods"] = list(dict.fromkeys(methods))
    if federations:
        _check_names("--federations", federations, [one.name for one in suite.federations])
        changes["federations"] = [suite.federation(one) for one in dict.fromkeys(federations)]
    if options.seeds is not None:
        changes["seeds"] = read_seeds(options.seeds)
    if not options.tune:
        changes["rates"] = []
    chosen = suite.model_copy(update=changes)
    _check_methods("--methods" if methods else f"suite {suite.name}", chosen)
    _refuse_private(chosen)
    return chosen


def _refuse_private(suite: Suite) -> None:
    """Refuse runs whose seeds nobody may know: a file of results names the seed of each run."""
    options = [*suite.told.values(), *(one for tried in suite.tried.values() for one in tried)]
    for tables in (suite.common, *(one.tables for one in suite.federations), *options):
        if "privacy" in tables:
            where = f"suite {suite.name}"
            what = "a scoreboard publishes seeds and figures of small groups"
            raise ConfigError("does-not-fit", where, what, do="leave out [privacy]")


def run_scoreboard(
    suite: Suite,
    out: Path,
    jobs: int,
    merged_files: Sequence[Path],
    stop: Callable[[], int],
    root: str | None = None,
) -> Path:
    """Run what is not done, and write ``scoreboard.json``, ``.md`` and ``.html``; returns the path
    of the page. ``merged_files`` are results of others, shown next to ours; ``published`` are
    Coterie's.

    Raises:
        SweepError: if FedAvg could not be run on a federation; the page has the others.
        Stopped: if ``stop`` returned a signal; the same command resumes.
    """
    files = [published(suite.name) if str(path) == PUBLISHED else path for path in merged_files]
    others = {path: read_results(path) for path in files}
    # Found out now, and not after minutes of runs.
    for path, found in others.items():
        check_mergeable(results_of(suite, []), path, found)
    with refuse_unwritable(out):
        (out / "runs").mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    methods = counted(len(suite.methods), "method")
    say(
        f"suite {suite.name}: {counted(len(suite.federations), 'federation')}, {methods}, seeds "
        f"{', '.join(map(str, suite.seeds))}; runs in {out / 'runs'}"
    )
    board = Scoreboard(suite, out / "runs", jobs, SuiteProgress(), stop, say, root)
    board.carry_out()
    # FedAvg's budget is needed, and its results only where they were asked for: those of another
    # machine may differ in the last digits, and could not be merged.
    results = results_of(suite, board.results(suite.methods))
    write_scoreboard_results(out / FILE, results)
    entries = merge(results, others)
    known = {(one["federation"], one["method"]) for one in entries}
    baseline = board.results([BASELINE])
    entries += [one for one in baseline if (one["federation"], BASELINE) not in known]
    figures = SuiteFigures(results, entries)
    markdown, html = write_scoreboard(out, figures, results["versions"])
    _show(figures, results)
    say(f"{html.resolve()}, {markdown.name} and {FILE}; {duration(time.monotonic() - begun)}")
    _raise_without_budget(baseline)
    return html


def _raise_without_budget(baseline: Sequence[Mapping[str, Any]]) -> None:
    """Nothing is scored on a federation on which FedAvg could not be run."""
    failed = [one for one in baseline if one["settings"] == DEFAULTS and one["refused"]]
    if failed:
        lines = [f"{one['federation']}: {one['refused']}" for one in failed]
        count = counted(len(failed), "federation")
        raise SweepError("\n".join([*lines, f"scoreboard: FedAvg could not be run on {count}"]))


def _show(figures: SuiteFigures, results: Results) -> None:
    table = rank_table(figures)
    say("")
    console().print(columns_table(table["columns"], table["rows"]))
    for name, why in refusals(figures):
        say(f"not run: {name}: {why}")
    say(
        f"\n{result_sentence(figures)}. Digest of the results (without times): {results['digest'][:16]}"
    )


def _check_methods(option: str, suite: Suite) -> None:
    """Refuse unknown methods, also among those whose options the suite sets or tries."""
    known = list(registry.names("algorithm"))
    named = [*suite.methods, *suite.told, *suite.tried]
    _check_names(option, [name for name in named if ":" not in name], known)
    for name in named:
        if ":" in name:
            # Imported now: a slip in the name of a module would else be found in every run.
            registry.find("algorithm", name)


def _check_names(option: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            expected = f"one or more of {', '.join(known)}"
            hint = nearest(name, known)
            raise ConfigError("unknown-choice", option, got=name, allowed=expected, hint=hint)


@dataclass
class SuiteProgress:
    """Prints a line now and then: a suite has hundreds of runs of a second."""

    ended: int = 0
    printed: float = field(default_factory=time.monotonic)

    def __call__(self, run: SweepRun, state: str, reason: str) -> None:
        """A run has ended."""
        self.ended += 1
        if time.monotonic() - self.printed > PROGRESS_SECONDS:
            say(f"    {counted(self.ended, 'run')} finished, most recently {run.name}")
            self.printed = time.monotonic()
