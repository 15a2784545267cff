"""The demonstration: a federation in which one model cannot suit all clients, with and without
groups."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from torch import Tensor

from coterie.algorithms import fedavg, fedgroup
from coterie.clients.clients import Clients
from coterie.clients.cohort import Sampler
from coterie.core.arrays import IntArray
from coterie.core.engine import Engine, Reply
from coterie.core.keys import Key
from coterie.core.solver import Solver
from coterie.core.training import Steps
from coterie.core.vectors import flatten
from coterie.core.work import Train, Work
from coterie.data.population import Population
from coterie.experiment import Experiment
from coterie.math.similarity import Matrix, edc_embedding
from coterie.methods.method import Method
from coterie.python import load
from coterie.report.page import write_page
from coterie.report.titles import headline
from coterie.report.view import (
    RunView,
    displayed_round,
    group_agreement,
    newcomer_placements,
)
from coterie.runs.compose import Composed, compose
from coterie.runs.loop import RoundResult
from coterie.runs.run import Run
from coterie.runs.spec import RunSpec
from coterie.terminal import console as terminal
from coterie.terminal import percent, sizes

CLIENTS = 60
POPULATIONS = 3
NEWCOMERS = 10
ROUNDS = 30
ARRIVAL = 15  # the round, counted from 0, in which the newcomers join
PER_ROUND = 15
LOCAL = Solver(epochs=5, batch_size=10, lr=0.1)
PRETRAIN_STEPS = 50
LINE_EVERY = 5  # rounds, in the terminal
TITLE = f"Coterie's demonstration: images of digits over {CLIENTS} clients"
SETTING = (
    f"{CLIENTS} clients hold real images of hand-written digits. They were planted as "
    f"{POPULATIONS} populations: one has the images as they are, one turned by 90 degrees, one "
    "turned by 180. The algorithms do not know which client belongs to which. "
    f"{NEWCOMERS} of the clients join late, in round {displayed_round(ARRIVAL)}."
)
PARTITION = {"kind": "planted", "clients": CLIENTS, "groups": POPULATIONS, "how": "rotate"}


def run_demo(out: Path, console: Console | None = None, seed: int = 0) -> Path:
    """Run FedAvg and FedGroup over the same clients and write a page that compares them.

    Both start from the same model and sample the same clients in every round. Newcomers do not
    answer before they join, and are not scored before either.
    """
    if console is None:
        console = terminal()
    population = load("digits", partition=PARTITION, seed=seed)
    console.print(SETTING)
    methods = {
        "FedAvg": fedavg(),
        "FedGroup": fedgroup(groups=POPULATIONS, alpha=5, pretrain_steps=PRETRAIN_STEPS),
    }
    composed = {name: _composed(method, population, seed) for name, method in methods.items()}
    first = composed["FedAvg"]
    # Both run on the same clients, so that their processes are started once.
    with first.clients() as clients:
        # One map for both runs: it depends on the clients and on w_0 alone.
        embedding = client_map(clients, population, flatten(first.module), Key(seed))
        runs = []
        for name, one in composed.items():
            run = _run(name, one.spec, clients, console)
            runs.append(replace(run, embedding=embedding))
    page = write_page(Path(out) / "demo.html", runs, TITLE, intro=SETTING)
    _print_result(runs, console)
    console.print(f"page: {page.resolve()}", soft_wrap=True)
    return page


def client_map(clients: Clients, population: Population, w0: Tensor, key: Key) -> Matrix:
    """Every client in EDC space, float64 ``[N, m]``: the directions of their pre-training updates
    from ``w_0``; NaN for clients that did not answer."""
    ids = np.flatnonzero(population.sizes("train") > 0)
    work = Train(how=Steps(PRETRAIN_STEPS))
    reply = clients.run(work, ids, w0, key=key.of("map").at(0))
    clients.ledger.read()  # forgets what was moved for the map, which belongs to no run
    found = np.full((population.clients, POPULATIONS), np.nan)
    # As many directions as FedGroup takes, so that the map shows the distances that it clusters by.
    found[reply.ids] = edc_embedding(reply.delta, POPULATIONS)
    return found


@dataclass(frozen=True, slots=True)
class Arrivals:
    """An engine whose clients do not answer before they join.

    Args:
        since: int64 ``[N]``, the round in which each client joins.
    """

    engine: Engine
    since: IntArray

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        """Ask the clients that have joined by the round of the key."""
        joined = self.since[ids] <= key.round
        # The others do not answer yet: no method knows in advance which clients will join.
        if joined.any():
            return self.engine.run(work, ids[joined], models, which[joined], key=key)
        return []

    def set_population(self, population: Population) -> None:
        """Tell the engine who holds what."""
        self.engine.set_population(population)

    def close(self) -> None:
        """End the engine's processes."""
        self.engine.close()


