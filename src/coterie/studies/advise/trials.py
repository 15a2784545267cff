"""Short runs of methods on the clients' training samples, scored on a part that is held out."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coterie.clients.bounds import Bounds
from coterie.clients.clients import Clients
from coterie.clients.cohort import Quorum
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.groups import NO_GROUP
from coterie.core.keys import Key
from coterie.core.task import Metric, Sums, Task, headline_of
from coterie.data import Population
from coterie.errors import ConfigError
from coterie.experiment import Experiment, Training, check
from coterie.experiment.objects import make_choice
from coterie.headline import Headline
from coterie.measures.client_table import DIGITS, ScoredClients, clients_mean
from coterie.measures.clients import reference_columns
from coterie.measures.gains import Gain, gain_of
from coterie.measures.scoring import Evaluate
from coterie.measures.seeds import SeedOverlap
from coterie.models import Network
from coterie.runs.compose import HeldData, compose_on
from coterie.runs.fitting import make_network
from coterie.runs.held_out import on_validation
from coterie.runs.run import Run
from coterie.runs.spec import RunSpec
from coterie.tasks import CLASSIFICATION, fit_task

# Trials compare methods where all clients are there and honest, and their data stay as they are.
_LEFT_TO_THE_RUN: Mapping[str, Any] = {
    "evaluate": Evaluate(),
    "quorum": Quorum(),
    "bounds": Bounds(),
    **dict.fromkeys(("shift", "attack", "privacy", "secure")),
    **dict.fromkeys(("availability", "reply_times", "asynchronous")),
}
HELD_OUT = 0.2  # of each client's training samples
LEARNING_RATES = (0.3, 0.1, 0.03, 0.01, 0.003)
SEARCH_ROUNDS = 3  # of FedAvg with each of them
ROUNDS_TO_MEET_ALL = 10  # the cohort is large enough that so many rounds meet every client


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of short runs of a method.

    Args:
        sums: sums of the metric over each client's held-out samples at the end, and ``size``, how many
            there are, ``[seeds, N, ...]`` each.
        member: int64 ``[N]``, the groups at the end, of the first seed.
        rows: the rows of all rounds of the first seed.
        ended: with how many groups the run of each seed ended.
    """

    name: str
    options: Mapping[str, Any]
    sums: Sums
    member: IntArray
    rows: Sequence[Mapping[str, Any]] = field(repr=False)
    metric: Metric = CLASSIFICATION.metrics[0]
    ended: tuple[int, ...] = ()

    @property
    def headline(self) -> Headline:
        """What the trial is measured by."""
        return self.metric.headline

    @property
    def score(self) -> float:
        """The clients' mean of the headline, on which the verdict rests."""
        return clients_mean(self.by_client, self.sums["size"])

    @property
    def text(self) -> str:
        """The score as people read it."""
        return self.headline.with_decimals_for([self.score], DIGITS).text(self.score)

    @property
    def by_client(self) -> FloatArray:
        """The headline of each client, float64 ``[seeds, N]``; NaN where it is undefined."""
        return self.metric.value(self.sums)

    @property
    def groups(self) -> int:
        """Groups with members: the median over the seeds, as in the verdict of whole runs."""
        if self.ended:
            return statistics.median_low(self.ended)
        return len(np.unique(self.member[self.member >= 0]))

    def cost(self, rounds: int, share: float = 1.0) -> dict[str, float]:
        """Bytes and seconds of a run with other rounds, and a cohort of this share, projected from
        this trial.

        A usual round is the median of all but the first, which may include a cold start. The run
        costs what the trial cost, and a usual round for each round more.
        """
        moved = [row["transfers"]["down_bytes"] + row["transfers"]["up_bytes"] for row in self.rows]
        # A run need not evaluate in every round, so its time does not count.
        spent = [row["seconds"]["total"] - row["seconds"]["evaluation"] for row in self.rows]
        found = {}
        for name, values in (("bytes", moved), ("seconds", spent)):
            # The median of the others: one slow round of the machine changes nothing.
            later = values[1:] or values
            usual = float(np.median(later))
            more = rounds * share - len(values)
            found[name] = max(0.0, float(sum(values)) + more * usual)
        return found


