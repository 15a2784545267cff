"""The answer in words: what is recommended, and all that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coterie.core.arrays import IntArray
from coterie.data import Population
from coterie.experiment import Experiment
from coterie.headline import ACCURACY
from coterie.math.group_count import MANY_CLIENTS
from coterie.studies.advise.decision import FORCED_GROUPS, Gain, Verdict
from coterie.studies.advise.differences import GroupDifferences, describe_differences
from coterie.studies.advise.probe import STEPS, ProbeResult
from coterie.studies.advise.scoreboard import kinds_of, method_scores
from coterie.studies.advise.trials import Trial, TrialBudget
from coterie.terminal import counted

# --- the probe and the trials ---------------------------------------------------------------------

MIN_MARGIN = 0.05  # a client with less is said to lie between two groups


def groups_text(groups: int) -> str:
    """How many groups there are.

    Example:
        >>> groups_text(1), groups_text(3)
        ('one group', '3 groups')
    """
    if groups == 1:
        return "one group"
    return f"{groups} groups"


def points_text(found: Gain) -> str:
    """A gain and its uncertainty, in the unit of the headline: percentage points of a fraction."""
    headline = found.headline
    gained = headline.short(found.mean, sign="+")
    return f"{gained} ± {headline.short(found.half)} {headline.step}".rstrip()


def trial_text(trial: Trial, found: Gain) -> str:
    """What a candidate reached, and what it gained over the baseline."""
    groups = counted(trial.groups, "group")
    return f"{trial.name}: {trial.headline.text(trial.score)}, {groups}, {points_text(found)}"


def probe_text(found: ProbeResult) -> str:
    """How many groups first updates show, and whether parts of the clients show as many."""
    clients = counted(len(found.ids), "client")
    groups = groups_text(found.groups)
    text = f"{clients} took {STEPS} steps from the same model; their updates form {groups}"
    in_parts = found.groups_in_parts
    # Few clients cannot be counted in parts.
    if in_parts:
        same = sum(groups == found.groups for groups in in_parts)
        text += f" (the same number in {same} of {len(in_parts)} samples of 80 % of the clients)"
    return f"{text}."


def margin_text(found: ProbeResult) -> str:
    """How many clients lie between two groups."""
    # A margin that is not known is NaN, which is not below any number.
    unsure = int((found.margin < MIN_MARGIN).sum())
    if unsure == 0:
        return "No client lies between two groups."
    if unsure == 1:
        return "1 client lies between two groups."
    return f"{unsure:,} clients lie between two groups."


# --- the answer -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice, and what it rests on.

    Args:
        best: the trial recommended; FedAvg if grouping does not help.
        baseline: FedAvg, or FedAvg after the cold start of FedGroup (`warm_start`): whichever got
            further.
        plain: FedAvg without and with that cold start.
        gains: the gain of each candidate over the baseline.
        member: int64 ``[N]``, the group of each client as recommended.
        config: the configuration suggested.
        rates: learning rate -> what FedAvg reached with it; empty if none was searched.
        cohort: clients in a round of a trial.
        alone: the trial in which every client trains for itself.
        over_alone: what the trial recommended gains over it.
    """

    verdict: Verdict
    best: Trial
    baseline: Trial
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
    over_alone: Gain

    def cost(self, trial: Trial) -> dict[str, float]:
        """Bytes and seconds of a method with the rounds and the cohort that are suggested."""
        train = self.config.train
        return trial.cost(train.rounds, min(1.0, train.clients_per_round / self.cohort))

    @property
    def too_few(self) -> bool:
        """Whether the clients are so few that groups may gain what the trials could not show."""
        if len(self.found.ids) >= MANY_CLIENTS:
            return False
        return any(found.mean + found.half >= found.least for found in self.gains.values())

    def _nothing_shown(self) -> str:
        """The answer where an interval leaves room for a gain."""
        name = max(self.gains, key=lambda one: self.gains[one].mean)
        found = self.gains[name]
        gained = f"{points_text(found)} {found.headline.title}"
        return (
            f"With {counted(len(self.found.ids), 'client')} no gain of groups could be shown (the best, "
            f"{name}: {gained}). That does not prove that there is none: stay with FedAvg, or try groups on "
            "more clients."
        )

    @property
    def headline(self) -> str:
        """The answer in a sentence."""
        if self.verdict in ("one group", "groups without gain") and self.too_few:
            return self._nothing_shown()
        if self.verdict == "one group":
            return "Grouping will not help: the clients form one group."
        if self.verdict == "groups without gain":
            return (
                f"There are {self.found.groups} groups, but grouping gained nothing in the probe: "
                "stay with FedAvg."
            )
        found = self.gains[self.best.name]
        gained = f"{points_text(found)} {found.headline.title} over FedAvg after {counted(self.budget.rounds, 'round')}"
        if self.verdict == "splits":
            split = f"a split into {self.best.groups} gained: {self.best.name}, {gained}."
            return f"No separate groups, yet {split}"
        groups = counted(self.best.groups, "group")
        return f"Grouping helps: {groups}, by {self.best.name}, {gained}."


# --- what it rests on -----------------------------------------------------------------------------


def evidence(advice: Advice) -> list[str]:
    """What the advice rests on, a sentence each."""
    lines = [probe_text(advice.found)]
    if advice.found.groups > 1:
        lines += [_differences(advice), margin_text(advice.found)]
    elif advice.verdict == "one group":
        lines.append(
            f"A split into {FORCED_GROUPS} groups gave no gain that is larger than its uncertainty."
        )
    # Without a shift in the configuration FlexCFL was not tried: there it equals FedGroup.
    if advice.verdict == "helps" and advice.best.name != "flexcfl":
        lines.append(
            "If clients' data change over time, use flexcfl: it moves clients to another group "
            "when their data change."
        )
    lines.append(_alone(advice))
    # Published scores are accuracies of classes.
    if advice.best.headline == ACCURACY:
        kinds = kinds_of(advice.found.groups, advice.differing)
        lines += [method_scores(kind).text for kind in kinds]
    return lines


def _alone(advice: Advice) -> str:
    """How training alone does in the same rounds, and whether it is better."""
    found = advice.over_alone
    reached = advice.alone.headline.text(advice.alone.score)
    text = f"Local training reached {reached}; {advice.best.name} gained "
    text += f"{points_text(found)} over that."
    if found.mean + found.half < 0:
        text += " So clients do better with local training than with any method tried."
    return text


def _differences(advice: Advice) -> str:
    return describe_differences(advice.differing, classes=bool(advice.population.classes))