@dataclass(frozen=True, slots=True)
class LateSampler:
    """Samples among the clients that have joined; newcomers are in the cohort of the round in which
    they join.

    Example:
        >>> sampler = LateSampler(np.array([0, 0, 0, 5]), 2, Key(0))
        >>> sampler(0).tolist(), sampler(1).tolist(), 3 in sampler(5)
        ([0, 1], [2], True)
    """

    since: IntArray
    per_round: int
    key: Key

    def __call__(self, round: int) -> IntArray:
        newcomers = np.empty(0, np.int64)
        if round > 0:
            # In the very round, so that the page can show who of them was placed rightly
            # from the start.
            newcomers = np.flatnonzero(self.since == round)[: self.per_round]
        others = np.setdiff1d(np.flatnonzero(self.since <= round), newcomers)
        places = self.per_round - len(newcomers)
        rest = Sampler("cover_then_uniform", others, places, self.key)(round)
        return np.sort(np.concatenate([newcomers, rest]))


def _joining_rounds() -> IntArray:
    """The round in which each client joins, int64 ``[N]``."""
    return np.where(np.arange(CLIENTS) < CLIENTS - NEWCOMERS, 0, ARRIVAL)


def _composed(method: Method, population: Population, seed: int) -> Composed:
    train = {
        "rounds": ROUNDS,
        "clients_per_round": PER_ROUND,
        "sampler": LateSampler(_joining_rounds(), PER_ROUND, Key(seed)),
    }
    tables = {
        "seed": seed,
        "data": population,
        "model": {"name": "mclr"},
        "local": LOCAL,
        "train": train,
        "algorithm": method,
    }
    return compose(Experiment.from_tables(tables))


def _run(name: str, spec: RunSpec, clients: Clients, console: Console) -> RunView:
    population = spec.population
    since = _joining_rounds()
    # Above the engine and not in the sampler alone: also a cold start and scoring ask clients.
    late = Clients(Arrivals(clients.engine, since), clients.validator)
    run = Run.start(spec, late)
    begun = time.perf_counter()
    rows = []
    joined = np.full(population.clients, -1)
    for result in run.rounds():
        joined[(joined < 0) & (result.groups.member >= 0)] = result.round
        rows.append(result.row)
        _print_round(name, result, time.perf_counter() - begun, console)
    view = RunView(
        name,
        rows,
        run.groups.member,
        population.names,
        histograms=population.histograms(),
        planted=population.planted,
    )
    # One model: no client was placed in a group.
    if run.groups.k == 1:
        return view
    return replace(view, joined=joined, newcomers=since > 0)


def _print_round(name: str, result: RoundResult, seconds: float, console: Console) -> None:
    done = displayed_round(result.round)
    if done not in (1, ROUNDS) and done % LINE_EVERY:
        return
    groups = "one model"
    if result.groups.k > 1:
        groups = f"groups of {sizes(result.groups.sizes().tolist())}"
    accuracy = percent(result.row["accuracy"])
    console.print(
        f"{name:<8}  round {done:>2}/{ROUNDS}  accuracy {accuracy}  {seconds:.1f} s  {groups}"
    )


def _print_result(runs: Sequence[RunView], console: Console) -> None:
    console.print(headline(runs))
    for run in runs:
        if run.group_count > 1:
            right = sum(bool(placed.right) for placed in newcomer_placements(run))
            console.print(
                "groups against planted populations: "
                f"adjusted Rand index {group_agreement(run):.2f}; "
                f"{right} of {len(run.newcomer_ids)} newcomers placed with their own population"
            )
