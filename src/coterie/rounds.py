"""A round, in full: six questions to a method, and the loop that asks them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from coterie import inter_group as between
from coterie.data.population import Population
from coterie.engines.door import Door
from coterie.keys import Key
from coterie.measures import discrepancy, score
from coterie.objectives import plain
from coterie.server import Server, combine, sgd
from coterie.similarity import Matrix
from coterie.types import NO_GROUP, ConfigError, Groups, IntArray, Plan, QuorumError, Train, Updates
from coterie.weighing import by_size

Assign = Callable[[Groups, IntArray, Door, Key], tuple[Groups, Plan]]
Recluster = Callable[[Groups, Updates], tuple[Groups, Updates]]
Weigh = Callable[[Groups, Updates], Matrix]


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


class Algorithm(Protocol):
    """A method that runs: ``init`` makes the state, ``step`` does a round and returns a new state."""

    def init(self, w0: Tensor, clients: int, key: Key) -> Groups: ...

    def step(self, state: Groups, cohort: IntArray, door: Door, key: Key) -> tuple[Groups, Mapping[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class clustered:
    """Turn a ``Method`` into an ``Algorithm``."""

    method: Method

    def init(self, w0: Tensor, clients: int, key: Key) -> Groups:
        """All models start from ``w_0``, and nobody has a group yet.

        Raises:
            ConfigError: for fewer clients than groups.
        """
        k = self.method.groups
        if clients < k:
            raise ConfigError(f"algorithm.groups: more groups than clients, got {k}; expected 1 to {clients}")
        return Groups(w0.to(torch.float32).repeat(k, 1), np.full(clients, NO_GROUP))

    def step(self, state: Groups, cohort: IntArray, door: Door, key: Key) -> tuple[Groups, Mapping[str, Any]]:
        if not len(cohort):
            return state, {}
        method, begun = self.method, time.perf_counter()
        groups, plan = method.assign(state, np.sort(cohort), door, key.of("assign"))
        seconds = {"grouping": time.perf_counter() - begun - door.ledger.training}
        updates = train(method.local, groups, plan, door, key.of("train"))
        notes = {**plan.notes, "seconds": seconds, "replies": len(updates)}
        if len(updates) < max(1, door.quorum.min_replies):
            return groups, {**notes, "skipped": True}
        begun = time.perf_counter()
        before = groups.models
        groups, updates = method.recluster(groups, updates)
        update, trained = combine(method.weigh(groups, updates), updates.delta)
        groups = method.inter_group(method.server(groups, update, trained))
        seconds["aggregation"] = time.perf_counter() - begun
        loss = float(np.average(updates.loss, weights=updates.size))
        return groups, {**notes, "loss": loss, "discrepancy": discrepancy(before, groups.models, updates)}


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
            reply = door.run(work, plan.ids[asked], torch.from_numpy(start + moved), where[asked], key=key)
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

    The last row is the auxiliary global model, the mean of the groups that have members (FedGroup Alg. 2 l. 11); it
    serves clients without a group.
    """
    filled = torch.from_numpy(groups.sizes() > 0)
    chosen = groups.models[filled] if filled.any() else groups.models
    auxiliary = chosen.to(torch.float64).mean(dim=0).to(torch.float32)
    return torch.cat([groups.models, auxiliary[None]]), np.where(groups.member < 0, groups.k, groups.member)


def model_for(groups: Groups, client: int) -> Tensor:
    """The flat vector that serves a client: its group's model, or the auxiliary one."""
    models, which = serving(groups)
    return models[which[client]]


@dataclass(frozen=True, slots=True)
class Sampler:
    """Which clients are asked in round ``t``.

    Args:
        kind: ``uniform``: drawn without replacement each round; ``cover_then_uniform``: in order of their numbers
            for the first ``ceil(N / K)`` rounds, so that each is met once, then uniform.
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

    def __call__(self, round: int) -> IntArray:
        start = round * self.per_round
        if self.kind == "cover_then_uniform" and start < len(self.clients):
            return np.sort(self.clients)[start : start + self.per_round]
        rng = self.key.of("sample").at(round).generator()
        return np.sort(rng.choice(self.clients, min(self.per_round, len(self.clients)), replace=False))


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The state after a round and its line in ``rounds.jsonl``."""

    round: int
    groups: Groups
    row: dict[str, Any]


def simulate(
    algorithm: Algorithm,
    door: Door,
    population: Population,
    w0: Tensor,
    sampler: Callable[[int], IntArray],
    rounds: int,
    key: Key,
    *,
    state: Groups | None = None,
    start: int = 0,
    skipped: int = 0,
    evaluate_every: int = 1,
) -> Iterator[RoundResult]:
    """Run rounds ``start .. rounds-1`` and yield after each.

    Args:
        algorithm: what runs.
        door: the clients.
        population: for evaluation.
        w0: the first model, ``[d]``.
        sampler: round -> clients asked.
        rounds: total number of rounds.
        key: the run's stream.
        state: the state after round ``start - 1``, to resume.
        start: first round.
        skipped: rounds skipped in a row before ``start``.
        evaluate_every: score the models in every so many rounds, and in the last.

    Raises:
        QuorumError: after more skipped rounds in a row than the quorum allows.
    """
    groups = algorithm.init(w0, population.clients, key.of("init")) if state is None else state
    testable = np.flatnonzero(population.sizes("test") > 0)
    for t in range(start, rounds):
        begun = time.perf_counter()
        at = key.at(t)
        groups, notes = algorithm.step(groups, sampler(t), door, at)
        ledger = door.ledger.read()
        row = _row(t, groups, notes)
        row["refused"] = dict(sorted(ledger.refused.items()))
        row["transfers"] = {"models": ledger.models, "down_bytes": ledger.down_bytes, "up_bytes": ledger.up_bytes}
        evaluated = time.perf_counter()
        if (t + 1) % evaluate_every == 0 or t == rounds - 1:
            models, which = serving(groups)
            row |= score(door, testable, models, which, groups, at.of("evaluate"))
        row["seconds"] = {
            "training": ledger.training,
            **{name: notes.get("seconds", {}).get(name, 0.0) for name in ("grouping", "aggregation")},
            "evaluation": time.perf_counter() - evaluated,
            "total": time.perf_counter() - begun,
        }
        yield RoundResult(t, groups, row)
        skipped = skipped + 1 if row["skipped"] else 0
        if skipped > door.quorum.max_skipped_rounds:
            raise QuorumError(
                f"quorum: {skipped} rounds in a row had fewer than {max(1, door.quorum.min_replies)} replies, "
                f"the last was round {t}; expected at most {door.quorum.max_skipped_rounds}"
            )


_OWN = ("loss", "discrepancy", "newcomers", "cold_start", "skipped", "seconds")


def _row(round: int, groups: Groups, notes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "round": round,
        "accuracy": None,
        "accuracy_all": None,
        "clients_assigned": int((groups.member >= 0).sum()),
        "accuracy_groups": None,
        "accuracy_quantiles": None,
        "loss": notes.get("loss"),
        "discrepancy": notes.get("discrepancy"),
        "sizes": groups.sizes().tolist(),
        "newcomers": int(notes.get("newcomers", 0)),
        "cold_start": int(notes.get("cold_start", 0)),
        "skipped": bool(notes.get("skipped", False)),
        "notes": {name: value for name, value in notes.items() if name not in _OWN},
    }
