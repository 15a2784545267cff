"""No client is far from the others: what is clipped, what is refused, and what is left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import coterie as ct
from coterie.clients.bounds import Bounds, norms
from coterie.clients.robust_scale import Scale
from coterie.clients.validation import Expected, ReplyValidator
from coterie.core.describe import Describe
from coterie.core.engine import Reply
from coterie.core.work import Score, Train
from coterie.engines.attacks import scaling
from coterie.errors import ConfigError
from tests.refusals import refuses

TRAIN = Train()


def block(lengths: Any, sizes: Any = None, **fields: Any) -> Reply:
    """Updates of these lengths, half of each in its first two coordinates."""
    lengths = np.asarray(lengths, np.float64)
    delta = (lengths[:, None] * np.array([0.6, 0.8, 0.0])).astype(np.float32)
    sizes = np.ones(len(lengths)) if sizes is None else np.asarray(sizes, np.float64)
    return Reply(0, np.arange(len(lengths)), {"delta": delta, "size": sizes, **fields})


def bounded(reply: Reply, group: Any = None, work: Any = TRAIN) -> Any:
    which = np.zeros(len(reply), np.int64) if group is None else np.asarray(group)
    return Bounds().apply(work, reply, which)


def test_what_is_within_its_bounds_is_the_same_array() -> None:
    rng = np.random.default_rng(0)
    reply = block(rng.lognormal(0, 0.5, 40), rng.lognormal(3, 1, 40).round() + 1)
    after, clipped, refused = bounded(reply)
    assert after.fields["delta"] is reply.fields["delta"]
    assert (after.fields["size"] == reply.fields["size"]).all()
    assert not clipped
    assert not refused


def test_a_long_update_keeps_its_direction() -> None:
    reply = block([1.0] * 12 + [50.0])
    before = reply.fields["delta"].copy()
    after, clipped, refused = bounded(reply)
    assert (dict(clipped), dict(refused)) == ({"norm": 1}, {})
    np.testing.assert_allclose(after.fields["delta"][12], [0.6, 0.8, 0.0], rtol=1e-6)
    assert (after.fields["delta"][:12] == before[:12]).all()
    # The engine's memory is not written to.
    assert (reply.fields["delta"] == before).all()


def test_an_endless_update_is_refused_with_all_of_its_reply() -> None:
    reply = block([1.0] * 12 + [1e14], loss=np.arange(13.0))
    after, clipped, refused = bounded(reply)
    assert (dict(clipped), dict(refused)) == ({}, {"norm": 1})
    assert after.ids.tolist() == list(range(12))
    assert after.fields["loss"].tolist() == list(range(12))


def test_clients_are_compared_with_those_of_their_model() -> None:
    # Model 0 has moved for long and its clients agree; model 1 has just begun.
    lengths = [0.1] * 6 + [5.0] * 6
    group = [0] * 6 + [1] * 6
    assert not bounded(block(lengths), group)[1]
    _, clipped, _ = bounded(block([*lengths, 5.0]), [*group, 0])
    assert clipped == {"norm": 1}
    # A model with few clients is compared with all: alone, an attacker would be its own measure.
    _, clipped, _ = bounded(block([1.0] * 12 + [90.0]), [0] * 12 + [1])
    assert clipped == {"norm": 1}


def test_a_clipped_update_counts_as_one_of_the_others_in_a_small_group() -> None:
    """At its limit, three times the median, one attacker would cancel three honest clients."""
    delta = np.array([[1.0]] * 12 + [[1.0], [1.0], [1.0], [-10.0]], np.float32)
    reply = Reply(0, np.arange(16), {"delta": delta, "size": np.ones(16)})
    after, clipped, _ = bounded(reply, [0] * 12 + [1] * 4)
    assert clipped == {"norm": 1}
    assert after.fields["delta"][12:].mean() == 0.5


@pytest.mark.parametrize("factor", [1e14, 1e6])
def test_endless_updates_are_refused_where_most_of_a_group_send_them(factor: float) -> None:
    # Four of five clients of model 1, of all clients a fifth.
    lengths = [1.0] * 15 + [1.0] + [factor] * 4
    after, _, refused = bounded(block(lengths), [0] * 15 + [1] * 5)
    assert refused == {"norm": 4}
    assert after.ids.tolist() == list(range(16))


def test_most_of_a_group_cannot_set_its_scale_beyond_that_of_the_request() -> None:
    # Four of five clients of model 1 send 100 times their update.
    after, clipped, _ = bounded(block([1.0] * 16 + [100.0] * 4), [0] * 15 + [1] * 5)
    assert clipped == {"norm": 4}
    assert norms(after.fields["delta"]).max() == pytest.approx(20.0)


def test_the_bound_follows_how_much_honest_clients_differ() -> None:
    alike = block([1.0, 1.1, 0.9] * 5 + [8.0])
    assert bounded(alike)[1] == {"norm": 1}
    rng = np.random.default_rng(1)
    unlike = block([*rng.lognormal(0, 1, 15), 8.0])
    assert not bounded(unlike)[1]
    # But never beyond twenty times the median, however much they differ.
    assert Bounds().norm.limits(rng.lognormal(0, 9, 99), np.zeros(99)).max() <= 20.0 * 9


def test_of_three_replies_nobody_can_say_which_is_wrong() -> None:
    assert not bounded(block([1.0, 1.0, 1e9]))[1]
    _, clipped, refused = bounded(block([1.0, 1.0, 1.0, 1e9]))
    assert (dict(clipped), dict(refused)) == ({}, {"norm": 1})


@given(st.integers(4, 40), st.integers(0, 2**31))
def test_fewer_than_half_of_the_clients_cannot_move_the_median_beyond_the_honest(
    n: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    hostile = (n - 1) // 2
    honest = rng.uniform(1.0, 2.0, n - hostile)
    lengths = np.concatenate([honest, 10.0 ** rng.uniform(-12, 14, hostile)])
    after, _, _ = bounded(block(lengths))
    assert norms(after.fields["delta"]).max() <= 20 * 2.0 * (1 + 1e-5)
    # Nothing honest is refused, and nothing of a length between the honest ones is touched.
    assert np.isin(np.arange(len(honest)), after.ids).all()


def test_zero_updates_are_no_measure() -> None:
    after, clipped, refused = bounded(block([0.0] * 9 + [1.0] * 4))
    assert len(after) == 13
    assert not clipped
    assert not refused


def test_claims_of_samples_are_lowered() -> None:
    after, clipped, _ = bounded(block([1.0] * 12, [20.0] * 11 + [1e6]))
    assert clipped == {"size": 1}
    np.testing.assert_allclose(after.fields["size"], [20.0] * 11 + [60.0])
    # Where honest clients hold 10 to 10,000 samples, 30,000 are no lie.
    heavy = 10 ** np.linspace(1, 4, 12)
    assert not bounded(block([1.0] * 12, [*heavy[:11], 3e4]))[1]


def test_statistics_are_bounded_as_what_they_stand_for() -> None:
    histogram = np.ones((12, 3))
    histogram[11] = 1e9
    reply = Reply(0, np.arange(12), {"histogram": histogram, "size": histogram.sum(axis=1)})
    work = Describe("histogram", classes=3)
    none = np.zeros((12, 0), np.int64)
    after, clipped, _ = bounded(reply, none, work)
    assert clipped == {"size": 1}
    np.testing.assert_allclose(after.fields["histogram"][11], [3.0, 3.0, 3.0])
    subspace = np.ones((12, 4, 2), np.float32)
    subspace[11] *= 50
    reply = Reply(0, np.arange(12), {"subspace": subspace, "size": np.ones(12)})
    after, clipped, _ = bounded(reply, none, Describe("subspace", 2, 4, 1))
    assert clipped == {"norm": 1}
    np.testing.assert_allclose(after.fields["subspace"][11], 1.0, rtol=1e-6)
    latent = np.ones((12, 8, 3), np.float32)
    latent[11] *= 1e15
    reply = Reply(0, np.arange(12), {"latent": latent, "size": np.ones(12)})
    after, _, refused = bounded(reply, work=Describe("latent", 3, vectors=3))
    assert refused == {"norm": 1}
    assert after.ids.tolist() == list(range(11))


def test_sums_over_claimed_samples_are_lowered_with_them() -> None:
    """FedRC's server adds up how many samples of each class each model explains."""
    size = np.array([20.0] * 11 + [1e6])
    label_sums = np.full((12, 2, 2), 0.25) * size[:, None, None]
    after, clipped, _ = bounded(block([1.0] * 12, size, label_sums=label_sums))
    assert clipped == {"size": 1}
    np.testing.assert_allclose(after.fields["label_sums"].sum(axis=(1, 2)), after.fields["size"])


