"""The cost of releases, against dp-accounting called by itself."""

from __future__ import annotations

import math

import pytest

from tests.refusals import refuses

pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")

import dp_accounting as dp
from scipy.stats import norm as normal

from coterie.errors import ConfigError
from coterie.privacy import accounting
from coterie.privacy.accounting import Release, epsilon_of, least_noise

DELTA = 1e-5


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_rounds_of_poisson_samples_cost_what_dp_accounting_says(accountant):
    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(2.0)), 30)
    if accountant == "pld":
        direct = dp.pld.PLDAccountant(value_discretization_interval=accounting.INTERVAL)
    else:
        direct = dp.rdp.RdpAccountant(accounting.ORDERS)
    direct.compose(event)
    ours = epsilon_of((Release(2.0, 0.1, 30),), DELTA, accountant)
    assert ours == direct.get_epsilon(DELTA)


def test_the_wider_interval_costs_little_and_is_on_the_safe_side():
    exact = dp.pld.PLDAccountant()
    exact.compose(
        dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(3.0)), 20)
    )
    epsilon = exact.get_epsilon(DELTA)
    assert epsilon <= epsilon_of((Release(3.0, 0.1, 20),), DELTA) <= 1.001 * epsilon


def test_cohorts_without_replacement_are_counted_for_one_client_in_the_place_of_another():
    direct = dp.rdp.RdpAccountant(accounting.ORDERS, dp.NeighboringRelation.REPLACE_ONE)
    sampled = dp.SampledWithoutReplacementDpEvent(100, 10, dp.GaussianDpEvent(3.0))
    direct.compose(dp.SelfComposedDpEvent(sampled, 20))
    ours = epsilon_of((Release(3.0, (10, 100), 20),), DELTA, "rdp")
    assert ours == direct.get_epsilon(DELTA)


def test_releases_add_up_and_no_release_costs_nothing():
    one = Release(4.0, 0.1, 10)
    assert epsilon_of((), DELTA) == epsilon_of((Release(4.0, 0.1, 0),), DELTA) == 0.0
    assert epsilon_of((one, Release(5.0)), DELTA) > epsilon_of((one,), DELTA)
    assert epsilon_of((Release(0.0, 0.1),), DELTA) == math.inf


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_the_least_noise_spends_the_budget_and_not_more(accountant):
    release = Release(1.0, 0.1, 20)
    noise = least_noise((release,), 3.0, DELTA, accountant)
    assert epsilon_of((Release(noise, 0.1, 20),), DELTA, accountant) <= 3.0
    assert epsilon_of((Release(noise, 0.1, 20),), DELTA, accountant) >= 0.99 * 3.0


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setattr(accounting, "find_spec", lambda name: None)
    with refuses(ConfigError, "not-installed", "privacy"):
        accounting.check_package()


@pytest.mark.parametrize("noise", [0.02, 1e-3])
def test_little_noise_is_counted_in_little_memory(noise):
    """A distribution of so large losses at the usual interval has some million to a billion values."""
    # epsilon of one Gaussian release of all clients: delta(epsilon) in closed form, Balle & Wang.
    low = 0.0
    high = 1 / noise**2 + 100 / noise
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        above = normal.logsf(middle * noise - 1 / (2 * noise))
        below = middle + normal.logsf(middle * noise + 1 / (2 * noise))
        delta = math.exp(above) - math.exp(below)
        if delta > DELTA:
            low = middle
        else:
            high = middle
    assert low <= epsilon_of((Release(noise),), DELTA) <= 1.001 * high
