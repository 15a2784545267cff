"""Do newcomers without labels find the group that they find with labels?

    python -m benchmarks.unlabelled_newcomers

Rotated MNIST with four angles, the same images in every group. A quarter of the clients never trains.
After the last round each of them is placed twice: by the method's own rule for newcomers, which has
labels, and by its inputs alone, as `coterie predict` does.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

import coterie as ct
from coterie.core.describe import Describe
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.local.describe import describe, describe_inputs
from coterie.rules.unlabelled import PlacesUnlabelled, unlabelled_rule

ROUNDS = 10
GROUPS = 4
METHODS: Mapping[str, Callable[[], ct.Method]] = {
    "FLUX": ct.flux,
    "FLUX, groups = 4": lambda: ct.flux(groups=GROUPS),
    "Feroma": ct.feroma,
    "PACFL": ct.pacfl,
    "k-FED": lambda: ct.k_fed(groups=GROUPS),
}


def one_run(method: str, clients: int, seed: int) -> dict[str, float]:
    """Shares of the newcomers, in %.

    Returns:
        ``same``: placed without labels in the group that they are placed in with labels; ``right`` and
        ``right_labelled``: in a group most of whose clients have their angle.
    """
    partition = {
        "kind": "planted",
        "how": "rotate",
        "groups": GROUPS,
        "clients": clients,
        "copies": True,
        "size": 200,
    }
    data = ct.load("mnist", partition=partition, seed=seed, pixels="unit")
    order = np.random.default_rng(seed).permutation(clients)
    new = np.sort(order[: clients // 4])
    made = METHODS[method]()
    result = ct.run(
        made,
        data=data,
        model={"name": "mlp", "hidden": 64},
        local=ct.Solver(epochs=3, batch_size=20, lr=0.1),
        rounds=ROUNDS,
        clients_per_round=20,
        seed=seed,
        engine="serial",
        evaluate_every=ROUNDS,
        evaluate_unseen=new.tolist(),
    )
    rule = unlabelled_rule(made.assign)
    assert rule is not None, f"{method} needs labels"
    groups = result.state
    labelled = with_labels(rule, groups, data, new, result.module, seed)
    by_inputs = without_labels(rule, groups, data, new, result.module, seed)
    planted = np.asarray(data.planted)
    known = groups.member >= 0
    majority = np.array(
        [np.bincount(planted[known & (groups.member == g)]).argmax() for g in range(groups.k)]
    )
    return {
        "groups": groups.k,
        "same": _percent(labelled == by_inputs),
        "right": _percent(majority[by_inputs] == planted[new]),
        "right_labelled": _percent(majority[labelled] == planted[new]),
    }


def _percent(found: Any) -> float:
    return round(100 * float(found.mean()), 1)


def with_labels(
    rule: PlacesUnlabelled, groups: Groups, data: ct.Population, new: Any, module: Any, seed: int
) -> Any:
    """The groups by what clients report of their labelled samples."""
    asked = rule.ask_unlabelled(groups)
    assert asked is not None
    work, model = asked
    work = Describe(work.statistic, data.classes, work.features, work.vectors)
    which = np.zeros(len(new), np.int64)
    rows = describe(work, data, new, Key(seed), module, model[None], which)
    return rule.place_unlabelled(groups, torch.from_numpy(rows))


def without_labels(
    rule: PlacesUnlabelled, groups: Groups, data: ct.Population, new: Any, module: Any, seed: int
) -> Any:
    """The groups by their inputs alone."""
    asked = rule.ask_unlabelled(groups)
    assert asked is not None
    work, model = asked
    held = [data.x[torch.from_numpy(data.train[client])] for client in new.tolist()]
    rows = [describe_inputs(work, x, Key(seed), module, model) for x in held]
    return rule.place_unlabelled(groups, torch.from_numpy(np.stack(rows)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=6)
    chosen = parser.parse_args()
    for method in METHODS:
        for seed in range(chosen.seeds):
            print(method, seed, one_run(method, chosen.clients, seed), flush=True)


if __name__ == "__main__":
    main()