def test_bounds_can_be_other_ones_or_off() -> None:
    reply = block([1.0] * 12 + [50.0])
    off = Bounds(enabled=False).apply(TRAIN, reply, np.zeros(13, np.int64))
    assert off[0] is reply
    strict = Bounds(True, 2.0, 2.0).apply(TRAIN, reply, np.zeros(13, np.int64))[0]
    np.testing.assert_allclose(norms(strict.fields["delta"])[12], 1.0, rtol=1e-6)
    twice = block([1.0] * 12 + [2.5])
    assert not bounded(twice)[1]
    assert Bounds(True, 2.0, 2.0).apply(TRAIN, twice, np.zeros(13, np.int64))[1] == {"norm": 1}
    assert Scale(6.0).limits(np.ones(3), np.zeros(3)).tolist() == [np.inf] * 3


def settings(**more: Any) -> dict[str, Any]:
    partition = {"kind": "planted", "clients": 20, "groups": 2, "how": "swap"}
    data = ct.load("digits", partition=partition)
    local = ct.Solver(epochs=2, lr=0.1)
    common = {"data": data, "model": "mclr", "rounds": 4, "clients_per_round": 20}
    return {**common, "local": local, "engine": "serial", **more}


@pytest.mark.parametrize("method", [ct.fedavg, ct.ifca, ct.fedgroup, ct.fedclust])
def test_no_honest_client_is_touched(method: Any) -> None:
    on, off = (
        ct.run(method(), **settings(bounds={"enabled": enabled})) for enabled in (True, False)
    )
    assert torch.equal(on.state.models, off.state.models)
    assert not any("clipped" in row for row in on.rows)
    assert not any(row["refused"] for row in on.rows)


