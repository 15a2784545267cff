"""The runs of a scoreboard: trials that choose settings, and then the runs that are scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.config import registry
from coterie.errors import ConfigError
from coterie.experiment import check
from coterie.headline import Headline
from coterie.runs.compose import task_headline
from coterie.runs.folder.store import RunFolder
from coterie.studies.scoreboard.measure import Course, FedAvgBudget, course_of, figures_of_run
from coterie.studies.scoreboard.suite import (
    BASELINE,
    Federation,
    Score,
    Setting,
    Suite,
    default_setting,
    option_trials,
    rate_trials,
    sweep_run,
)
from coterie.sweep.plan import SweepRun
from coterie.sweep.run_once import is_done
from coterie.sweep.runner import Report, sweep

DEFAULTS = "defaults"
TUNED = "tuned"


@dataclass
class Entry:
    """A method on a federation.

    Args:
        settings: the name of the rule for settings; `TUNED` if they are chosen.
        tried: the settings among which it is chosen, by a run each.
        refused: why the method cannot be configured here; empty where it can.
    """

    federation: Federation
    method: str
    settings: dict[str, Setting] = field(default_factory=dict)
    tried: list[Setting] = field(default_factory=list)
    refused: str = ""

    def refuse(self, why: str) -> None:
        """The method cannot be configured here."""
        self.refused = why


@dataclass
class Scoreboard:
    """The runs of a suite in a folder, executed once each. ``stop`` is called several times a
    second and returns the number of a signal, or 0."""

    suite: Suite
    runs: Path
    jobs: int
    report: Report
    stop: Callable[[], int]
    say: Callable[[str], None]
    root: str | None = None
    entries: list[Entry] = field(init=False)
    # Of the runs that failed: id -> why.
    problems: dict[str, str] = field(default_factory=dict, init=False)
    # Runs by what they are of: to check a configuration takes milliseconds, and each is asked for
    # several times.
    _named: dict[tuple[str, str, str, int, bool], SweepRun | None] = field(
        default_factory=dict, init=False
    )
    # Of finished runs: id and score -> course. To read one, every file of its folder is checked.
    _courses: dict[tuple[str, Score], Course] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        # FedAvg is run where it is left out, too: it sets the budget.
        names = [*self.suite.methods]
        if BASELINE not in names:
            names.insert(0, BASELINE)
        self.entries = [
            self._entry(federation, method)
            for federation in self.suite.federations
            for method in names
        ]

    def _entry(self, federation: Federation, method: str) -> Entry:
        try:
            setting = default_setting(self.suite, federation, method)
        except ConfigError as error:
            return Entry(federation, method, {DEFAULTS: Setting()}, refused=str(error))
        return Entry(federation, method, {DEFAULTS: setting})

    def carry_out(self) -> None:
        """Do every run that is not done, the trials first.

        Raises:
            ConfigError: for a federation that is not valid even for FedAvg.
            Stopped: if ``stop`` returned a signal; the state of every run is saved.
        """
        self._tune()
        wanted = [
            (entry, self._run(entry, setting, seed))
            for seed in self.suite.seeds
            for entry in self.entries
            for setting in entry.settings.values()
        ]
        self.say(f"scored runs: {len(self._different(wanted))}")
        self._execute(wanted)

    def _tune(self) -> None:
        """Choose each entry's tuned setting, by its score on samples that are kept back."""
        tuned = [entry for entry in self.entries if self._is_tuned(entry)]
        for entry in tuned:
            entry.tried.extend(rate_trials(self.suite, entry.settings[DEFAULTS]))
        self._try(tuned, "learning rates")
        for entry in tuned:
            entry.tried.extend(option_trials(self.suite, entry.method, self._best(entry)))
        self._try(tuned, "options")
        for entry in tuned:
            entry.settings[TUNED] = self._best(entry)

    def _is_tuned(self, entry: Entry) -> bool:
        # Samples that move between clients cannot be kept back from them.
        moves = "shift" in entry.federation.tables
        return bool(self.suite.rates) and not moves and not entry.refused

    def _try(self, entries: Sequence[Entry], what: str) -> None:
        """Do the trials of some entries that are not done."""
        wanted = [
            (entry, self._run(entry, setting, self.suite.seeds[0], validated=True))
            for entry in entries
            for setting in entry.tried
        ]
        self.say(f"trials of {what}: {len(self._different(wanted))} in all")
        self._execute(wanted)

    def _best(self, entry: Entry) -> Setting:
        """The setting of those tried with the best score at equal work; the first of equals, and the
        default one where none has a score."""
        seed = self.suite.seeds[0]
        score = entry.federation.score
        budget = self._budget(entry.federation, seed, validated=True)
        scores = {}
        for number, setting in enumerate(entry.tried):
            run = self._run(entry, setting, seed, validated=True)
            course = self._course(run, score)
            if run is None or course is None or budget is None:
                continue
            value = course.value(score, course.rounds_within(steps=budget.steps))
            if value is not None:
                scores[number] = headline_of_run(run).gain(value, over=0.0)
        if not scores:
            return entry.settings[DEFAULTS]
        return entry.tried[max(scores, key=lambda number: scores[number])]

    def _budget(
        self, federation: Federation, seed: int, *, validated: bool = False
    ) -> FedAvgBudget | None:
        """What FedAvg spends on the same clients; ``None`` if its run is not done."""
        entry = next(
            one for one in self.entries if one.federation is federation and one.method == BASELINE
        )
        setting = entry.settings[DEFAULTS]
        if validated:
            # Any learning rate takes as many steps.
            (setting, *_) = rate_trials(self.suite, setting)
        course = self._course(self._run(entry, setting, seed, validated=validated), "served")
        if course is None:
            return None
        return course.spent

    def _course(self, run: SweepRun | None, score: Score) -> Course | None:
        """The course of a run; ``None`` while it is not done."""
        if run is None:
            return None
        key = (run.id, score)
        if key not in self._courses:
            if not is_done(run, self.runs):
                return None
            folder = RunFolder.open(self.runs / run.id)
            self._courses[key] = course_of(folder, headline_of_run(run), score)
        return self._courses[key]

    def _run(
        self, entry: Entry, setting: Setting, seed: int, *, validated: bool = False
    ) -> SweepRun | None:
        """The run of a setting; ``None`` for a method that cannot be configured so."""
        if entry.refused:
            return None
        key = (entry.federation.name, entry.method, repr(setting), seed, validated)
        if key not in self._named:
            self._named[key] = None
            where = (self.suite, entry.federation, entry.method)
            try:
                self._named[key] = sweep_run(
                    *where, setting, seed, validated=validated, root=self.root
                )
            except ConfigError as error:
                # Only a trial of options that do not go together is left out without a word.
                if setting is entry.settings[DEFAULTS]:
                    if entry.method == BASELINE:
                        raise
                    entry.refuse(str(error).splitlines()[0])
        return self._named[key]

    def _different(self, wanted: Sequence[tuple[Entry, SweepRun | None]]) -> list[SweepRun]:
        """Each run once, in order: settings may be the same."""
        known = {run.id: run for _, run in wanted if run is not None}
        return list(known.values())

    def _execute(self, wanted: Sequence[tuple[Entry, SweepRun | None]]) -> None:
        failures = sweep(self._different(wanted), self.runs, self.jobs, self.report, self.stop)
        for failure in failures:
            # Without the folder, so that equal reasons are one.
            line = failure.line.removeprefix(f"{self.runs / failure.run.id}: ")
            self.problems[failure.run.id] = line

    def results(self, methods: Sequence[str]) -> list[dict[str, Any]]:
        """What is known so far of every entry and setting of some methods, as a results file has
        it."""
        return [
            self._result(entry, name, setting)
            for entry in self.entries
            if entry.method in methods
            for name, setting in entry.settings.items()
        ]

    def _result(self, entry: Entry, name: str, setting: Setting) -> dict[str, Any]:
        found = []
        refused = entry.refused
        score = entry.federation.score
        for seed in self.suite.seeds:
            run = self._run(entry, setting, seed)
            if run is None:
                continue
            budget = self._budget(entry.federation, seed)
            if budget is not None and is_done(run, self.runs):
                # The page draws the curves of the first seed.
                curve = name == DEFAULTS and seed == self.suite.seeds[0]
                headline = headline_of_run(run)
                path = self.runs / run.id
                found.append(figures_of_run(path, headline, score, budget, curve=curve))
            refused = refused or self.problems.get(run.id, "")
        return {
            "federation": entry.federation.name,
            "method": entry.method,
            "package": registry.package("algorithm", entry.method),
            "settings": name,
            "options": dict(setting.options),
            "rate": setting.rate,
            "trials": self._trials(entry) if name == TUNED else 0,
            "refused": refused,
            "runs": found,
        }

    def _trials(self, entry: Entry) -> int:
        """How many settings were tried: without those that the method cannot be configured with."""
        seed = self.suite.seeds[0]
        runs = [self._run(entry, setting, seed, validated=True) for setting in entry.tried]
        return sum(run is not None for run in runs)


def headline_of_run(run: SweepRun) -> Headline:
    """What a run is measured by."""
    return task_headline(check(run.tables))
