"""The loop over rounds: train, evaluate, and write the round's row."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from coterie.clients.clients import Clients
from coterie.clients.ledger import Ledger
from coterie.clients.transfers import Block, flexcfl, full
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.data.population import Population
from coterie.data.shifts import FederationSnapshot, Shift
from coterie.errors import ConfigError, QuorumError
from coterie.measures.sampling import EvaluationSample
from coterie.measures.scoring import agreement, score
from coterie.measures.view import Measure, RoundView
from coterie.methods.method import Starts
from coterie.methods.serving import served_by
from coterie.methods.step import Algorithm


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The state after a round, the scene it was played in, and its line in ``rounds.jsonl``."""

    round: int
    groups: Groups
    row: dict[str, Any]
    scene: FederationSnapshot
    blocks: tuple[Block, ...] = ()


def _trains(scene: FederationSnapshot) -> NDArray[np.bool_]:
    """Who is there and holds samples, bool ``[N]``."""
    trains: NDArray[np.bool_] = (scene.population.sizes("train") > 0) & scene.present
    return trains


def simulate(
    algorithm: Algorithm,
    door: Clients,
    population: Population,
    starts: Starts | Tensor,
    sampler: Callable[..., IntArray],
    rounds: int,
    key: Key,
    *,
    shift: Shift | None = None,
    state: Groups | None = None,
    scene: FederationSnapshot | None = None,
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
        sampler: round, and with a shift who is there and holds samples (bool ``[N]``) -> clients
            asked.
        rounds: total number of rounds.
        key: the run's stream.
        shift: how the clients' data change before each round.
        state: the state after round ``start - 1``, to resume.
        scene: who held what in that round.
        start: first round.
        skipped: rounds skipped in a row before ``start``.
        evaluate_every: score the models in every so many rounds, and in the last.
        evaluate_clients: score so many clients at most, by a random order drawn once; ``None``:
            all.
        measures: what else to measure in every round; what they find goes into the row.

    Raises:
        QuorumError: after more skipped rounds in a row than the quorum allows.
    """
    first = starts if callable(starts) else (lambda j: starts)
    groups = algorithm.init(first, population.clients) if state is None else state
    scene = scene or FederationSnapshot(population, np.ones(population.clients, bool))
    if scene.population is not population:
        door.set_population(scene.population, scene.present)
    if shift is not None and population.lazy:
        raise ConfigError(
            "shift.kind: the data of a federation that is made client by client do not move, got a shift; "
            "expected none, or lazy = false in [data]"
        )
    panel = (
        None
        if evaluate_clients is None
        else EvaluationSample.of(evaluate_clients, population.clients, key)
    )
    everyone = getattr(algorithm, "samples", False)
    for t in range(start, rounds):
        begun = time.perf_counter()
        at = key.at(t)
        before = groups
        if shift is not None:
            scene = shift(scene, population, t, groups.member >= 0, at.of("shift"))
            door.set_population(scene.population, scene.present)
        cohort = (
            np.flatnonzero(_trains(scene))
            if everyone
            else sampler(t)
            if shift is None
            else sampler(t, _trains(scene))
        )
        groups, notes = algorithm.step(groups, cohort, door, at)
        ledger = door.ledger.read()
        row = _row(t, groups, notes, ledger) | {"moves": moves(before.member, groups.member)}
        if shift is not None:
            row |= _shifted(scene, before, notes)
        evaluated = time.perf_counter()
        if (t + 1) % evaluate_every == 0 or t == rounds - 1:
            models, which = served_by(groups)
            testable = (scene.population.sizes("test") > 0) & scene.present
            row |= score(door, testable, models, which, groups, at.of("evaluate"), panel)
        if scene.population.planted is not None:
            row["agreement"] = agreement(groups.member, scene.population.planted)
        for measure in measures:
            row |= measure(RoundView(door, scene.population, groups, notes, at.of("measure")))
        row["refused"] = dict(sorted((ledger.refused + door.ledger.read().refused).items()))
        row["seconds"] = {
            "training": ledger.training,
            **{
                name: notes.get("seconds", {}).get(name, 0.0)
                for name in ("grouping", "aggregation")
            },
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


_OWN = (
    *_COUNTS,
    "loss",
    "discrepancy",
    "skipped",
    "seconds",
    "drifted_ids",
    "ids",
    "weights",
    "plan",
)


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


def _shifted(scene: FederationSnapshot, before: Groups, notes: Mapping[str, Any]) -> dict[str, Any]:
    """What the scenario did, and which changes of warm clients the method did not see."""
    warm = scene.changed[before.member[scene.changed] >= 0]
    missed = np.setdiff1d(warm, notes.get("drifted_ids", np.empty(0, np.int64)))
    return {"shift": list(scene.events), "changed": len(scene.changed), "missed": len(missed)}