def test_one_attacker_ruins_the_model_only_without_bounds() -> None:
    honest = ct.run(ct.fedavg(), **settings())
    for factor, reason in ((100.0, "clipped"), (1e12, "refused")):
        attack = scaling(clients=(7,), factor=factor)
        off = ct.run(ct.fedavg(), attack=attack, **settings(bounds={"enabled": False}))
        on = ct.run(ct.fedavg(), attack=attack, **settings())
        assert on.accuracy[-1] > honest.accuracy[-1] - 0.03
        assert off.accuracy[-1] < honest.accuracy[-1] - 0.1
        assert [row[reason] for row in on.rows] == [{"norm": 1}] * 4
        assert not any(row["refused"] for row in off.rows)


def test_engines_clip_to_the_same_bits() -> None:
    attack = scaling(share=0.2, factor=30.0)
    runs = [
        ct.run(
            ct.fedgroup(groups=2, alpha=5),
            attack=attack,
            **settings(engine={"name": engine, "workers": 2}),
        )
        for engine in ("serial", "pool")
    ]
    assert torch.equal(runs[0].state.models, runs[1].state.models)
    assert any("clipped" in row for row in runs[0].rows)


def test_more_correct_predictions_than_samples_are_refused() -> None:
    expected = Expected(Score(loss=False), np.arange(3), round=0)
    correct = np.array([[1.0], [3.0], [-1.0]])
    reply = Reply(0, np.arange(3), {"correct": correct, "size": np.full(3, 2.0)})
    kept, refused = ReplyValidator().validate(expected, [reply])
    assert kept.ids.tolist() == [0]
    assert dict(refused) == {"correct": 2}


def test_the_table_of_a_configuration() -> None:
    from coterie.config.identity import config_hash
    from coterie.experiment import check

    tables: dict[str, Any] = {
        "data": {"source": "digits", "partition": {"kind": "iid", "clients": 4}},
        "model": {"name": "mclr"},
        "train": {"rounds": 2},
        "algorithm": {"name": "fedavg"},
    }
    assert check(tables).bounds == Bounds()
    off = check(tables | {"bounds": {"enabled": False}})
    assert not off.bounds.enabled
    # Bounds that are off are left out of the hash.
    said = off.resolved()
    unsaid = {key: value for key, value in said.items() if key != "bounds"}
    assert config_hash(said) == config_hash(unsaid)
    assert config_hash(said) != config_hash(check(tables).resolved())
    with refuses(ConfigError, "out-of-range", "bounds.ceiling"):
        check(tables | {"bounds": {"ceiling": 2.0}})


def scored(sizes: Any, share: float) -> tuple[Reply, dict[str, int]]:
    """The bounded results of real clients, of whose samples this share is right."""
    size = np.asarray(sizes, np.float64)
    histogram = size[:, None, None] * np.array([0.25, 0.75])
    fields = {"size": size, "correct": share * size[:, None], "scores": histogram}
    reply, clipped = Bounds(scores=True).scored(Reply(0, np.arange(len(size)), fields))
    return reply, dict(clipped)


@given(
    st.lists(st.integers(10, 29), min_size=10, max_size=40),
    st.floats(1e4, 1e9),
    st.floats(0, 1),
)
def test_a_claim_of_test_samples_has_little_weight_and_its_own_rates(
    honest: list[int], claim: float, share: float
) -> None:
    reply, clipped = scored([*honest, claim], share)
    size = reply.fields["size"]
    assert clipped == {"size": 1}
    assert size[:-1].tolist() == honest
    # The same whatever was claimed, and in whole samples.
    assert size[-1] == scored([*honest, 1e9], share)[0].fields["size"][-1] == np.floor(size[-1])
    assert reply.fields["correct"][-1, 0] <= size[-1]
    np.testing.assert_allclose(reply.fields["correct"][-1, 0] / size[-1], share, rtol=1e-12)
    np.testing.assert_allclose(reply.fields["scores"][-1].sum(), size[-1], rtol=1e-12)


def test_results_of_a_simulation_are_the_same_arrays() -> None:
    fields = {"size": np.array([4.0] * 12 + [1e9]), "correct": np.ones((13, 1))}
    reply = Reply(0, np.arange(13), fields)
    after, clipped, refused = Bounds().apply(Score(), reply, np.zeros(13, np.int64))
    assert after is reply
    assert not clipped
    assert not refused


@pytest.mark.parametrize("width", [3, 2**15 - 1, 2**15, 100_003])
def test_a_length_is_the_same_to_the_bit_alone_and_beside_others(width: int) -> None:
    rows = np.random.default_rng(0).standard_normal((5, width)).astype(np.float32)
    together = norms(rows)
    np.testing.assert_array_equal(together, [norms(row[None])[0] for row in rows])
    np.testing.assert_allclose(together, np.linalg.norm(rows.astype(np.float64), axis=1))
