"""The answer in words: what is recommended, and all that it rests on."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from coterie.core.arrays import IntArray
from coterie.data import Population
from coterie.experiment import Experiment
from coterie.headline import ACCURACY
from coterie.measures.gains import Gain
from coterie.measures.verdict import Verdict
from coterie.studies.advise.differences import GroupDifferences, describe_differences
from coterie.studies.advise.probe import STEPS, ProbeResult
from coterie.studies.advise.trials import Trial, TrialBudget
from coterie.studies.scoreboard.figures import SuiteFigures
from coterie.studies.scoreboard.results_file import published, read_results
from coterie.studies.scoreboard.running import DEFAULTS
from coterie.studies.scoreboard.suite import BASELINE, ORACLE, Federation
from coterie.sweep.comparison import Difference, paired
from coterie.terminal import ALONE, counted

# --- the probe and the trials ---------------------------------------------------------------------

MIN_MARGIN = 0.05  # a client with less is said to lie between two groups


def trial_text(trial: Trial, found: Gain) -> str:
    """What a candidate reached, and what it gained over the bar."""
    groups = counted(trial.groups, "group")
    return f"{trial.name}: {trial.text}, {groups}, {found.text}"


def probe_text(found: ProbeResult) -> str:
    """How many groups first updates show, and whether parts of the clients show as many."""
    clients = counted(len(found.ids), "client")
    groups = counted(found.groups, "group")
    text = f"{clients} took {STEPS} steps from the same model; their updates form {groups}"
    in_parts = found.groups_in_parts
    # Few clients cannot be counted in parts.
    if in_parts:
        same = sum(groups == found.groups for groups in in_parts)
        text += f" (the same number in {same} of {len(in_parts)} samples of 80 % of the clients)"
        if 2 * same < len(in_parts):
            text += "; other numbers were found in most samples, so the number is not certain"
    return f"{text}."


def margin_text(found: ProbeResult) -> str:
    """How many clients lie between two groups."""
    # A margin that is not known is NaN, which is not below any number.
    unsure = int((found.margin < MIN_MARGIN).sum())
    if unsure == 1:
        return "1 client lies between two groups."
    return f"{unsure or 'No'} clients lie between two groups."


# --- the answer -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice, and what it rests on.

    Args:
        verdict: whether grouping is worth it.
        best: the trial recommended; FedAvg or training alone where grouping does not help.
        bar: FedAvg, FedAvg after the cold start of FedGroup (`warm_start`), or training alone:
            whichever serves clients best.
        plain: FedAvg without and with that cold start.
        gains: what each other trial gains over the bar.
        member: int64 ``[N]``, the group of each client as recommended.
        config: the configuration suggested.
        rates: learning rate -> what FedAvg reached with it; empty if none was searched.
        cohort: clients in a round of a trial.
        alone: the trial in which every client trains for itself.
    """

    verdict: Verdict
    best: Trial
    bar: Trial
    plain: tuple[Trial, ...]
    trials: Mapping[str, Trial]
    gains: Mapping[str, Gain]
    found: ProbeResult
    differing: GroupDifferences
    member: IntArray
    population: Population
    config: Experiment
    budget: TrialBudget
    rates: Mapping[float, float]
    seconds: float
    cohort: int
    alone: Trial

    def cost(self, trial: Trial) -> dict[str, float]:
        """Bytes and seconds of a method with the rounds and the cohort that are suggested."""
        train = self.config.train
        return trial.cost(train.rounds, min(1.0, train.clients_per_round / self.cohort))

    @property
    def headline(self) -> str:
        """The answer in a sentence."""
        return self.verdict.title


# --- what it rests on -----------------------------------------------------------------------------


def evidence(advice: Advice) -> list[str]:
    """What the advice rests on, a sentence each."""
    lines = [
        f"Recommended: {advice.best.name}. {advice.verdict.detail}".rstrip(),
        _trials_text(advice),
        probe_text(advice.found),
    ]
    if advice.found.groups > 1:
        classes = bool(advice.population.classes)
        lines += [
            describe_differences(advice.differing, classes=classes),
            margin_text(advice.found),
        ]
    elif advice.verdict.answer == "helps":
        lines.append(f"A split into {advice.best.groups} helps, although updates show one group.")
    if advice.verdict.answer == "not shown":
        lines.append(
            "That does not prove that there is no gain: more clients, rounds or seeds may show one."
        )
    # Without a shift in the configuration FlexCFL was not tried: there it equals FedGroup.
    if advice.verdict.answer == "helps" and advice.best.name != "flexcfl":
        lines.append(
            "If clients' data change over time, use flexcfl: it moves clients to another group "
            "when their data change."
        )
    if advice.best.headline == ACCURACY:
        trials = (*advice.plain, advice.alone, *advice.trials.values())
        lines += nothing_learned(trials, advice.population)
        # Published scores are accuracies of classes.
        kinds = kinds_of(advice.found.groups, advice.differing)
        lines += [method_scores(kind).text for kind in kinds]
    return lines


def _trials_text(advice: Advice) -> str:
    """How these trials differ from the runs of a comparison."""
    rounds = counted(advice.budget.rounds, "round")
    return (
        f"These are short runs of {rounds}, scored on training samples that are held out; in whole "
        "runs, which coterie compare makes, another bar may be the better one."
    )


