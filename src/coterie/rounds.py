"""A round, in full: six questions to a method, and the loop that asks them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie import inter_group as between
from coterie.data.population import Population
from coterie.data.shifts import Scene, Shift
from coterie.engines.door import Door, Ledger
from coterie.folding import fold, foldable
from coterie.keys import Key
from coterie.ledger import Block, flexcfl, full
from coterie.measures import agreement, discrepancy, score
from coterie.objectives import plain
from coterie.panel import Panel
from coterie.server import Server, combine, fed, sgd
from coterie.similarity import Matrix
from coterie.types import NO_GROUP, ConfigError, Groups, IntArray, Plan, QuorumError, Train, Updates
from coterie.weighing import by_size

Assign = Callable[[Groups, IntArray, Door, Key], tuple[Groups, Plan]]
Recluster = Callable[[Groups, Updates], tuple[Groups, Updates]]
Weigh = Callable[[Groups, Updates], Matrix]
Starts = Callable[[int], Tensor]


def unchanged(groups: Groups, updates: Updates) -> tuple[Groups, Updates]:
    """The replies do not change the groups."""
    return groups, updates


@dataclass(frozen=True, slots=True)
class Method:
    """A federated method as six answers, and the number of models it keeps.

    Args:
        assign: who trains from which model, and after whom?
        local: what does a client do?
        recluster: do the replies change the groups?
        weigh: how much does each reply count for each model? One ``[k, n]`` matrix.
        server: how does a model move on the weighted update?
        inter_group: do the models pull on each other?
        groups: number of models at the start.
        apart: the models start from different initialisations, not all from ``w_0``.
        samples: the rule draws its clients itself; its cohort is everybody who is there.
        counted: the rule counts its groups: with fewer clients than ``groups`` it starts with as many models.

    Example:
        >>> from coterie.grouping import everyone
        >>> fedavg = Method(assign=everyone)
    """

    assign: Assign
    local: Train = Train(plain)
    recluster: Recluster = unchanged
    weigh: Weigh = by_size
    server: Server = sgd(1.0)
    inter_group: between.InterGroup = between.none
    groups: int = 1
    apart: bool = False
    samples: bool = False
    counted: bool = False


class Algorithm(Protocol):
    """A method that runs: ``init`` makes the state, ``step`` does a round and returns a new state."""

    def init(self, starts: Starts, clients: int) -> Groups: ...

    def step(self, state: Groups, cohort: IntArray, door: Door, key: Key) -> tuple[Groups, Mapping[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class clustered:
    """Turn a ``Method`` into an ``Algorithm``."""

    method: Method

    @property
    def samples(self) -> bool:
        """Whether the method draws its clients itself."""
        return self.method.samples

    def init(self, starts: Starts, clients: int) -> Groups:
        """The first models, ``starts(j)``, and nobody has a group yet.

        Raises:
            ConfigError: for fewer clients than groups.
        """
        k = min(self.method.groups, clients) if self.method.counted else self.method.groups
        if clients < k:
            raise ConfigError(f"algorithm.groups: more groups than clients, got {k}; expected 1 to {clients}")
        models = torch.stack([starts(j if self.method.apart else 0).to(torch.float32) for j in range(k)])
        return Groups(models, np.full(clients, NO_GROUP)).remember(start=models[0])

    def step(self, state: Groups, cohort: IntArray, door: Door, key: Key) -> tuple[Groups, Mapping[str, Any]]:
        if not len(cohort):
            return state, {}
        method, begun = self.method, time.perf_counter()
        groups, plan = method.assign(state, np.sort(cohort), door, key.of("assign"))
        seconds = {"grouping": time.perf_counter() - begun - door.ledger.training}
        folded = None
        if method.recluster is unchanged and foldable(method.local, method.weigh, plan, groups.models.shape[1]):
            folded, updates = fold(method.local, groups, plan, door, key.of("train"), method.weigh)
        else:
            updates = train(method.local, groups, plan, door, key.of("train"))
        exchange = groups.k if method.inter_group is not between.none else 0
        notes = {**plan.notes, "seconds": seconds, "replies": len(updates), "exchange": exchange, "plan": plan}
        begun = time.perf_counter()
        too_few = len(updates) < max(1, door.quorum.min_replies)
        groups, updates = method.recluster(groups, updates.first(0) if too_few else updates)
        if too_few:
            return groups, {**notes, "exchange": 0, "skipped": True}
        before = groups.models
        weights = method.weigh(groups, updates)
        update, trained = (folded, fed(weights)) if folded is not None else combine(weights, updates.delta)
        groups = method.inter_group(method.server(groups, update, trained)).remember(trained=trained)
        seconds["aggregation"] = time.perf_counter() - begun
        loss = float(np.average(updates.loss, weights=updates.size))
        apart = None if folded is not None else discrepancy(before, groups.models, updates)
        notes |= {"loss": loss, "discrepancy": apart}
        return groups, {**notes, "ids": updates.ids, "weights": weights}


def as_algorithm(method: Method | Algorithm) -> Algorithm:
    """A method as an algorithm; an algorithm as it is."""
    return clustered(method) if isinstance(method, Method) else method


def train(local: Train, groups: Groups, plan: Plan, door: Door, key: Key) -> Updates:
    """What the clients of a plan make of the models they are given, together or in chains."""
    if plan.chain is None and plan.spent is None:
        reply = door.run(local, plan.ids, groups.models, plan.row, key=key)
        row = plan.row[_places(plan.ids, reply.ids)]
        return Updates(
            reply.ids, row, torch.from_numpy(reply.fields["delta"]), reply.fields["size"], reply.fields["loss"]
        )
    return _train_in_waves(local, groups, plan, door, key)


def _train_in_waves(local: Train, groups: Groups, plan: Plan, door: Door, key: Key) -> Updates:
    """Waves of chains: the first client of every chain, then the second from where the first ended, and so on.

    A client that does not answer is skipped, and its chain goes on from the last model that came home.
    """
    n = len(plan.ids)
    chain = np.arange(n) if plan.chain is None else plan.chain
    spent = np.zeros(n, np.int64) if plan.spent is None else plan.spent
    links, head, where = np.unique(chain, return_index=True, return_inverse=True)
    hop = _hops(where)
    row = plan.row[head]
    start = groups.models.numpy()[row]
    moved = np.zeros_like(start)
    last, size, loss = np.full(len(links), -1), np.zeros(len(links)), np.zeros(len(links))
    for wave in range(int(hop.max(initial=-1)) + 1):
        for budget in np.unique(spent[hop == wave]):
            asked = np.flatnonzero((hop == wave) & (spent == budget))
            work = replace(local, spent=int(budget))
            at = key.of(str(wave)) if wave else key
            reply = door.run(work, plan.ids[asked], torch.from_numpy(start + moved), where[asked], key=at)
            spot = where[asked[_places(plan.ids[asked], reply.ids)]]
            moved[spot] += reply.fields["delta"]
            last[spot], size[spot] = reply.ids, size[spot] + reply.fields["size"]
            loss[spot] += reply.fields["loss"] * reply.fields["size"]
    came = np.flatnonzero(last >= 0)
    came = came[np.argsort(last[came])]
    return Updates(last[came], row[came], torch.from_numpy(moved[came]), size[came], loss[came] / size[came])


def _places(ids: IntArray, some: IntArray) -> IntArray:
    """Where each of ``some`` stands in ``ids``."""
    order = np.argsort(ids)
    return order[np.searchsorted(ids[order], some)]


def _hops(chain: IntArray) -> IntArray:
    """How many clients of the same chain come before each one."""
    order = np.argsort(chain, kind="stable")
    first = np.searchsorted(chain[order], chain[order], side="left")
    hops = np.empty_like(chain)
    hops[order] = np.arange(len(chain)) - first
    return hops


def serving(groups: Groups) -> tuple[Tensor, IntArray]:
    """Who is served by which model: ``[k + 1, d]`` and int64 ``[N]``.

    The last row is the auxiliary global model, here the mean of the groups that have members, as in FlexCFL's code; it
    serves clients without a group.
    """
    which = np.where(groups.member < 0, groups.k, groups.member)
    return torch.cat([groups.models, groups.auxiliary(filled=True)[None]]), which


def model_for(groups: Groups, client: int) -> Tensor:
    """The flat vector that serves a client: its group's model, or the auxiliary one."""
    models, which = serving(groups)
    return models[which[client]]


