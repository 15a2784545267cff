"""What leaves a client: the pages of the methods against the ledger, and the noise on
statistics."""

from __future__ import annotations

import re

import numpy as np
import pytest

import coterie as ct
from coterie.algorithms import ALGORITHMS
from coterie.clients.clients import Clients
from coterie.clients.validation import ReplyValidator
from coterie.core.describe import Describe
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.vectors import flatten
from coterie.engines import PoolEngine, SerialEngine
from coterie.local import LocalRunner
from coterie.rules.cluster_queries import ClusterMemory
from tests.conftest import blobs, small_net
from tests.contract.test_algorithms import CASES
from tests.docs.pages import method_tables
from tests.refusals import refuses

# What the pages of the methods say of their replies.
TABLE = {
    name: set(re.findall(r"`(\w+)`", one.fields)) for name, one in method_tables.sent().items()
}
SOLVER = ct.Solver(epochs=1, batch_size=10, lr=0.1)
# by these more leaves a client, and no case of the contract has them
OPTIONS = {"ida": [{"intrac": True}], "naive_gsp": [{"icg": True}]}
MANY = np.arange(4000)
NET = small_net()


def test_the_table_has_every_algorithm_and_no_other() -> None:
    assert set(TABLE) == set(ALGORITHMS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_the_ledger_saw_is_what_the_table_says(name: str) -> None:
    """Over a few rounds of each of the algorithm's cases in the contract."""
    methods = [make(2) for case, make in CASES.items() if case.partition("-")[0] == name]
    methods += [ALGORITHMS[name](**options) for options in OPTIONS.get(name, [])]
    seen: set[str] = set()
    for method in methods or [ALGORITHMS[name]()]:
        ct.run(
            method,
            data=blobs(),
            model=NET,
            local=SOLVER,
            rounds=3,
            clients_per_round=6,
            engine="serial",
            on_round=lambda result: seen.update(
                f for block in result.blocks if block.up for f in block.fields
            ),
        )
    assert seen == TABLE[name], f"the row of {name} on its page has other fields than its replies"


def test_the_ledger_tells_an_update_from_a_part_of_one() -> None:
    with Clients(SerialEngine(LocalRunner(blobs(), NET, SOLVER))) as clients:
        models = flatten(NET)[None]
        one = np.array([3])
        for upload in (None, (0, 5)):
            clients.run(
                ct.Train(ct.fedavg().local.objective, upload=upload),
                one,
                models,
                0 * one,
                key=Key(0),
            )
        blocks = clients.ledger.read().blocks
    assert [block.fields for block in blocks if block.up] == [
        ("delta", "size", "loss"),
        ("slice", "size", "loss"),
    ]
    assert all(block.fields == () for block in blocks if not block.up)


# --- noise ----------------------------------------------------------------------------------------


def reported(
    work: Describe, population: ct.Population, ids: np.ndarray, key: Key, kind: str = "serial"
) -> Reply:
    runner = LocalRunner(population, NET, SOLVER)
    with Clients(SerialEngine(runner) if kind == "serial" else PoolEngine(runner, 1)) as clients:
        return clients.run(
            work, ids, flatten(NET)[None], np.empty((len(ids), 0), np.int64), key=key
        )


def crowd() -> ct.Population:
    """Clients that all hold the same two samples of class 0 and one of class 2."""
    from torch import tensor, zeros

    rows = np.array([0, 1, 2])
    return ct.Population(
        zeros(3, 6), tensor([0, 0, 2]), (rows,) * len(MANY), (rows[:0],) * len(MANY), 4
    )


@pytest.mark.parametrize("privacy", ["discrete_laplace", "randomised_response"])
@pytest.mark.parametrize("statistic", ["histogram", "imbalance"])
def test_noise_is_drawn_once_per_client(privacy: str, statistic: str) -> None:
    work = Describe(statistic, 4, level=3.0, privacy=privacy)
    population = blobs()
    ids = np.arange(12)
    first = reported(work, population, ids, Key(5, round=0)).fields[statistic]
    again = reported(work, population, ids, Key(5, "other", round=9), "pool").fields[statistic]
    some = reported(work, population, ids[[2, 7]], Key(5)).fields[statistic]
    assert np.array_equal(first, again)
    assert np.array_equal(first[[2, 7]], some)
    if statistic == "histogram":
        assert not np.array_equal(first, reported(work, population, ids, Key(6)).fields[statistic])


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 1e-7, 1e-300])
def test_a_budget_too_small_for_whole_numbers_is_refused(epsilon: float) -> None:
    """Geometric draws end at 2^63: with a smaller budget all would be that, and the noise their
    difference, 0."""
    for make in (
        ct.fedgsp,
        ct.naive_gsp,
        ct.astraea,
        ct.rfedavg,
        ct.rfedavg_kmeans,
        ct.rfedavg_optimal,
        Describe,
    ):
        with refuses(ct.ConfigError, "out-of-range", "epsilon"):
            make(epsilon=epsilon)
    work = Describe("histogram", 4, privacy="discrete_laplace", epsilon=1e-6)
    drawn = reported(work, crowd(), MANY, Key(1)).fields["histogram"]
    assert 0.4 < (drawn > 1e5).mean() < 0.5


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_discrete_laplace_has_the_law_it_should(epsilon: float) -> None:
    """``P(z) = (1 - a) / (1 + a) a^|z|`` with ``a = e^-epsilon``; reported counts are whole and not
    below 0."""
    work = Describe("histogram", 4, privacy="discrete_laplace", epsilon=epsilon)
    found = reported(work, crowd(), MANY, Key(1)).fields["histogram"]
    assert (found >= 0).all()
    assert (found == np.rint(found)).all()
    a = np.exp(-epsilon)
    for z in range(4):
        expected = (1 - a) / (1 + a) * a**z
        spread = 5 * np.sqrt(expected / len(MANY))
        assert abs((found[:, 0] == 2 + z).mean() - expected) < spread
    assert abs((found[:, 1] == 0).mean() - 1 / (1 + a)) < 5 / np.sqrt(
        len(MANY)
    )  # no sample: all below 0 reported as 0
    assert abs(np.corrcoef(found[:, 0], found[:, 2])[0, 1]) < 0.1


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomised_response_tells_the_truth_as_often_as_it_should(epsilon: float) -> None:
    work = Describe("histogram", 4, privacy="randomised_response", epsilon=epsilon)
    found = reported(work, crowd(), MANY, Key(1)).fields["histogram"]
    assert (found.sum(axis=1) == 1).all()
    truth = np.exp(epsilon) / (np.exp(epsilon) + 3)
    expected = np.array([truth, *[(1 - truth) / 3] * 3])
    assert (np.abs(found.mean(axis=0) - expected) < 5 * np.sqrt(expected / len(MANY))).all()


