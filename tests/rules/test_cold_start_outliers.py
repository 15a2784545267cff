"""Attackers do not take a group of the cold start, or decide where FedClust cuts its tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.engines.attacks import Attack, alie, ipm, label_flip, scaling, sign_flip

DIRECTIONS: dict[str, Any] = {
    "fedgroup": lambda outliers: ct.fedgroup(groups=3, alpha=12, outliers=outliers),
    "flexcfl": lambda outliers: ct.flexcfl(groups=3, alpha=12, outliers=outliers),
    "fedclust": lambda outliers: ct.fedclust(outliers=outliers),
}


def run(name: str, outliers: str, attack: Attack | None = None, rounds: int = 1) -> ct.Result:
    partition = {"kind": "planted", "clients": 36, "groups": 3, "how": "swap"}
    return ct.run(
        DIRECTIONS[name](outliers),
        data=ct.load("digits", partition=partition),
        model="mclr",
        local=ct.Solver(epochs=3, lr=0.1),
        rounds=rounds,
        clients_per_round=36,
        attack=attack,
        engine="serial",
    )


ATTACKS = {"flip": sign_flip(), "scaling": scaling(factor=30.0), "ipm": ipm(factor=3.0)}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("name", DIRECTIONS)
def test_groups_of_honest_clients_are_found_among_attackers(name: str, attack: Attack) -> None:
    result = run(name, "leave_out", attack)
    assert result.rows[0]["agreement"]["ari"] > 0.95
    assert result.rows[0]["clients_assigned"] == 36
    assert result.state.k == 3


@pytest.mark.parametrize("name", ["fedgroup", "flexcfl"])
def test_with_attackers_in_the_clustering_the_groups_are_lost(name: str) -> None:
    """What is prevented, or the test before could not fail."""
    kept = run(name, "keep", ATTACKS["ipm"])
    assert kept.rows[0]["agreement"]["ari"] < 0.9


@pytest.mark.parametrize("name", DIRECTIONS)
def test_honest_clients_that_are_left_out_join_their_group(name: str) -> None:
    keep = run(name, "keep")
    leave = run(name, "leave_out")
    assert leave.rows[0]["agreement"] == keep.rows[0]["agreement"]
    assert (leave.groups >= 0).all()
    assert torch.isfinite(leave.state.models).all()


def test_ifca_starts_with_the_groups_of_honest_clients() -> None:
    partition = {"kind": "planted", "clients": 36, "groups": 3, "how": "swap"}
    settings: dict[str, Any] = {
        "data": ct.load("digits", partition=partition),
        "model": "mclr",
        "local": ct.Solver(epochs=3, lr=0.1),
        "rounds": 2,
        "clients_per_round": 36,
        "attack": ATTACKS["ipm"],
        "engine": "serial",
    }
    ari = {
        init: ct.run(ct.ifca(3, init=init, alpha=12), **settings).rows[-1]["agreement"]["ari"]
        for init in ("cold_start", "robust_cold_start")
    }
    assert ari["robust_cold_start"] > 0.95
    assert ari["cold_start"] < 0.9


def fedclust_on_digits(outliers: str, attack: Attack | None, seed: int = 0) -> ct.Result:
    partition = {"kind": "planted", "clients": 60, "groups": 3, "how": "swap"}
    return ct.run(
        ct.fedclust(outliers=outliers),
        data=ct.load("digits", partition=partition, seed=seed),
        model="mclr",
        local=ct.Solver(epochs=5, batch_size=10, lr=0.1),
        rounds=1,
        clients_per_round=5,
        seed=seed,
        attack=attack,
        engine="serial",
    )


ONE_OF_60 = {
    "sign flip": (sign_flip, 3),
    "label flip": (label_flip, 4),
    "ALIE": (alie, 5),
}


@pytest.mark.parametrize(("attack", "seed"), ONE_OF_60.values(), ids=ONE_OF_60)
def test_one_attacker_that_fits_no_group_hides_none(attack: Any, seed: int) -> None:
    one = attack(clients=((7 + 11 * seed) % 60,))
    result = fedclust_on_digits("keep", one, seed)
    assert result.state.k == 3
    assert result.rows[0]["agreement"]["ari"] == 1.0
    assert (result.groups >= 0).all()


def test_a_small_group_of_honest_clients_is_found_by_default() -> None:
    """With `leave_out` its clients are far from all others, and join another group."""
    partition = {"kind": "planted", "clients": 24, "groups": 2, "how": "swap"}
    data = ct.load("digits", partition=partition)
    few = np.flatnonzero((data.planted == 0) | (np.arange(24) < 4))
    small = ct.Population(
        data.x,
        data.y,
        tuple(data.train[i] for i in few),
        tuple(data.test[i] for i in few),
        data.classes,
        planted=data.planted[few],
    )
    ari = {}
    for outliers in ("keep", "leave_out"):
        result = ct.run(
            ct.fedclust(outliers=outliers),
            data=small,
            model="mclr",
            local=ct.Solver(epochs=5, batch_size=10, lr=0.1),
            rounds=1,
            clients_per_round=2,
            engine="serial",
        )
        ari[outliers] = result.rows[0]["agreement"]["ari"]
    assert ari["keep"] == 1.0
    assert ari["leave_out"] < 0.5


def test_one_attacker_does_not_decide_where_the_tree_is_cut() -> None:
    """Even with `keep`: its signature is far from all others, and so is the last merge."""
    for attack in (sign_flip(clients=(7,)), sign_flip(clients=(7,), factor=10.0)):
        result = fedclust_on_digits("keep", attack)
        assert result.state.k == 3
        assert result.rows[0]["agreement"]["ari"] == 1.0
        assert result.rows[0]["notes"]["outliers"] == 1
        # It joins a group all the same.
        assert (result.groups >= 0).all()


def test_honest_signatures_are_cut_as_before() -> None:
    row = fedclust_on_digits("keep", None).rows[0]
    assert "outliers" not in row["notes"]
    assert row["cold_start"] == 60


@pytest.mark.parametrize(("attack", "seed"), [(label_flip(), 0), (alie(), 2)], ids=["flip", "alie"])
def test_attackers_that_look_like_small_groups_do_not_merge_the_others(
    attack: Attack, seed: int
) -> None:
    result = fedclust_on_digits("leave_out", attack, seed)
    assert result.rows[0]["agreement"]["ari"] > 0.95
    assert 3 <= result.state.k <= 6


def test_a_client_that_is_left_out_stands_for_the_group_it_joined() -> None:
    result = run("fedclust", "leave_out", sign_flip())
    assert result.rows[0]["notes"]["outliers"] >= 7
    from coterie.rules.signatures import SignatureMemory

    memory = result.state.memory.get(SignatureMemory)
    assert memory is not None
    assert (memory.cluster == result.groups).all()
    assert len(memory.leaves) == 36 - result.rows[0]["notes"]["outliers"]
    assert memory.tree.shape == (len(memory.leaves) - 1, 4)
    assert np.isfinite(memory.signature.numpy()).all()
