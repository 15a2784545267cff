"""Sums as secure aggregation computes them: exact but for rounding, and lost where too few reply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.algorithms import ALGORITHMS
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.updates import Updates
from coterie.data.sources.files import DataForm
from coterie.errors import Code, ConfigError
from coterie.experiment import check
from coterie.flower.federation_spec import FederationSpec
from coterie.methods.buffered import Buffering
from coterie.methods.override import with_buffer
from coterie.privacy.secure_sums import SecureSums, neighbourhoods, quantise, recoverable
from coterie.rules.weighing import by_size, evenly
from tests.refusals import refuses

LOCAL = ct.Solver(1, 20, 0.1)


def updates(n: int, d: int = 50, k: int = 1) -> Updates:
    rng = np.random.default_rng(n)
    delta = torch.from_numpy(0.1 * rng.standard_normal((n, d))).to(torch.float32)
    size = rng.integers(10, 200, n).astype(np.float64)
    return Updates(np.arange(n), np.arange(n) % k, delta, size, np.zeros(n))


def groups(k: int, d: int = 50) -> Groups:
    return Groups(torch.zeros(k, d), np.zeros(1, np.int64))


def plan_of(made: Updates) -> Plan:
    return Plan(made.ids, made.row)


def run(method: Any = None, **changed: Any) -> ct.Result:
    settings = {
        "data": ct.load("digits", partition={"kind": "planted", "clients": 12, "groups": 2}),
        "model": "mclr",
        "rounds": 2,
        "clients_per_round": 12,
        "engine": "serial",
        "local": LOCAL,
        **changed,
    }
    return ct.run(method or ct.fedavg(), **settings)


def test_masks_cancel_in_the_sum_modulo_a_power_of_two() -> None:
    """What is left out of the simulation changes no bit of a sum."""
    rng = np.random.default_rng(0)
    n, d, modulus = 5, 20, 2**32
    whole = rng.integers(0, 2**22, (n, d))
    masked = whole.copy()
    for i in range(n):
        for j in range(i):
            pairwise = rng.integers(0, modulus, d)
            masked[i] += pairwise
            masked[j] -= pairwise
    own = rng.integers(0, modulus, (n, d))
    masked = (masked + own) % modulus
    assert not np.array_equal(masked, whole)
    assert np.array_equal((masked.sum(0) - own.sum(0)) % modulus, whole.sum(0) % modulus)


def test_rounding_is_right_on_average_and_never_off_by_a_step() -> None:
    values = np.random.default_rng(1).uniform(-1, 1, 20_000)
    step = 2 / 64
    found = quantise(values, 1.0, 64, Key(3)) * step - 1
    assert np.abs(found - values).max() < step
    assert abs((found - values).mean()) < 5 * step / np.sqrt(len(values))
    assert (found - values).std() <= step / 2


@pytest.mark.parametrize("weigh", [by_size, evenly])
@pytest.mark.parametrize("levels", [2**12, 2**22])
def test_the_mean_is_that_of_the_updates_up_to_the_stated_error(weigh: Any, levels: int) -> None:
    made = updates(20, k=2)
    sums = SecureSums(reach=1.0, levels=levels, most_samples=200.0)
    weight = sums.weight(made.size, weigh)
    summed = sums.combine(groups(2), made, weight, plan_of(made), Key(0))
    assert summed.trained.all()
    for j in range(2):
        mine = made.row == j
        share = weigh.weight_of(made.size)[mine]
        exact = (share[:, None] * made.delta.numpy()[mine]).sum(0) / share.sum()
        error = np.abs(summed.total[j].numpy() - exact)
        # Less than a step for each client, and the rounding of the weights.
        bound = (2.0 / levels) * mine.sum() / weight[mine].sum()
        assert error.max() < 2 * bound
        assert error.max() <= summed.notes["secure"]["error"] + 1e-12


def test_a_sum_beyond_the_modulus_is_wrong_as_it_would_be() -> None:
    made = updates(20)
    fits = SecureSums(reach=1.0, levels=2**20, bits=26)
    short = SecureSums(reach=1.0, levels=2**20, bits=21)
    weight = np.ones(20)
    notes = [
        s.combine(groups(1), made, weight, plan_of(made), Key(0)).notes["secure"]["error"]
        for s in (fits, short)
    ]
    assert notes[0] < 1e-5
    assert notes[1] > 0.01


def test_a_group_is_lost_where_too_few_reply() -> None:
    made = updates(10)
    sums = SecureSums(threshold=0.6)
    plan = plan_of(made)
    for replies, kept in ((6, True), (5, False)):
        summed = sums.combine(groups(1), made.first(replies), np.ones(replies), plan, Key(0))
        assert summed.trained.tolist() == [kept]
        assert summed.notes["secure"]["lost"] == int(not kept)
    assert not summed.total.any()


def test_two_clients_would_know_each_other() -> None:
    made = updates(2)
    summed = SecureSums().combine(groups(1), made, np.ones(2), plan_of(made), Key(0))
    assert not summed.trained.any()


def test_neighbours_are_fewer_and_lose_a_sum_earlier() -> None:
    near = neighbourhoods(50, 7, Key(1))
    assert np.array_equal(near, near.T)
    assert (near.sum(axis=1) == 7).all()
    replied = np.ones(50, bool)
    assert recoverable(near, replied, 4)
    # Four neighbours of one client, of whom no one replies.
    replied[np.flatnonzero(near[0])[:4]] = False
    assert not recoverable(near, replied, 4)
    assert recoverable(np.ones((50, 50), bool), replied, 4)


@pytest.mark.parametrize("method", [ct.fedavg(), ct.fedadam(), ct.ifca(groups=2)])
def test_a_run_differs_by_rounding_alone(method: ct.Method) -> None:
    plain = run(method, bounds={"enabled": False})
    secure = run(method, secure=ct.SecureSums(reach=1.0, least_group=2, most_samples=200.0))
    gap = float((plain.state.models - secure.state.models).abs().max())
    assert 0 < gap < 1e-3
    row = secure.rows[-1]["secure"]
    assert row["lost"] == 0
    assert row["error"] < 1e-4
    assert row["bytes"] > 4 * 650
    assert np.array_equal(plain.state.member, secure.state.member)


def test_a_run_with_a_folder_is_the_same(tmp_path: Path) -> None:
    sums = ct.SecureSums(reach=1.0, levels=2**12, neighbours=4)
    stored = run(secure=sums, out=tmp_path / "run")
    assert torch.equal(stored.state.models, run(secure=sums).state.models)
    assert stored.rows[-1]["secure"]["agreements"] == 8


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"method": ct.fesem()}, ("does-not-fit", "algorithm.name")),
        ({"method": ct.ida()}, ("does-not-fit", "algorithm.name")),
        ({"method": ct.fedgsp()}, ("does-not-fit", "algorithm.name")),
        (
            {"method": ct.scaffold()},
            ("does-not-fit", "algorithm.name"),
        ),
        ({"weigh": "trimmed_mean"}, ("does-not-fit", "algorithm.name")),
        ({"method": ALGORITHMS["local"]()}, ("does-not-fit", "algorithm.name")),
        ({"bounds": {"enabled": True}}, ("in-conflict", "bounds.enabled")),
        (
            {"method": with_buffer(ct.fedavg(), Buffering(buffer=3))},
            ("in-conflict", "asynchronous"),
        ),
        ({"privacy": ct.Privacy(noise=1.0, accountant="rdp")}, ("in-conflict", "privacy")),
    ],
)
def test_what_needs_single_updates_is_refused(
    changed: dict[str, Any], refusal: tuple[Code, str]
) -> None:
    with refuses(ConfigError, *refusal) as error:
        run(secure=ct.SecureSums(), **changed)
    assert "\n" not in str(error.value)


TABLES: dict[str, Any] = {
    "data": {"source": "digits", "partition": {"kind": "iid", "clients": 6}},
    "model": {"name": "mclr"},
    "train": {"rounds": 2, "clients_per_round": 6},
    "algorithm": {"name": "fedavg"},
    "secure": {},
}


def test_the_table_and_what_goes_not_with_it() -> None:
    config = check(TABLES)
    assert not config.bounds.enabled
    assert config.train.sampler != "poisson"
    with refuses(ConfigError, "in-conflict", "bounds.enabled"):
        check({**TABLES, "bounds": {"enabled": True}})
    with refuses(ConfigError, "in-conflict", "asynchronous"):
        check({**TABLES, "asynchronous": {}})
    with refuses(ConfigError, "in-conflict", "privacy"):
        check({**TABLES, "privacy": {"noise": 1.0}})
    with refuses(ConfigError, "in-conflict", "secure"):
        FederationSpec.of(config, DataForm((1, 8, 8), tuple("0123456789")), 6)
