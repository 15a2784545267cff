"""The answer in words: what is recommended, and all that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coterie.core.arrays import IntArray
from coterie.data import Population
from coterie.experiment import Experiment
from coterie.headline import ACCURACY
from coterie.measures.gains import Gain
from coterie.measures.verdict import Verdict
from coterie.studies.advise.differences import GroupDifferences, describe_differences
from coterie.studies.advise.probe import STEPS, ProbeResult
from coterie.studies.advise.scoreboard import kinds_of, method_scores
from coterie.studies.advise.trials import Trial, TrialBudget
from coterie.terminal import counted

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
    ]
    lines.append(probe_text(advice.found))
    if advice.found.groups > 1:
        lines += [_differences(advice), margin_text(advice.found)]
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
    # Published scores are accuracies of classes.
    if advice.best.headline == ACCURACY:
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


def _differences(advice: Advice) -> str:
    return describe_differences(advice.differing, classes=bool(advice.population.classes))
