"""Do newcomers without labels find the group that they find with labels?

    python -m benchmarks.unlabelled_newcomers
    python -m benchmarks.unlabelled_newcomers --federation stations --seeds 3

Rotated MNIST with four angles, the same images in every group; a quarter of the clients never trains.
Or the 12 stations of Beijing air, whose PM2.5 in 24 hours is one of five levels; each station is one of
the quarter that never trains once, so four runs a seed.
After the last round each of them is placed twice: by the method's own rule for newcomers, which has
labels, and by its inputs alone, as `coterie predict` and nodes without labels are.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

import coterie as ct
from coterie.core.arrays import IntArray
from coterie.core.describe import Describe
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.local.describe import describe, describe_inputs
from coterie.rules.newcomers import PlacesUnlabelled, unlabelled_rule

ROUNDS = 10
# PM2.5 in ug/m3 where a day's air is called good, lightly polluted, and so on (HJ 633-2012), so that the
# target has classes, without which FLUX, Feroma and PACFL do not run. The two highest are one here.
LEVELS = (35, 75, 115, 150)


@dataclass(frozen=True)
class Federation:
    """A federation of the benchmark.

    Args:
        name: of it.
        groups: of the methods that are told how many there are.
        data: seed -> the clients.
        newcomers: seed, clients -> those that never train, one array for each run.
        call: what `coterie.run` is given beside these.
    """

    name: str
    groups: int
    data: Callable[[int], ct.Population]
    newcomers: Callable[[int, int], Sequence[IntArray]]
    call: Mapping[str, Any]


def rotated_mnist(seed: int) -> ct.Population:
    """A hundred clients in four groups, whose images are turned."""
    partition = {
        "kind": "planted",
        "how": "rotate",
        "groups": 4,
        "clients": 100,
        "copies": True,
        "size": 200,
    }
    return ct.load("mnist", partition=partition, seed=seed, pixels="unit")


def stations(seed: int) -> ct.Population:
    """Twelve stations: a week of hours, and the level of PM2.5 24 hours later."""
    window = {"past": 168, "horizon": 24, "stride": 24, "season": 24, "test_fraction": 0.2}
    partition = {"kind": "natural", "column": "station"}
    data = ct.load("beijing_air", partition=partition, window=window, seed=seed)
    levels = torch.from_numpy(np.digitize(data.y.numpy(), LEVELS))
    return replace(data, y=levels, classes=len(LEVELS) + 1, naive={})


def a_quarter(seed: int, clients: int) -> Sequence[IntArray]:
    """A quarter of the clients, drawn once."""
    order = np.random.default_rng(seed).permutation(clients)
    return [np.sort(order[: clients // 4])]


def each_quarter(seed: int, clients: int) -> Sequence[IntArray]:
    """Four quarters of the clients, so that each is a newcomer once."""
    order = np.random.default_rng(seed).permutation(clients)
    return [np.sort(quarter) for quarter in np.array_split(order, 4)]


FEDERATIONS = {
    "mnist": Federation(
        "mnist",
        4,
        rotated_mnist,
        a_quarter,
        {
            "model": {"name": "mlp", "hidden": 64},
            "local": ct.Solver(epochs=3, batch_size=20, lr=0.1),
            "clients_per_round": 20,
        },
    ),
    "stations": Federation(
        "stations",
        2,
        stations,
        each_quarter,
        {
            "model": {"name": "mlp", "hidden": 32},
            "local": ct.Solver(epochs=1, batch_size=32, lr=0.01),
            "clients_per_round": 9,
        },
    ),
}


def methods(groups: int) -> Mapping[str, Callable[[], ct.Method]]:
    """What is measured, by name."""
    return {
        "FLUX": ct.flux,
        f"FLUX, groups = {groups}": lambda: ct.flux(groups=groups),
        "Feroma": ct.feroma,
        "PACFL": ct.pacfl,
        "k-FED": lambda: ct.k_fed(groups=groups),
    }


@dataclass(frozen=True)
class Placed:
    """Where the newcomers of a run were placed.

    Args:
        groups: that the run has.
        labelled: int64 ``[n]``, the groups by what they reported with labels.
        by_inputs: int64 ``[n]``, the groups by their inputs alone.
        planted: int64 ``[n]``, their true groups; ``None`` where there are none.
        majority: int64 ``[k]``, the true group of most clients of each group.
    """

    groups: int
    labelled: IntArray
    by_inputs: IntArray
    planted: IntArray | None = None
    majority: IntArray | None = None


def one_run(
    made: ct.Method, federation: Federation, data: ct.Population, new: IntArray, seed: int
) -> Placed:
    """A run in which some clients never train, and where these are placed after it."""
    result = ct.run(
        made,
        data=data,
        rounds=ROUNDS,
        seed=seed,
        engine="serial",
        train={"evaluate_every": ROUNDS},
        evaluate={"unseen": tuple(new.tolist()), "unseen_labels": False},
        **federation.call,
    )
    rule = unlabelled_rule(made.assign)
    assert rule is not None, "the method needs labels"
    groups = result.state
    by_inputs = without_labels(rule, groups, data, new, result.module, seed)
    # What the run itself did with them.
    assert groups.k == 1 or (by_inputs == groups.member[new]).all()
    labelled = with_labels(rule, groups, data, new, result.module, seed)
    if data.planted is None:
        return Placed(groups.k, labelled, by_inputs)
    planted = np.asarray(data.planted)
    known = np.setdiff1d(np.flatnonzero(groups.member >= 0), new)
    member = groups.member[known]
    majority = np.array(
        [np.bincount(planted[known[member == g]]).argmax() for g in range(groups.k)]
    )
    return Placed(groups.k, labelled, by_inputs, planted[new], majority)


def with_labels(
    rule: PlacesUnlabelled,
    groups: Groups,
    data: ct.Population,
    new: IntArray,
    module: Any,
    seed: int,
) -> IntArray:
    """The groups by what clients report of their labelled samples."""
    asked = rule.ask_unlabelled(groups)
    assert asked is not None
    work, model = asked
    work = Describe(work.statistic, data.classes, work.features, work.vectors)
    which = np.zeros(len(new), np.int64)
    rows = describe(work, data, new, Key(seed), module, model[None], which)
    return rule.place_unlabelled(groups, torch.from_numpy(rows))


def without_labels(
    rule: PlacesUnlabelled,
    groups: Groups,
    data: ct.Population,
    new: IntArray,
    module: Any,
    seed: int,
) -> IntArray:
    """The groups by their inputs alone."""
    asked = rule.ask_unlabelled(groups)
    assert asked is not None
    work, model = asked
    held = [data.x[torch.from_numpy(data.train[client])] for client in new.tolist()]
    rows = [describe_inputs(work, x, Key(seed), module, model) for x in held]
    return rule.place_unlabelled(groups, torch.from_numpy(np.stack(rows)))


def shares(runs: Sequence[Placed]) -> dict[str, Any]:
    """Shares of the newcomers of some runs, in %.

    Returns:
        ``groups``: of each run; ``same``: placed without labels in the group that they are placed in with
        labels; where true groups are known, ``right`` and ``right_labelled``: in a group most of whose
        clients have theirs.
    """
    labelled = np.concatenate([one.labelled for one in runs])
    by_inputs = np.concatenate([one.by_inputs for one in runs])
    found = {"groups": [one.groups for one in runs], "same": _percent(labelled == by_inputs)}
    for name in ("by_inputs", "labelled"):
        right = [
            one.majority[getattr(one, name)] == one.planted
            for one in runs
            if one.majority is not None and one.planted is not None
        ]
        if right:
            key = "right" if name == "by_inputs" else "right_labelled"
            found[key] = _percent(np.concatenate(right))
    return found


def _percent(found: Any) -> float:
    return round(100 * float(found.mean()), 1)


def measured(federation: Federation, seeds: int) -> Iterator[dict[str, Any]]:
    """The shares of each seed and method."""
    for seed in range(seeds):
        data = federation.data(seed)
        quarters = federation.newcomers(seed, data.clients)
        for name, make in methods(federation.groups).items():
            runs = [one_run(make(), federation, data, new, seed) for new in quarters]
            yield {"method": name, "seed": seed, **shares(runs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--federation", choices=FEDERATIONS, default="mnist")
    parser.add_argument("--seeds", type=int, default=6)
    chosen = parser.parse_args()
    for row in measured(FEDERATIONS[chosen.federation], chosen.seeds):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
