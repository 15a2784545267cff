"""Attackers forge what their attack says, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.clients.bounds import Bounds
from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.engine import Engine
from coterie.core.keys import Key
from coterie.core.work import Score, Train
from coterie.data.population import Population
from coterie.engines import (
    ATTACKS,
    Attack,
    AttackingEngine,
    PoolEngine,
    SerialEngine,
    VmapEngine,
    poisoned,
)
from coterie.engines.attacks import (
    alie,
    backdoor,
    collusion,
    ipm,
    label_flip,
    noise,
    scaling,
    sign_flip,
    triggered,
)
from coterie.errors import ConfigError
from coterie.experiment.objects import make_choice
from coterie.local import LocalRunner
from tests.conftest import blobs, small_net
from tests.refusals import refuses
from tests.simulations import ONE_EPOCH

IDS = np.arange(12)
ATTACKERS = np.array([2, 5])
KEY = Key(1, "/train", 3)


def deltas(
    attack: Attack | None, work: Train | None = None, key: Key = KEY, engine: str = "serial"
) -> dict[str, np.ndarray]:
    """What twelve clients of two models send, those of `ATTACKERS` under an attack."""
    population = blobs()
    if attack is not None:
        population = poisoned(population, attack, ATTACKERS)
    made: Engine = engine_on(engine, population)
    if attack is not None:
        made = AttackingEngine(made, attack, ATTACKERS)
    net = small_net(population.classes)
    start = torch.nn.utils.parameters_to_vector(net.parameters()).detach()
    models = torch.stack([start, 0.5 * start])
    work = work or Train()
    which: IntArray = IDS % 2
    if work.choose is not None:
        which = np.tile(np.arange(2), (12, 1))
    with Clients(made, bounds=Bounds(enabled=False)) as clients:
        return dict(clients.run(work, IDS, models, which, key=key).fields)


def engine_on(name: str, population: Population) -> Any:
    runner = LocalRunner(population, small_net(population.classes), ONE_EPOCH)
    if name == "pool":
        return PoolEngine(runner, 2)
    if name == "vmap":
        return VmapEngine(runner, device="cpu")
    return SerialEngine(runner)


def test_only_attackers_send_something_else() -> None:
    honest = deltas(None)
    for name, make in ATTACKS.items():
        attacked = deltas(make())
        others = np.setdiff1d(IDS, ATTACKERS)
        assert (attacked["delta"][others] == honest["delta"][others]).all(), name
        assert (attacked["delta"][ATTACKERS] != honest["delta"][ATTACKERS]).any(), name


def test_forged_updates_are_those_of_the_formulas() -> None:
    honest = deltas(None)["delta"].astype(np.float64)
    own = honest[2]
    # Client 2 trained model 0, as all of even numbers.
    same = honest[[0, 4, 6, 8, 10]]
    expected = {
        "sign_flip": (sign_flip(factor=3.0), -3 * own),
        "scaling": (scaling(factor=1e14), 1e14 * own),
        "ipm": (ipm(factor=0.7), -0.7 * same.mean(axis=0)),
        "alie": (alie(z=1.5), same.mean(axis=0) - 1.5 * same.std(axis=0)),
    }
    for name, (attack, forged) in expected.items():
        sent = deltas(attack)["delta"][2]
        np.testing.assert_allclose(sent, forged, rtol=1e-5, atol=1e-7, err_msg=name)
    added = deltas(noise(factor=2.0))["delta"][2] - own
    assert 1 < np.linalg.norm(added) / np.linalg.norm(own) < 3


def test_noise_on_updates_without_a_value() -> None:
    """As of clients that share no part of the model."""
    nothing = np.zeros((1, 0))
    assert noise().forge(nothing, nothing, [Key(0)]).shape == (1, 0)  # type: ignore[misc]


def test_the_z_of_alie_is_that_of_the_paper() -> None:
    # n = 50, m = 24: s = 2, so Phi(z) < 24 / 26, Baruch et al. sec. 4.2.
    honest = np.random.default_rng(0).normal(size=(26, 3))
    sent = alie().forge(np.zeros((24, 3)), honest, [])  # type: ignore[misc]
    z = (honest.mean(axis=0) - sent[0]) / honest.std(axis=0)
    np.testing.assert_allclose(z, 1.426, atol=1e-3)


@pytest.mark.parametrize("name", ["noise", "alie", "backdoor"])
def test_engines_and_workers_make_no_difference(name: str) -> None:
    serial = deltas(ATTACKS[name]())
    pool = deltas(ATTACKS[name](), engine="pool")
    assert all((serial[field] == pool[field]).all() for field in serial)


def test_an_attacker_forges_the_model_that_it_chose() -> None:
    work = Train(choose="least_loss")
    honest = deltas(None, work)
    attacked = deltas(ipm(factor=1.0), work)
    assert (honest["choice"] == attacked["choice"]).all()
    chose = honest["choice"] == honest["choice"][2]
    chose[ATTACKERS] = False
    mean = honest["delta"][chose].astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(attacked["delta"][2], -mean, rtol=1e-5, atol=1e-7)


def test_labels_are_flipped_for_attackers_alone() -> None:
    before = blobs()
    after = poisoned(before, label_flip(), ATTACKERS)
    for client in range(12):
        now = after.y[after.train[client]]
        was = before.y[before.train[client]]
        expected = before.classes - 1 - was if client in ATTACKERS else was
        assert (now == expected).all()
        assert (after.test[client] == before.test[client]).all()
    assert (after.sizes("train") == before.sizes("train")).all()


def test_changed_samples_keep_their_true_group() -> None:
    before = blobs()
    concept = np.arange(len(before.y)) % 3
    before = replace(before, concept=concept, naive={"last": before.y.float()})
    after = poisoned(before, label_flip(), ATTACKERS)
    for client in range(before.clients):
        held = before.train[client]
        assert np.array_equal(after.concept[after.train[client]], concept[held])  # type: ignore[index]
        assert torch.equal(after.naive["last"][after.train[client]], before.y[held].float())


def test_a_shared_sample_stays_honest_for_the_honest() -> None:
    y = torch.tensor([0, 1])
    before = Population(torch.zeros(2, 1), y, ([0, 1], [0, 1]), ([], []), classes=2)
    after = poisoned(before, label_flip(), np.array([1]))
    assert after.y[after.train[0]].tolist() == [0, 1]
    assert after.y[after.train[1]].tolist() == [1, 0]


def test_a_backdoor_marks_half_of_the_samples() -> None:
    before = blobs()
    after = poisoned(before, backdoor(target=1), ATTACKERS)
    x = after.x[after.train[2]]
    was = before.x[before.train[2]]
    half = round(len(x) / 2)
    assert (x[:half] == triggered(was[:half])).all()
    assert (x[half:] == was[half:]).all()
    assert (after.y[after.train[2]][:half] == 1).all()
    with refuses(ConfigError, "not-found", "attack.target"):
        poisoned(before, backdoor(target=99), ATTACKERS)


def test_colluding_attackers_are_honest_while_they_are_placed() -> None:
    attack = collusion(factor=2.0)
    population = poisoned(blobs(), attack, ATTACKERS)
    # Client 0 is the honest one with the lowest number.
    assert all((population.train[i] == population.train[0]).all() for i in ATTACKERS)
    placing = deltas(attack, key=Key(1, "/assign/cold_start", 0))["delta"]
    training = deltas(attack)["delta"]
    later = deltas(attack, key=Key(1, "/train/2", 0))["delta"]
    assert np.sign(placing[2] @ placing[0]) == 1
    assert np.sign(training[2] @ training[0]) == -1
    assert np.sign(later[2] @ later[0]) == -1


def test_what_is_no_training_passes_as_it_is() -> None:
    population = blobs()
    engine = AttackingEngine(engine_on("serial", population), scaling(), ATTACKERS)
    net = small_net(population.classes)
    models = torch.nn.utils.parameters_to_vector(net.parameters()).detach()[None]
    reply = engine.run(Score("train"), IDS, models, 0 * IDS, key=KEY)[0]
    plainly = engine.engine.run(Score("train"), IDS, models, 0 * IDS, key=KEY)[0]
    assert (reply.fields["loss"] == plainly.fields["loss"]).all()


def test_attackers_are_the_same_for_every_attack_and_nested() -> None:
    able = np.arange(40)
    few = sign_flip(share=0.1).attackers(able, 40, Key(0))
    many = label_flip(share=0.3).attackers(able, 40, Key(0))
    assert len(few) == 4
    assert len(many) == 12
    assert np.isin(few, many).all()
    assert (alie(share=0.3).attackers(able, 40, Key(0)) == many).all()
    assert scaling(clients=(9, 3)).attackers(able, 40, Key(0)).tolist() == [3, 9]
    with refuses(ConfigError, "not-found", "attack.clients"):
        scaling(clients=(40,)).attackers(able, 40, Key(0))


def settings(**more: Any) -> dict[str, Any]:
    partition = {"kind": "planted", "clients": 12, "groups": 2, "how": "swap"}
    data = ct.load("digits", partition=partition)
    return {"data": data, "model": "mclr", "rounds": 3, "clients_per_round": 12, **more}


def test_an_attack_costs_accuracy_which_is_that_of_the_honest() -> None:
    common = settings(engine="serial", local=ct.Solver(epochs=2, lr=0.1))
    honest = ct.run(ct.fedavg(), **common)
    attack = sign_flip(share=0.25, factor=10.0)
    attacked = ct.run(ct.fedavg(), attack=attack, bounds={"enabled": False}, **common)
    assert attacked.accuracy[-1] < honest.accuracy[-1] - 0.2
    assert [row["attackers"] for row in attacked.rows] == [3, 3, 3]
    assert "attackers" not in honest.rows[0]
    # A share of 0 measures the same run over all clients.
    nobody = ct.run(ct.fedavg(), attack=sign_flip(share=0.0), **common)
    assert nobody.accuracy == honest.accuracy
    everybody = ct.run(ct.fedavg(), attack=sign_flip(share=1.0), **common)
    assert everybody.accuracy == []


def test_workers_of_the_pool_give_the_same_run() -> None:
    runs = [
        ct.run(
            ct.fedgroup(groups=2, alpha=4),
            attack=noise(share=0.25),
            **settings(engine={"name": "pool", "workers": workers}),
        )
        for workers in (1, 2)
    ]
    assert torch.equal(runs[0].state.models, runs[1].state.models)


def test_attacks_that_change_data_do_not_go_with_a_shift() -> None:
    from coterie.data.shifts import swap_all

    for attack in (label_flip(), collusion(), backdoor()):
        with refuses(ConfigError, "in-conflict", "shift"):
            ct.run(ct.fedavg(), attack=attack, shift=swap_all(p=0.5), **settings(engine="serial"))
    shifted = settings(engine="serial", shift=swap_all(p=0.5))
    assert len(ct.run(ct.fedavg(), attack="sign_flip", **shifted).rows) == 3


def test_the_table_of_a_configuration() -> None:
    from coterie.experiment import check

    tables: dict[str, Any] = {
        "data": {"source": "digits", "partition": {"kind": "iid", "clients": 4}},
        "model": {"name": "mclr"},
        "train": {"rounds": 2},
        "algorithm": {"name": "fedavg"},
    }
    assert check(tables).attack is None
    assert "attack" not in check(tables).resolved()
    given = check(tables | {"attack": {"kind": "ipm", "clients": [1], "factor": 2.0}})
    attack = make_choice(given, "attack")
    assert attack is not None
    assert attack.clients == (1,)
    assert given.resolved()["attack"] == {
        "kind": "ipm",
        "share": 0.2,
        "clients": [1],
        "factor": 2.0,
    }
    with refuses(ConfigError, "unknown-choice", "attack.kind"):
        check(tables | {"attack": {"kind": "sign_flop"}})
    with refuses(ConfigError, "out-of-range", "attack.share"):
        check(tables | {"attack": {"kind": "alie", "share": 2.0}})
