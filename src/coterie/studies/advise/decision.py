"""The advice: does grouping help, into which groups, by which method, and at what cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from coterie.config import RunConfig, check
from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data import Population
from coterie.errors import ConfigError
from coterie.models import starts
from coterie.studies.advise.probe import STEPS, Found, differences, in_words, look
from coterie.studies.advise.trials import Bench, Gain, Trial, best_rate, gain, with_algorithm
from coterie.terminal import counted, percent

BASELINE = "fedavg"
WARM = "fedavg, warm start"
CANDIDATES = ("fedgroup", "flexcfl", "ifca", "fedclust")
MARGIN = 0.005  # a gain that is smaller than half a point is not worth groups
FORCED = 2  # groups that are tried where one was found
Verdict = Literal["helps", "splits", "groups without gain", "one group"]


@dataclass(frozen=True, slots=True)
class Advice:
    """What came of the probe.

    Args:
        verdict: in a word, see `decide`.
        best: the trial recommended; FedAvg where grouping does not help.
        baseline: FedAvg, or FedAvg after a cold start as FedGroup's (`warm`), whichever got
            further.
        plain: the two.
        trials: of the candidates.
        gains: of each candidate over the baseline.
        found: the groups that first updates show.
        differing: in what they differ, see `looking.differences`.
        member: int64 ``[N]``, the group of each client as recommended.
        population: the clients.
        config: the configuration suggested.
        rounds: of each trial.
        seeds: of each trial.
        rates: what FedAvg reached with each learning rate, where they were tried.
        seconds: that it all took.
        cohort: clients asked in a round of a trial.
    """

    verdict: Verdict
    best: Trial
    baseline: Trial
    plain: tuple[Trial, ...]
    trials: Mapping[str, Trial]
    gains: Mapping[str, Gain]
    found: Found
    differing: Mapping[str, Any]
    member: IntArray
    population: Population
    config: RunConfig
    rounds: int
    seeds: int
    rates: Mapping[float, float]
    seconds: float
    cohort: int

    def cost(self, trial: Trial) -> dict[str, float]:
        """Bytes and seconds of all rounds of the configuration suggested, with as many clients a
        round as it has."""
        return trial.cost(
            self.config.train.rounds, min(1.0, self.config.train.clients_per_round / self.cohort)
        )

    @property
    def headline(self) -> str:
        """The answer in a sentence."""
        name = self.best.name
        if self.verdict == "one group":
            return "Grouping will not help: the clients form one group."
        if self.verdict == "groups without gain":
            return f"There are {self.found.groups} groups, but grouping gained nothing in the probe: stay with FedAvg."
        found = self.gains[name]
        what = f"{100 * found.mean:+.1f} ± {100 * found.half:.1f} points over FedAvg after {counted(self.rounds, 'round')}"
        if self.verdict == "splits":
            return (
                f"No separate groups, yet a split into {self.best.groups} gained: {name}, {what}."
            )
        return f"Grouping helps: {counted(self.best.groups, 'group')}, by {name}, {what}."


def advise(
    config: RunConfig,
    population: Population,
    *,
    search: bool = False,
    bare: bool = False,
    rounds: int = 15,
    seeds: int = 3,
    methods: Sequence[str] = (),
    told: Callable[[str], None] = lambda line: None,
) -> Advice:
    """Probe the clients' training samples, and judge.

    Args:
        config: data, model, local solver; its algorithm does not matter.
        population: the clients.
        search: choose the learning rate first.
        bare: the configuration says nothing of the cohort; choose one that suits the clients.
        rounds: of each trial.
        seeds: of each trial.
        methods: the candidates, of ``fedgroup``, ``flexcfl``, ``ifca``, ``fedclust``; default all,
            but FlexCFL only where the configuration has a shift: without one it is FedGroup.
        told: called with a line now and then.

    Raises:
        ConfigError: for a method that is none of the candidates, or fewer clients than can be
            grouped.
    """
    begun = time.monotonic()
    methods = methods or [name for name in CANDIDATES if name != "flexcfl" or config.shifts()]
    _check(population, methods)
    config = _full(config, population) if bare else config
    bench = Bench.of(config, population)
    rates: dict[float, float] = {}
    if search:
        rate, rates = best_rate(bench)
        told(
            f"learning rate: {rate:g}, by three rounds of fedavg with each of {', '.join(f'{r:g}' for r in rates)}"
        )
        config = check(
            {**config.resolved(), "local": {**config.resolved()["local"], "lr": rate}}, config.file
        )
        bench = Bench.of(config, population)
    key = Key(config.seed).of("advise")
    with bench.door(bench.module) as door:
        found = look(door, bench.population, starts(bench.module, Key(config.seed))(0), key)
    told(f"first updates of {counted(len(found.ids), 'client')}: {_groups(found.groups)}")
    differing = differences(bench.population, found.member, key.of("differences"))
    plain = (bench.trial(BASELINE, {}, rounds, seeds), warm(bench, found.groups, rounds, seeds))
    baseline = max(plain, key=lambda one: one.accuracy)
    reached = ", ".join(f"{one.name}: {percent(one.accuracy)}" for one in plain)
    told(f"{reached} of the held-out samples after {counted(rounds, 'round')}")
    trials = {}
    gains = {}
    for name in methods:
        trials[name] = bench.trial(
            name, options(name, found.groups, population.clients), rounds, seeds
        )
        gains[name] = gain(trials[name], baseline, key)
        told(_told(trials[name], gains[name]))
    verdict, best = decide(found.groups, trials, gains, bool(config.shifts()))
    chosen = trials[best] if best else plain[0]
    member = _members(verdict, chosen, found)
    suggested = with_algorithm(config, chosen.name, chosen.options)
    return Advice(
        verdict,
        chosen,
        baseline,
        plain,
        trials,
        gains,
        found,
        differing,
        member,
        population,
        suggested,
        rounds,
        seeds,
        rates,
        time.monotonic() - begun,
        min(bench.cohort, int((population.sizes("train") > 0).sum())),
    )


def _check(population: Population, methods: Sequence[str]) -> None:
    for name in methods:
        if name not in CANDIDATES:
            raise ConfigError(
                f"--methods: unknown choice, got {name!r}; expected one of {', '.join(CANDIDATES)}"
            )
    able = int((population.sizes("train") > 1).sum())
    if population.classes < 2:
        raise ConfigError(
            "advise: all samples have the same label, got 1 class; expected at least 2"
        )
    if able < 2 * FORCED:
        raise ConfigError(
            f"advise: too few clients with two training samples, got {able}; expected at least {2 * FORCED}"
        )


def warm(bench: Bench, groups: int, rounds: int, seeds: int) -> Trial:
    """FedAvg that starts from the mean of the updates of as many clients as FedGroup's cold start
    asks.

    Without it a short run would take FedGroup's head start for a gain of its groups.
    """
    clients = bench.population.clients
    asked = options("fedgroup", groups, clients)
    found = bench.trial(
        "fedgroup", {"groups": 1, "alpha": asked["groups"] * asked["alpha"]}, rounds, seeds
    )
    return replace(found, name=WARM)


def _groups(m: int) -> str:
    if m == 1:
        return "one group"
    return f"{m} groups"


def _told(trial: Trial, found: Gain) -> str:
    made = f"{trial.name}: {percent(trial.accuracy)}, {counted(trial.groups, 'group')}"
    return f"{made}, {100 * found.mean:+.1f} ± {100 * found.half:.1f} points"


def options(name: str, groups: int, clients: int) -> dict[str, Any]:
    """The options with which a candidate is tried: as many groups as were found, two where that is
    one.

    Example:
        >>> options("fedgroup", 3, 60), options("ifca", 1, 60), options("fedclust", 3, 60)
        ({'groups': 3, 'alpha': 20}, {'groups': 2}, {})
    """
    m = min(max(groups, FORCED), clients)
    if name == "fedclust":
        if groups > 1:
            return {}
        return {"groups": FORCED}
    return {"groups": m, **({} if name == "ifca" else {"alpha": max(1, min(20, clients // m))})}


def decide(
    groups: int, trials: Mapping[str, Trial], gains: Mapping[str, Gain], shifting: bool = False
) -> tuple[Verdict, str | None]:
    """The verdict, and the candidate recommended, if one is.

    A candidate counts if its gain is above zero by more than its uncertainty and at least half a
    point. Of those whose gain cannot be told from the best one's, the one that moves the fewest
    bytes is chosen; among equals FlexCFL where the data shift, else the first.

    Returns:
        ``helps``: there are groups, and they gain; ``splits``: there are none, and a split gained
        all the same; ``groups without gain``; ``one group``: there is one, and splits gained
        nothing.
    """
    helpful = [
        name
        for name, g in gains.items()
        if g.mean - g.half > 0 and g.mean >= MARGIN and trials[name].groups > 1
    ]
    if not helpful:
        return ("groups without gain" if groups > 1 else "one group"), None
    top = max(helpful, key=lambda name: gains[name].mean)
    alike = [name for name in helpful if gains[name].mean >= gains[top].mean - gains[top].half]
    least = min(_moved(trials[name]) for name in alike)
    cheap = [name for name in alike if _moved(trials[name]) <= 1.02 * least]
    chosen = "flexcfl" if shifting and "flexcfl" in alike else cheap[0]
    return ("helps" if groups > 1 else "splits"), chosen


def _moved(trial: Trial) -> float:
    if trial.rows:
        return trial.cost(len(trial.rows))["bytes"]
    return 0.0


def _members(verdict: Verdict, chosen: Trial, found: Found) -> IntArray:
    """The groups of the method that is recommended, the largest first; one group where none is."""
    if verdict not in ("helps", "splits"):
        return np.where(found.member >= 0, 0, found.member)
    sizes = np.bincount(chosen.member[chosen.member >= 0])
    place = np.argsort(np.argsort(-sizes, kind="stable"))
    return np.where(chosen.member >= 0, place[np.maximum(chosen.member, 0)], -1)


def _full(config: RunConfig, population: Population) -> RunConfig:
    """The configuration of a whole run on a bare file: with a cohort that suits its clients."""
    resolved = config.resolved()
    cohort = min(population.clients, max(10, -(-population.clients // 10)))
    return check(
        {**resolved, "train": {**resolved["train"], "clients_per_round": cohort}}, config.file
    )


def summary_of(advice: Advice) -> list[str]:
    """What the advice rests on, a sentence each."""
    found, n = advice.found, len(advice.found.ids)
    asked = f"{counted(n, 'client')} took {STEPS} steps from the same model; their updates form {_groups(found.groups)}"
    alike = sum(m == found.groups for m in found.again)
    again = (
        f" (as many in {alike} of {len(found.again)} samples of 80 % of the clients)"
        if found.again
        else ""
    )
    lines = [f"{asked}{again}."]
    if found.groups > 1:
        lines.append(in_words(advice.differing))
        unsure = int((advice.found.margin < 0.05).sum())
        lie = "lies" if unsure == 1 else "lie"
        lines.append(
            f"{counted(unsure, 'client')} {lie} between two groups."
            if unsure
            else "No client lies between two."
        )
    elif advice.verdict == "one group":
        lines.append(
            f"Made to split into {FORCED}, they gained nothing that could be told from chance."
        )
    if advice.best.name in ("fedgroup", "ifca", "fedclust") and advice.verdict == "helps":
        lines.append(
            "If clients' data change as time goes by, take flexcfl: its clients move to another group when theirs do."
        )
    return lines
