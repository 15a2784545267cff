"""The demonstration: a federation in which one model cannot be good for everybody, with and without
groups."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from coterie.algorithms import fedavg, fedgroup
from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.engine import Engine, Reply
from coterie.core.keys import Key
from coterie.core.solver import Solver
from coterie.core.vectors import flatten
from coterie.core.work import Train, Work
from coterie.data.population import Population
from coterie.math.similarity import Matrix, edc_embedding
from coterie.methods.method import Method
from coterie.methods.step import as_algorithm
from coterie.objectives import plain
from coterie.report.page import write_page
from coterie.report.titles import headline
from coterie.report.view import RunView, group_agreement, newcomer_placements
from coterie.runs.cohort import Sampler
from coterie.runs.loop import RoundResult
from coterie.runs.python import load
from coterie.runs.run import Run
from coterie.runs.spec import Network, RunSpec
from coterie.terminal import console as terminal
from coterie.terminal import percent

CLIENTS = 60
POPULATIONS = 3
NEWCOMERS = 10
ROUNDS = 30
ARRIVAL = 15
PER_ROUND = 15
LOCAL = Solver(epochs=5, batch_size=10, lr=0.1)
PRETRAIN_STEPS = 50
TITLE = f"Coterie's demonstration: images of digits over {CLIENTS} clients"
SETTING = (
    f"{CLIENTS} clients hold real images of hand-written digits, in {POPULATIONS} planted populations: the images as "
    "they are, turned by 90 degrees, and turned by 180. No algorithm is told who belongs where. "
    f"{NEWCOMERS} of the clients come late, in round {ARRIVAL + 1}."
)
PARTITION = {"kind": "planted", "clients": CLIENTS, "groups": POPULATIONS, "how": "rotate"}


def run_demo(out: Path, console: Console | None = None, seed: int = 0) -> Path:
    """Run FedAvg and FedGroup over the same clients and write a page that compares them.

    Both start from the same model and ask the same clients in every round. The newcomers do not
    answer before they come, and are not scored before either.

    Args:
        out: folder of the page.
        console: where progress is printed; default the terminal.
        seed: of everything random.

    Returns:
        The path of the page.
    """
    console = console or terminal()
    data = load("digits", partition=PARTITION, seed=seed)
    network = Network.of("mclr", data.shape, data.classes, seed, LOCAL.l2)
    console.print(SETTING)
    specs = {
        "FedAvg": _spec(fedavg(), data, network, seed),
        "FedGroup": _spec(
            fedgroup(groups=POPULATIONS, alpha=5, pretrain_steps=PRETRAIN_STEPS),
            data,
            network,
            seed,
        ),
    }
    # Both run on the same clients, so that their processes are started once.
    with specs["FedAvg"].make_clients("pool", {}) as clients:
        where = client_map(clients, data, flatten(network.module), Key(seed).of("map").at(0))
        runs = [_run(name, spec, clients, where, console) for name, spec in specs.items()]
    page = write_page(Path(out) / "demo.html", runs, TITLE, intro=SETTING)
    _say_result(runs, console)
    console.print(f"page: {page.resolve()}", soft_wrap=True)
    return page


def client_map(door: Clients, data: Population, w0: Tensor, key: Key) -> Matrix:
    """Every client in EDC space, float64 ``[N, m]``: the directions of their pre-training updates
    from ``w_0``; NaN for clients that did not answer."""
    ids = np.flatnonzero(data.sizes("train") > 0)
    work = Train(plain, steps=PRETRAIN_STEPS)
    reply = door.run(work, ids, w0[None], np.zeros(len(ids), np.int64), key=key)
    door.ledger.read()  # a look of ours, no transfer of a run
    where = np.full((data.clients, POPULATIONS), np.nan)
    where[reply.ids] = edc_embedding(torch.from_numpy(reply.fields["delta"]), POPULATIONS)
    return where


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The same verb around any engine: a client does not answer before its round has come.

    Args:
        engine: reaches the clients.
        since: int64 ``[N]``, the first round in which each client is there.
    """

    engine: Engine
    since: IntArray

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        here = self.since[ids] <= key.round
        if here.any():
            return self.engine.run(work, ids[here], models, which[here], key=key)
        return []

    def set_population(self, population: Population) -> None:
        """Tell the engine who holds what."""
        self.engine.set_population(population)

    def close(self) -> None:
        self.engine.close()


@dataclass(frozen=True, slots=True)
class LateSampler:
    """Draws among the clients that are there; newcomers are asked in the round in which they come.

    Example:
        >>> sampler = LateSampler(np.array([0, 0, 0, 5]), 2, Key(0))
        >>> sampler(0).tolist(), sampler(1).tolist(), 3 in sampler(5)
        ([0, 1], [2], True)
    """

    since: IntArray
    per_round: int
    key: Key

    def __call__(self, round: int) -> IntArray:
        fresh = (
            np.flatnonzero(self.since == round)[: self.per_round]
            if round
            else np.empty(0, np.int64)
        )
        others = np.setdiff1d(np.flatnonzero(self.since <= round), fresh)
        rest = Sampler("cover_then_uniform", others, self.per_round - len(fresh), self.key)(round)
        return np.sort(np.concatenate([fresh, rest]))


def _since() -> IntArray:
    return np.where(np.arange(CLIENTS) < CLIENTS - NEWCOMERS, 0, ARRIVAL)


def _spec(method: Method, data: Population, network: Network, seed: int) -> RunSpec:
    return RunSpec(
        as_algorithm(method),
        data,
        network,
        rounds=ROUNDS,
        seed=seed,
        sampler=LateSampler(_since(), PER_ROUND, Key(seed)),
        local=LOCAL,
    )


def _run(name: str, spec: RunSpec, clients: Clients, where: Matrix, console: Console) -> RunView:
    since = _since()
    late = Clients(Arrivals(clients.engine, since), clients.validator, clients.quorum)
    data = spec.population
    run = Run.start(spec, late)
    rows = []
    joined = np.full(data.clients, -1)
    for result in _reported(name, run.rounds(), console):
        joined[(joined < 0) & (result.groups.member >= 0)] = result.round
        rows.append(result.row)
    grouped = run.groups.k > 1
    return RunView(
        name,
        rows,
        run.groups.member,
        data.names,
        embedding=where,
        histograms=data.histograms(),
        planted=data.planted,
        joined=joined if grouped else None,
        newcomers=since > 0 if grouped else None,
    )


def _reported(name: str, steps: Iterator[RoundResult], console: Console) -> Iterator[RoundResult]:
    """The same rounds, with a line now and then."""
    begun = time.perf_counter()
    for step in steps:
        done = step.round + 1
        if done in (1, ROUNDS) or done % 5 == 0:
            sizes = " + ".join(str(size) for size in step.groups.sizes())
            groups = f"groups of {sizes}" if step.groups.k > 1 else "one model"
            took = time.perf_counter() - begun
            accuracy = percent(step.row["accuracy"])
            console.print(
                f"{name:<8}  round {done:>2}/{ROUNDS}  accuracy {accuracy}  {took:.1f} s  {groups}"
            )
        yield step


def _say_result(runs: Sequence[RunView], console: Console) -> None:
    console.print(headline(runs))
    for run in runs:
        if run.group_count > 1:
            right = sum(bool(placed.right) for placed in newcomer_placements(run))
            console.print(
                f"groups against planted populations: adjusted Rand index {group_agreement(run):.2f}; "
                f"{right} of {len(run.newcomer_ids)} newcomers placed with their own"
            )