@dataclass(frozen=True, slots=True)
class Sampler:
    """Which clients are asked in round ``t``.

    Args:
        kind: ``uniform``: drawn without replacement each round; ``cover_then_uniform``: in order of their numbers
            for the first ``ceil(N / K)`` rounds, so that each is met once, then uniform. Where clients come and go in
            these rounds, some are met twice and some only when they are drawn later.
        clients: int64, the clients that can be asked (those with training samples).
        per_round: ``K``.
        key: random stream.

    Example:
        >>> s = Sampler("cover_then_uniform", np.arange(5), 2, Key(0))
        >>> [s(t).tolist() for t in range(3)]
        [[0, 1], [2, 3], [4]]
    """

    kind: Literal["uniform", "cover_then_uniform"]
    clients: IntArray
    per_round: int
    key: Key

    def __call__(self, round: int, present: NDArray[np.bool_] | None = None) -> IntArray:
        """The cohort of a round, of those who are ``present`` (bool ``[N]``, default everybody)."""
        clients = self.clients if present is None else self.clients[present[self.clients]]
        start = round * self.per_round
        if self.kind == "cover_then_uniform" and start < len(clients):
            in_order = clients if bool((clients[:-1] <= clients[1:]).all()) else np.sort(clients)
            return in_order[start : start + self.per_round]
        rng = self.key.of("sample").at(round).generator()
        return np.sort(rng.choice(clients, min(self.per_round, len(clients)), replace=False))


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The state after a round, the scene it was played in, and its line in ``rounds.jsonl``."""

    round: int
    groups: Groups
    row: dict[str, Any]
    scene: Scene
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """What a measure sees of a round.

    Args:
        door: the clients, to be asked with ``door.measure``.
        population: who holds what in this round.
        groups: the state after the round.
        notes: what the round did; ``plan`` is who was to train, ``ids [n]`` and ``weights [k, n]`` are the replies that
            counted, and how much.
        key: random stream.
    """

    door: Door
    population: Population
    groups: Groups
    notes: Mapping[str, Any]
    key: Key


Measure = Callable[[Look], Mapping[str, Any]]


def _trains(scene: Scene) -> NDArray[np.bool_]:
    """Who is there and holds samples, bool ``[N]``."""
    trains: NDArray[np.bool_] = (scene.population.sizes("train") > 0) & scene.present
    return trains


def simulate(
    algorithm: Algorithm,
    door: Door,
    population: Population,
    starts: Starts | Tensor,
    sampler: Callable[..., IntArray],
    rounds: int,
    key: Key,
    *,
    shift: Shift | None = None,
    state: Groups | None = None,
    scene: Scene | None = None,
    start: int = 0,
    skipped: int = 0,
    evaluate_every: int = 1,
    evaluate_clients: int | None = None,
    measures: Sequence[Measure] = (),
) -> Iterator[RoundResult]:
    """Run rounds ``start .. rounds-1`` and yield after each.

    Args:
        algorithm: what runs.
        door: the clients.
        population: the clients' data before any shift.
        starts: the first models: ``j -> [d]``, or one vector ``w_0 [d]`` for all.
        sampler: round, and with a shift who is there and holds samples (bool ``[N]``) -> clients asked.
        rounds: total number of rounds.
        key: the run's stream.
        shift: how the clients' data change before each round.
        state: the state after round ``start - 1``, to resume.
        scene: who held what in that round.
        start: first round.
        skipped: rounds skipped in a row before ``start``.
        evaluate_every: score the models in every so many rounds, and in the last.
        evaluate_clients: score so many clients at most, by a random order drawn once; ``None``: all.
        measures: what else to measure in every round; what they find goes into the row.

    Raises:
        QuorumError: after more skipped rounds in a row than the quorum allows.
    """
    first = starts if callable(starts) else (lambda j: starts)
    groups = algorithm.init(first, population.clients) if state is None else state
    scene = scene or Scene(population, np.ones(population.clients, bool))
    if scene.population is not population:
        door.hold(scene.population, scene.present)
    if shift is not None and population.drawn:
        raise ConfigError(
            "shift.kind: the data of a federation that is drawn client by client do not move, got a shift; "
            "expected none, or lazy = false in [data]"
        )
    panel = None if evaluate_clients is None else Panel.of(evaluate_clients, population.clients, key)
    everyone = getattr(algorithm, "samples", False)
    for t in range(start, rounds):
        begun, at, before = time.perf_counter(), key.at(t), groups
        if shift is not None:
            scene = shift(scene, population, t, groups.member >= 0, at.of("shift"))
            door.hold(scene.population, scene.present)
        cohort = (
            np.flatnonzero(_trains(scene)) if everyone else sampler(t) if shift is None else sampler(t, _trains(scene))
        )
        groups, notes = algorithm.step(groups, cohort, door, at)
        ledger = door.ledger.read()
        row = _row(t, groups, notes, ledger) | {"moves": moves(before.member, groups.member)}
        if shift is not None:
            row |= _shifted(scene, before, notes)
        evaluated = time.perf_counter()
        if (t + 1) % evaluate_every == 0 or t == rounds - 1:
            models, which = serving(groups)
            testable = (scene.population.sizes("test") > 0) & scene.present
            row |= score(door, testable, models, which, groups, at.of("evaluate"), panel)
        if scene.population.planted is not None:
            row["agreement"] = agreement(groups.member, scene.population.planted)
        for measure in measures:
            row |= measure(Look(door, scene.population, groups, notes, at.of("measure")))
        row["refused"] = dict(sorted((ledger.refused + door.ledger.read().refused).items()))
        row["seconds"] = {
            "training": ledger.training,
            **{name: notes.get("seconds", {}).get(name, 0.0) for name in ("grouping", "aggregation")},
            "evaluation": time.perf_counter() - evaluated,
            "total": time.perf_counter() - begun,
        }
        yield RoundResult(t, groups, row, scene, tuple(ledger.blocks))
        skipped = skipped + 1 if row["skipped"] else 0
        if skipped > door.quorum.max_skipped_rounds:
            raise QuorumError(
                f"quorum: {skipped} rounds in a row had fewer than {max(1, door.quorum.min_replies)} replies, "
                f"the last was round {t}; expected at most {door.quorum.max_skipped_rounds}"
            )


_COUNTS = ("newcomers", "cold_start", "drifted", "migrations", "same_group")
_OWN = (*_COUNTS, "loss", "discrepancy", "skipped", "seconds", "drifted_ids", "ids", "weights", "plan")


def _row(round: int, groups: Groups, notes: Mapping[str, Any], ledger: Ledger) -> dict[str, Any]:
    return {
        "round": round,
        "accuracy": None,
        "accuracy_all": None,
        "accuracy_mean": None,
        "clients_assigned": int((groups.member >= 0).sum()),
        "accuracy_groups": None,
        "accuracy_quantiles": None,
        "loss": notes.get("loss"),
        "discrepancy": notes.get("discrepancy"),
        "sizes": groups.sizes().tolist(),
        **{name: int(notes.get(name, 0)) for name in _COUNTS},
        "skipped": bool(notes.get("skipped", False)),
        "notes": {name: value for name, value in notes.items() if name not in _OWN},
        "refused": dict(sorted(ledger.refused.items())),
        "transfers": {**full(ledger.blocks), "flexcfl": flexcfl(ledger.blocks, notes)},
    }


def moves(before: IntArray, after: IntArray) -> list[list[int]]:
    """Every client whose group changed, and its new one, ``-1`` for none.

    Example:
        >>> moves(np.array([-1, 0, 1]), np.array([1, 0, -1]))
        [[0, 1], [2, -1]]
    """
    changed = np.flatnonzero(before != after)
    return np.stack([changed, after[changed]], axis=1).tolist()


def _shifted(scene: Scene, before: Groups, notes: Mapping[str, Any]) -> dict[str, Any]:
    """What the scenario did, and which changes of warm clients the method did not see."""
    warm = scene.changed[before.member[scene.changed] >= 0]
    missed = np.setdiff1d(warm, notes.get("drifted_ids", np.empty(0, np.int64)))
    return {"shift": list(scene.events), "changed": len(scene.changed), "missed": len(missed)}