def nothing_learned(trials: Sequence[Trial], population: Population) -> list[str]:
    """A sentence if no trial is better than one answer for all samples, which needs no model."""
    labels = population.histograms().sum(axis=0)
    frequent = float(labels.max() / labels.sum())
    # By chance the best of several trials is hardly ever more than three deviations above it.
    chance = 3 * (frequent * (1 - frequent) / trials[0].sums["size"][0].sum()) ** 0.5
    if max(trial.score for trial in trials) > frequent + chance:
        return []
    return [
        "Nothing was learned: no method was better than always predicting the most frequent label "
        f"({100 * frequent:.1f} %). Check the labels, the learning rate and the model."
    ]


# --- the published scoreboard ---------------------------------------------------------------------


SUITE = "small"
SHOWN = 3  # of the best methods
PLAIN = (BASELINE, ALONE)
# In what groups may differ, and how a sentence says it.
WORDS = {
    "inputs": "whose groups have different inputs",
    "labels": "whose groups label the same inputs differently",
    "classes": "whose groups have different classes",
    "shares": "without groups, whose clients have different class shares",
    "nothing": "whose clients are similar",
}
# What may be the case where no groups are found.
WITHOUT_GROUPS = ("nothing", "shares")


@dataclass(frozen=True)
class MethodScores:
    """The mean score of each method over the federations of a kind.

    Args:
        scores: method -> mean score from 0 to 1, the best first.
        gain: gain of the best method over the better of FedAvg and local training, by federation and
            seed; ``None`` where no method is there.
    """

    kind: str
    federations: int
    scores: Mapping[str, float]
    gain: Difference | None = None

    @property
    def is_better(self) -> bool:
        """Whether the best method is better than these two, and not by chance alone."""
        if self.gain is None or self.gain.half is None:
            return False
        return self.gain.mean > self.gain.half

    @property
    def text(self) -> str:
        """The record in a sentence or two.

        Example:
            >>> scores = {"ifca": 0.905, "fedavg": 0.9, "local": 0.8}
            >>> found = MethodScores("nothing", 2, scores, Difference(0.005, 0.01, pairs=6))
            >>> for part in found.text.split(": ")[1].split(". "):
            ...     print(part)
            ifca 90.5 %, compared with fedavg 90.0 %, local 80.0 %
            No method is clearly better than fedavg there.
        """
        best = [name for name in self.scores if name not in PLAIN][:SHOWN]
        plain = [name for name in PLAIN if name in self.scores]
        federations = counted(self.federations, "federation")
        text = (
            f"On the scoreboard, over {federations} {WORDS[self.kind]}: {self._list(best)}, "
            f"compared with {self._list(plain)}."
        )
        if not self.is_better:
            baseline = next(name for name in self.scores if name in PLAIN)
            text += f" No method is clearly better than {baseline} there."
        return text

    def _list(self, names: Sequence[str]) -> str:
        return ", ".join(f"{name} {100 * self.scores[name]:.1f} %" for name in names)


def kinds_of(groups: int, differing: GroupDifferences) -> tuple[str, ...]:
    """In what clients may differ, in the words of the scoreboard; none if that is not known.

    Example:
        >>> kinds_of(1, GroupDifferences())
        ('nothing', 'shares')
    """
    if groups < 2:
        return WITHOUT_GROUPS
    kinds = differing.kinds
    # Where every kind is possible, nothing was learned about the groups.
    return kinds if len(kinds) <= 2 else ()


# The file that comes with Coterie stays the same, and is long to read and to check.
@cache
def method_scores(kind: str) -> MethodScores:
    """The scores on the federations of a kind: with defaults, at equal work, of the clients that
    train."""
    results = read_results(published(SUITE))
    figures = SuiteFigures(results, results["entries"])
    federations = [
        one
        for one in figures.suite.federations
        if one.score == "served" and _is_of_kind(kind, one.differ, one.groups)
    ]
    scores = {}
    for method in figures.methods:
        found = [figures.figure(one, method, DEFAULTS, "equal_work") for one in federations]
        known = [spread.mean for spread in found if spread is not None]
        # A method that was refused somewhere has no mean that could be compared.
        if len(known) == len(found) and method != ORACLE:
            scores[method] = statistics.fmean(known)
    ordered = dict(sorted(scores.items(), key=lambda item: -item[1]))
    gain = None
    ours = next((name for name in ordered if name not in PLAIN), None)
    theirs = next((name for name in ordered if name in PLAIN), None)
    if ours is not None and theirs is not None:
        by_run = _by_run(figures, federations, theirs)
        runs = _by_run(figures, federations, ours).items()
        gain = paired([score - by_run[run] for run, score in runs if run in by_run])
    return MethodScores(kind, len(federations), ordered, gain)


def _by_run(
    figures: SuiteFigures, federations: Sequence[Federation], method: str
) -> dict[tuple[str, int], float]:
    """The scores of a method by federation and seed."""
    return {
        (one.name, run["seed"]): run["equal_work"]
        for one in federations
        for run in (figures.entry(one, method, DEFAULTS) or {"runs": ()})["runs"]
        if run["equal_work"] is not None
    }


def _is_of_kind(kind: str, differ: str, groups: int | None) -> bool:
    if kind == "shares":
        return groups is None and differ == "classes"
    if kind == "nothing":
        return groups is None and differ == "nothing"
    return groups is not None and differ == kind