@dataclass(frozen=True, slots=True)
class TrialBudget:
    """The rounds of a trial's runs, and how many runs it has, from the configuration's seed on."""

    rounds: int = 15
    seeds: int = 3


@dataclass(frozen=True, slots=True)
class TrialSetup:
    """What all trials share. A part of the samples of its population is held out."""

    config: Experiment
    population: Population
    network: Network
    cohort: int
    budget: TrialBudget
    task: Task = CLASSIFICATION

    @classmethod
    def of(cls, config: Experiment, population: Population, budget: TrialBudget) -> TrialSetup:
        """The setup for a configuration and its clients."""
        task = fit_task(make_choice(config, "task"), population)
        network = make_network(config, population.shape, task.outputs)
        # A client that no round asks would have no group at the end. Rounded up.
        least = -(-population.clients // ROUNDS_TO_MEET_ALL)
        cohort = min(population.clients, max(config.train.clients_per_round, least))
        part = on_validation(population, HELD_OUT, Key(config.seed))
        return cls(config, part, network, cohort, budget, task)

    def without_model(self) -> ScoredClients:
        """What predictions without a model reach on the samples of each client that are held out."""
        population = self.population
        member = np.full(population.clients, NO_GROUP)
        columns = reference_columns(self.task, population)
        values = {name: np.asarray(column, np.float64) for name, column in columns.items()}
        return ScoredClients(population.names, member, population.sizes("test"), values)

    @property
    def headline(self) -> Headline:
        """What trials are measured by."""
        return headline_of(self.task)

    def spec(self, config: Experiment, seed: int, lr: float | None = None) -> RunSpec:
        """A run of the method that ``config`` names."""
        local = config.solver
        if lr is not None:
            local = replace(local, lr=lr)
        can_train = int((self.population.sizes("train") > 0).sum())
        train = Training(
            rounds=self.budget.rounds,
            clients_per_round=min(self.cohort, can_train),
            # The loop's evaluation is not used: it would cost time in every round.
            evaluate_every=self.budget.rounds,
        )
        trial = replace(
            config,
            seed=seed,
            data=self.population,
            model=self.network,
            task=self.task,
            local=local,
            train=train,
            **_LEFT_TO_THE_RUN,
        )
        return compose_on(trial, HeldData(self.population, warned=True)).spec

    def open_clients(self, spec: RunSpec) -> Clients:
        """The clients of a run, a context manager."""
        engine = self.config.engine
        # Trials are short, so starting actors of Ray or filling a GPU would take longer than they.
        name = "pool"
        if engine.name == "serial":
            name = "serial"
        options = {option: engine.options[option] for option in ("workers", "threads")}
        return spec.make_clients(name, options)

    def run(self, name: str, options: Mapping[str, Any], lr: float | None = None) -> Trial:
        """Run a method with every seed."""
        # Validated like a configuration of the user, so options are checked in one place.
        config = with_algorithm(self.config, name, options)
        first, *others = [
            self._run_seed(config, config.seed + n, lr) for n in range(self.budget.seeds)
        ]
        sums = {
            key: np.concatenate([found, *(other.sums[key] for other in others)])
            for key, found in first.sums.items()
        }
        ended = tuple(one.groups for one in (first, *others))
        return replace(first, name=name, options=dict(options), sums=sums, ended=ended)

    def _run_seed(self, config: Experiment, seed: int, lr: float | None) -> Trial:
        """Run a method once, and score the models that it serves on the held-out samples."""
        spec = self.spec(config, seed, lr)
        with self.open_clients(spec) as clients:
            run = Run.start(spec, clients)
            rows = [result.row for result in run.rounds()]
            scored = {key: found[None] for key, found in run.score_clients().items()}
        return Trial("", {}, scored, run.groups.member, rows, self.task.metrics[0])


def with_algorithm(config: Experiment, name: str, options: Mapping[str, Any]) -> Experiment:
    """The same configuration with another algorithm, without ``[migration]``: the data of trials do
    not change, and methods of one group refuse the table."""
    tables = {key: table for key, table in config.resolved().items() if key != "migration"}
    return check({**tables, "algorithm": {"name": name, **options}}, config.file)


def best_learning_rate(setup: TrialSetup) -> tuple[float, dict[float, float]]:
    """The learning rate with which FedAvg gets furthest in three rounds, and what each one reached."""
    # Rates that are too large or too small show in a few rounds; one seed is enough to see it.
    short = replace(setup, budget=TrialBudget(SEARCH_ROUNDS, seeds=1))
    reached = {lr: short.run("fedavg", {}, lr).score for lr in LEARNING_RATES}
    # A rate with which training diverges has no score.
    known = {lr: score for lr, score in reached.items() if np.isfinite(score)} or reached
    best = setup.headline.best(known.values())
    return next((lr for lr, score in known.items() if score == best), LEARNING_RATES[0]), reached


# --- the decision ---------------------------------------------------------------------------------


FORCED_GROUPS = 2  # groups that are tried where one was found
EQUAL_BYTES = 1.02  # traffic within 2 % counts as the same


def trial_options(name: str, groups: int, clients: int) -> dict[str, Any]:
    """The options with which a candidate is tried: as many groups as were found, or two if one.

    Example:
        >>> trial_options("fedgroup", 3, 60), trial_options("ifca", 1, 60)
        ({'groups': 3, 'alpha': 20}, {'groups': 2})
        >>> trial_options("fedclust", 3, 60)
        {}
    """
    if name == "fedclust":
        # FedClust finds the number by its threshold. Where there is one group it would not split.
        if groups > 1:
            return {}
        return {"groups": FORCED_GROUPS}
    tried = min(max(groups, FORCED_GROUPS), clients)
    if name in ("ifca", "clove", "cornflqs"):
        return {"groups": tried}
    # The cold start asks alpha clients for each group, and there may be few.
    return {"groups": tried, "alpha": max(1, min(20, clients // tried))}


def gain(ours: Trial, theirs: Trial) -> Gain:
    """What clients gain by one method in place of another, on the same held-out samples.

    Raises:
        ConfigError: if no client has a headline of its own.
    """
    # The same samples are held out for every seed.
    overlap = SeedOverlap(fixed=len(ours.by_client) > 1)
    size = ours.sums["size"]
    found = gain_of(ours.by_client, theirs.by_client, size, ours.headline, overlap)
    if found is None:
        what = (
            f"{ours.headline.title} cannot be computed for any client, because the held-out samples of "
            "each client have only one class"
        )
        raise ConfigError("does-not-fit", "advise", what, allowed="another task.headline")
    return found


def recommend(
    trials: Mapping[str, Trial], gains: Mapping[str, Gain], shifting: bool = False
) -> str | None:
    """The candidate recommended, ``None`` where none helps.

    Of those that help, within the uncertainty of the best one, it is the one that moves the fewest
    bytes. Among equals it is FlexCFL if the data shift, else the first.
    """
    helpful = [name for name, found in gains.items() if found.answer == "helps"]
    if not helpful:
        return None
    best = gains[max(helpful, key=lambda name: gains[name].mean)]
    # Within the uncertainty of the best one it would be chance to prefer it.
    as_good = [name for name in helpful if gains[name].mean >= best.mean - best.half]
    # FlexCFL moves more bytes than FedGroup, but it alone follows clients whose data change.
    if shifting and "flexcfl" in as_good:
        return "flexcfl"
    least = min(_bytes_of(trials[name]) for name in as_good)
    return next(name for name in as_good if _bytes_of(trials[name]) <= EQUAL_BYTES * least)


def _bytes_of(trial: Trial) -> float:
    if not trial.rows:
        return 0.0
    return trial.cost(len(trial.rows))["bytes"]
