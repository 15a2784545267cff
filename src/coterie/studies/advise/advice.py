"""The advice: does grouping help, into which groups, by which method, and at what cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.core.vectors import flatten
from coterie.data import Population
from coterie.errors import ConfigError
from coterie.experiment import Experiment, check
from coterie.experiment.objects import make_choice
from coterie.measures.client_table import ScoredClients
from coterie.measures.gains import Gain
from coterie.measures.verdict import FEDAVG, Verdict, verdict_of, with_reference
from coterie.studies.advise.answer import Advice, trial_text
from coterie.studies.advise.differences import GroupDifferences, differences
from coterie.studies.advise.probe import ProbeResult, probe
from coterie.studies.advise.trials import (
    FORCED_GROUPS,
    Trial,
    TrialBudget,
    TrialSetup,
    best_learning_rate,
    gain,
    recommend,
    trial_options,
    with_algorithm,
)
from coterie.terminal import ALONE, counted

WARM_START = "fedavg, warm start"
CANDIDATES = ("fedgroup", "flexcfl", "ifca", "fedclust")
# They are tried where they are named: each client is sent every model, as by IFCA.
ON_REQUEST = ("clove", "cornflqs")

Report = Callable[[str], None]


def advise(
    config: Experiment,
    population: Population,
    *,
    search: bool = False,
    bare: bool = False,
    budget: TrialBudget = TrialBudget(),
    methods: Sequence[str] = (),
    report: Report = lambda line: None,
) -> Advice:
    """Probe the clients' training samples, try methods, and recommend one.

    Args:
        search: whether to choose the learning rate first.
        bare: whether the configuration says nothing of the cohort; then a suitable one is chosen.
        methods: some of `CANDIDATES` and `ON_REQUEST`; default: all candidates, but FlexCFL only if the
            configuration has a shift.
    """
    begun = time.monotonic()
    methods = _candidates(config, methods)
    _check(population, methods)
    config = _with_cohort(config, population, bare)
    setup = TrialSetup.of(config, population, budget)
    rates: dict[float, float] = {}
    if search:
        setup, rates = _search_learning_rate(setup, report)
    # One stream for all steps: advice on the same data is the same, bit for bit.
    key = Key(config.seed).of("advise")
    found, differing = _probe(setup, key, report)
    # The probe comes first: its number of groups is that of the trials.
    plain = _run_plain(setup, found.groups, report)
    alone = _run_alone(setup, report)
    bar = _better(_better(*plain), alone)
    options = {name: trial_options(name, found.groups, population.clients) for name in methods}
    trials, gains = _run_candidates(setup, options, bar, report)
    # With one group a method gained by something else than groups.
    grouped = {name: found for name, found in gains.items() if trials[name].groups > 1}
    recommended = recommend(trials, grouped, bool(config.shifts()))
    best = alone if bar is alone else plain[0]
    best = best if recommended is None else trials[recommended]
    return Advice(
        verdict=_verdict(grouped, recommended, bar.name, setup.without_model()),
        best=best,
        bar=bar,
        plain=plain,
        trials=trials,
        gains=gains | {one.name: gain(one, bar) for one in (*plain, alone) if one is not bar},
        found=found,
        differing=differing,
        member=_members(best, found),
        population=population,
        config=with_algorithm(setup.config, best.name, best.options),
        budget=budget,
        rates=rates,
        seconds=time.monotonic() - begun,
        cohort=min(setup.cohort, int((population.sizes("train") > 0).sum())),
        alone=alone,
    )


# --- the steps ------------------------------------------------------------------------------------


def _candidates(config: Experiment, methods: Sequence[str]) -> list[str]:
    """The methods to try: those named, or all that differ."""
    if methods:
        return list(methods)
    # FlexCFL only moves clients whose data change, which it sees by their classes. Without a shift
    # it is FedGroup.
    task = make_choice(config, "task")
    follows = bool(config.shifts()) and (task is None or task.class_labels)
    return [name for name in CANDIDATES if name != "flexcfl" or follows]


def _check(population: Population, methods: Sequence[str]) -> None:
    for name in methods:
        if name not in (*CANDIDATES, *ON_REQUEST):
            known = ", ".join((*CANDIDATES, *ON_REQUEST))
            raise ConfigError("unknown-choice", "--methods", got=name, allowed=f"one of {known}")
    if population.classes == 1:
        what = "all samples have the same label"
        raise ConfigError("does-not-fit", "advise", what, found="1 class", allowed="at least 2")
    # Of one sample nothing can be held out, so its client cannot be scored.
    able = int((population.sizes("train") > 1).sum())
    least = 2 * FORCED_GROUPS
    if able < least:
        what = "too few clients with two training samples"
        raise ConfigError("out-of-range", "advise", what, found=able, allowed=f"at least {least}")


def _with_cohort(config: Experiment, population: Population, bare: bool) -> Experiment:
    """The configuration with the cohort that its run has; for a bare file a tenth of the clients, at
    least ten."""
    # The default is lowered to all clients, as in a run.
    cohort = min(population.clients, config.train.clients_per_round)
    if bare:
        # Rounded up; the same share as in the trials.
        tenth = -(-population.clients // 10)
        cohort = min(population.clients, max(10, tenth))
    if cohort == config.train.clients_per_round:
        return config
    tables = config.resolved()
    tables["train"] = {**tables["train"], "clients_per_round": cohort}
    return check(tables, config.file)


def _search_learning_rate(
    setup: TrialSetup, report: Report
) -> tuple[TrialSetup, dict[float, float]]:
    """The trials with the best learning rate, and what each rate reached."""
    best, rates = best_learning_rate(setup)
    tried = ", ".join(f"{rate:g}" for rate in rates)
    report(f"learning rate: {best:g}, by three rounds of fedavg with each of {tried}")
    tables = setup.config.resolved()
    tables["local"] = {**tables["local"], "lr": best}
    return replace(setup, config=check(tables, setup.config.file)), rates


def _probe(setup: TrialSetup, key: Key, report: Report) -> tuple[ProbeResult, GroupDifferences]:
    spec = setup.spec(with_algorithm(setup.config, FEDAVG, {}), setup.config.seed)
    start = flatten(spec.network.module)
    with setup.open_clients(spec) as clients:
        found = probe(clients, setup.population, start, key)
    count = counted(len(found.ids), "client")
    report(f"first updates of {count}: {counted(found.groups, 'group')}")
    return found, differences(setup.population, found.member, key.of("differences"))


def _run_plain(setup: TrialSetup, groups: int, report: Report) -> tuple[Trial, Trial]:
    """FedAvg, and FedAvg after a warm start."""
    plain = setup.run(FEDAVG, {})
    warm = warm_start(setup, groups)
    title = setup.headline.title
    reached = ", ".join(f"{one.name}: {one.text}" for one in (plain, warm))
    rounds = counted(setup.budget.rounds, "round")
    report(f"{reached}: {title} on the held-out samples after {rounds}")
    return plain, warm


def _better(first: Trial, second: Trial) -> Trial:
    """The trial that serves clients better; the first where both are equal."""
    if gain(second, first).mean > 0:
        return second
    return first


def _verdict(
    gains: Mapping[str, Gain], recommended: str | None, bar: str, without_model: ScoredClients
) -> Verdict:
    """The verdict by the method recommended, else by the best one."""
    if recommended is not None:
        gains = {recommended: gains[recommended]}
    return with_reference(verdict_of(gains, bar), [without_model])


def _run_alone(setup: TrialSetup, report: Report) -> Trial:
    """The trial in which every client trains for itself."""
    alone = setup.run(ALONE, {})
    report(f"{ALONE}: {alone.text}, every client for itself")
    return alone


def _run_candidates(
    setup: TrialSetup, options: Mapping[str, Mapping[str, Any]], bar: Trial, report: Report
) -> tuple[dict[str, Trial], dict[str, Gain]]:
    """The trial of each candidate with its options, and what it gains over the bar."""
    trials = {}
    gains = {}
    for name in options:
        trials[name] = setup.run(name, options[name])
        gains[name] = gain(trials[name], bar)
        report(trial_text(trials[name], gains[name]))
    return trials, gains


def warm_start(setup: TrialSetup, groups: int) -> Trial:
    """FedAvg that starts from the mean update of as many clients as train in FedGroup's cold start.
    Without it a short run would take FedGroup's head start for a gain of its groups."""
    asked = trial_options("fedgroup", groups, setup.population.clients)
    # FedGroup with one group is FedAvg after a cold start.
    options = {"groups": 1, "alpha": asked["groups"] * asked["alpha"]}
    return replace(setup.run("fedgroup", options), name=WARM_START)


def _members(best: Trial, found: ProbeResult) -> IntArray:
    """The groups of the method recommended, the largest first; one group if none is."""
    if best.name in (FEDAVG, ALONE):
        return np.where(found.member >= 0, 0, found.member)
    grouped = best.member >= 0
    # Largest first, as in the probe: the two columns of clients.csv can be compared.
    sizes = np.bincount(best.member[grouped])
    rank = np.argsort(np.argsort(-sizes, kind="stable"))
    # Clients without a group have -1, which is no index: they are left out again below.
    return np.where(grouped, rank[np.maximum(best.member, 0)], -1)
