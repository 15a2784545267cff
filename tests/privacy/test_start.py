"""First groups of noised sums: planted groups are found, one client moves one sum, and the cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
import torch

import coterie as ct
from coterie.core.keys import Key
from coterie.errors import Code, ConfigError
from coterie.privacy import accounting
from coterie.privacy.start import (
    RELEASES,
    CentreMemory,
    PrivateColdStart,
    PrivateNewcomers,
    chosen_centre,
    within_unit,
)
from tests.refusals import refuses

LOCAL = ct.Solver(2, 10, 0.1)


def run(method: Any = None, **changed: Any) -> ct.Result:
    planted = {"kind": "planted", "clients": 60, "groups": 3, "how": "swap"}
    settings = {
        "data": ct.load("digits", partition=planted),
        "model": "mclr",
        "rounds": 2,
        "clients_per_round": 30,
        "engine": "serial",
        "local": LOCAL,
        **changed,
    }
    return ct.run(method or ct.fedgroup(groups=3, alpha=20), **settings)


def test_planted_groups_are_found_with_little_noise():
    rule = ct.fedgroup(groups=3, alpha=20).assign
    private = rule.with_private_start(0.01, 1.0, 60, None)
    method = replace(ct.fedgroup(groups=3), assign=private)
    result = run(method, rounds=1)
    assert result.rows[0]["agreement"]["ari"] == 1.0
    # All groups start alike, from the first model.
    assert isinstance(private.cold_start, PrivateColdStart)
    assert isinstance(private.newcomers, PrivateNewcomers)


def test_the_cold_start_is_a_part_of_the_budget():
    privacy = ct.Privacy(noise=4.0, start_noise=2.0, accountant="rdp")
    result = run(ct.fedgroup(groups=3, alpha=5), privacy=privacy)
    direct = dp.rdp.RdpAccountant(accounting.ORDERS)
    direct.compose(dp.PoissonSampledDpEvent(0.25, dp.GaussianDpEvent(8.0)))
    direct.compose(
        dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(4.0)), 2)
    )
    assert result.rows[-1]["privacy"]["epsilon"] == direct.get_epsilon(1e-5)


def test_the_releases_of_a_cold_start_are_one_mechanism_of_its_noise():
    one = dp.rdp.RdpAccountant(accounting.ORDERS)
    one.compose(dp.GaussianDpEvent(3.0))
    each = dp.rdp.RdpAccountant(accounting.ORDERS)
    each.compose(dp.SelfComposedDpEvent(dp.GaussianDpEvent(3.0 * RELEASES**0.5), RELEASES))
    assert each.get_epsilon(1e-5) == pytest.approx(one.get_epsilon(1e-5))


def test_one_client_moves_one_sum_by_one_at_most():
    rng = np.random.default_rng(0)
    vectors = torch.from_numpy(rng.standard_normal((20, 64)))
    directions = vectors / vectors.norm(dim=1, keepdim=True)
    mean = torch.from_numpy(rng.standard_normal(64))
    rest = within_unit(directions - mean)
    assert rest.norm(dim=1).max() <= 1 + 1e-12
    centres = torch.from_numpy(np.linalg.qr(rng.standard_normal((64, 3)))[0].T.copy())
    memory = CentreMemory(mean, centres)
    start = PrivateColdStart(3, 1.0, 0.0, 20)
    row = chosen_centre(directions, memory)
    whole = start._noised_sums(rest, row, 3, Key(0))
    for i in range(len(rest)):
        kept = np.delete(np.arange(20), i)
        # A client's choice depends on nobody else, so the others stay where they are.
        alone = chosen_centre(directions[kept], memory)
        assert np.array_equal(alone, row[kept])
        changed = whole - start._noised_sums(rest[kept], alone, 3, Key(0))
        assert changed.norm() <= 1 + 1e-9
        assert not changed[np.arange(3) != row[i]].any()


@pytest.mark.parametrize(
    ("method", "refusal"),
    [
        (ct.fedgroup(groups="auto"), ("does-not-fit", "algorithm.groups")),
        (ct.fedgroup(measure="madc"), ("does-not-fit", "algorithm.measure")),
        (ct.fedgroup(ablation="rcc"), ("does-not-fit", "algorithm.ablation")),
        (ct.fedgroup(outliers="leave_out"), ("does-not-fit", "algorithm.outliers")),
        (ct.fedgroup(newcomer="aux_latest"), ("does-not-fit", "algorithm.newcomer")),
        (ct.flexcfl(), ("does-not-fit", "migration.detector")),
    ],
)
def test_options_that_need_single_updates_are_refused(method, refusal: tuple[Code, str]):
    with refuses(ConfigError, *refusal):
        run(method, privacy=ct.Privacy(noise=1.0))


def test_cohorts_of_a_fixed_size_are_refused_with_a_cold_start():
    privacy = ct.Privacy(noise=1.0, accountant="rdp")
    with refuses(ConfigError, "does-not-fit", "train.sampler"):
        run(privacy=privacy, train={"sampler": "uniform"})