def test_a_private_statistic_goes_with_no_sample_count() -> None:
    ids = np.arange(12)
    for privacy in ("discrete_laplace", "randomised_response"):
        reply = reported(
            Describe("histogram", 4, privacy=privacy, epsilon=0.01), blobs(), ids, Key(2)
        )
        assert (reply.fields["size"] == 1).all()
    work = Describe("histogram", 4, privacy="discrete_laplace", epsilon=0.01)
    with Clients(
        SerialEngine(LocalRunner(blobs(), NET, SOLVER)), ReplyValidator(cap=1.0)
    ) as clients:
        assert len(clients.run(work, ids, flatten(NET)[None], 0 * ids, key=Key(2))) == 12


def test_noise_of_two_budgets_is_not_the_same() -> None:
    one, two = (
        reported(
            Describe("histogram", 4, privacy="discrete_laplace", epsilon=e),
            crowd(),
            MANY[:300],
            Key(1),
        )
        for e in (0.1, 0.1001)
    )
    assert (
        abs(np.corrcoef(one.fields["histogram"][:, 0], two.fields["histogram"][:, 0])[0, 1]) < 0.3
    )


def test_kept_noise_tells_the_change_of_drifting_data() -> None:
    """What the page warns of."""
    before = crowd()
    more = np.array([0, 0, 1, 2])
    after = before.with_parts((more,) * len(MANY), before.test)
    work = Describe("histogram", 4, privacy="discrete_laplace", epsilon=1.0)
    a, b = (reported(work, p, MANY, Key(1)).fields["histogram"][:, 0] for p in (before, after))
    assert (b[a > 0] - a[a > 0] == 1).all()


def test_a_changed_dominant_class_is_answered_afresh() -> None:
    before = crowd()
    after = before.with_parts((np.array([2]),) * len(MANY), before.test)
    work = Describe("histogram", 4, privacy="randomised_response", epsilon=0.1)
    a, b = (
        reported(work, p, MANY, Key(1)).fields["histogram"].argmax(axis=1) for p in (before, after)
    )
    shift = np.bincount((b - a) % 4, minlength=4) / len(MANY)
    assert shift.max() < 0.3


def test_noise_reaches_the_weights_of_rfedavg() -> None:
    states = [
        ct.run(
            ct.rfedavg(privacy=privacy, epsilon=0.05),
            data=blobs(),
            model=NET,
            local=SOLVER,
            rounds=1,
            engine="serial",
        ).state
        for privacy in ("none", "discrete_laplace")
    ]
    plain, noisy = (state.memory.get(ClusterMemory) for state in states)
    assert plain is not None
    assert noisy is not None
    assert not np.array_equal(plain.imbalance, noisy.imbalance)  # type: ignore[arg-type]
