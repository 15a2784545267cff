"""The answer: what is recommended, and all that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coterie.core.arrays import IntArray
from coterie.data import Population
from coterie.experiment import Experiment
from coterie.math.group_count import MANY_CLIENTS
from coterie.studies.advise.decision import Gain, Verdict
from coterie.studies.advise.differences import GroupDifferences
from coterie.studies.advise.probe import ProbeResult
from coterie.studies.advise.trials import Trial, TrialBudget
from coterie.studies.advise.wording import points_text
from coterie.terminal import counted


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice, and what it rests on.

    Args:
        best: the trial recommended; FedAvg if grouping does not help.
        baseline: FedAvg, or FedAvg after the cold start of FedGroup (`warm_start`): whichever got
            further.
        plain: FedAvg without and with that cold start.
        gains: of each candidate over the baseline.
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
            f"{name}: {gained}). That is no proof that there is none: stay with FedAvg, or try groups on "
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
