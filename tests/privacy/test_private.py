"""Runs whose server sees noised sums: the budget, the rows, and what goes not with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
import torch

import coterie as ct
from coterie.core.availability import Availability
from coterie.errors import Code, ConfigError, PrivacyError
from coterie.experiment import check
from coterie.methods.buffered import Buffering
from coterie.methods.override import with_buffer
from coterie.privacy import accounting
from coterie.runs.compose import compose
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import Stopped, execute, make_folder, run_config
from tests.refusals import refuses

LOCAL = ct.Solver(1, 20, 0.1)
REPEATABLE: dict[str, Any] = {"randomness": "seed_not_private"}
TABLES: dict[str, Any] = {
    "data": {"source": "digits", "partition": {"kind": "iid", "clients": 12}},
    "model": {"name": "mclr"},
    "local": {"epochs": 1, "batch_size": 20},
    "train": {"rounds": 4, "clients_per_round": 6},
    "engine": {"name": "serial"},
    "algorithm": {"name": "fedavg"},
    "privacy": {"epsilon": 30.0, "accountant": "rdp"},
}


def federation() -> Any:
    return ct.load("digits", partition={"kind": "iid", "clients": 12})


def run(method: Any = None, **changed: Any) -> ct.Result:
    settings = {
        "data": federation(),
        "model": "mclr",
        "rounds": 2,
        "clients_per_round": 6,
        "engine": "serial",
        "local": LOCAL,
        **changed,
    }
    return ct.run(method or ct.fedavg(), **settings)


def test_every_row_says_what_was_spent_so_far():
    result = run(privacy=ct.Privacy(noise=2.0, clip=0.5), rounds=3)
    event = dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(2.0))
    for number, row in enumerate(result.rows, 1):
        direct = dp.pld.PLDAccountant(value_discretization_interval=accounting.INTERVAL)
        direct.compose(dp.SelfComposedDpEvent(event, number))
        assert row["privacy"]["epsilon"] == direct.get_epsilon(1e-5)
        assert row["privacy"]["clip"] == 0.5
        assert row["privacy"]["noise"] == 2.0


@pytest.mark.parametrize("method", [ct.fedavg(), ct.fedadam(), ct.ifca(groups=2)])
def test_the_noise_follows_from_the_budget(method):
    result = run(method, privacy=ct.Privacy(epsilon=20.0, accountant="rdp"))
    spent = [row["privacy"]["epsilon"] for row in result.rows]
    assert spent[0] < spent[1] <= 20.0
    assert spent[1] > 19.8
    assert torch.isfinite(result.state.models).all()


def test_a_run_that_would_spend_too_much_does_not_begin():
    too_little = ct.Privacy(epsilon=1.0, noise=0.5, accountant="rdp")
    with refuses(PrivacyError, "over-budget", "privacy.epsilon"):
        run(privacy=too_little)
    with refuses(ConfigError, "missing", "privacy.epsilon"):
        ct.Privacy(clip=1.0)


def test_scaffold_is_refused_with_its_own_reason() -> None:
    """Its server moves a second vector by single updates, and groups nobody."""
    with refuses(ConfigError, "does-not-fit", "privacy") as refused:
        run(ct.scaffold(), privacy=ct.Privacy(noise=2.0))
    assert "groups clients" not in str(refused.value)


def test_cohorts_without_replacement_are_counted_with_half_the_noise():
    privacy = ct.Privacy(noise=8.0, accountant="rdp")
    row = run(privacy=privacy, rounds=1, train={"sampler": "uniform"}).rows[0]["privacy"]
    # One client in the place of another moves a sum by two clips.
    direct = dp.rdp.RdpAccountant(accounting.ORDERS, dp.NeighboringRelation.REPLACE_ONE)
    direct.compose(dp.SampledWithoutReplacementDpEvent(12, 6, dp.GaussianDpEvent(4.0)))
    assert row["epsilon"] == direct.get_epsilon(1e-5)
    assert row["noise"] == 8.0


def test_a_round_without_clients_has_noise_and_is_spent():
    # From the seed: with other cohorts no round may be empty.
    privacy = ct.Privacy(noise=5.0, **REPEATABLE)
    result = run(privacy=privacy, clients_per_round=1, rounds=5, seed=3)
    empty = [row for row in result.rows if row["loss"] is None]
    assert empty
    assert not any(row["skipped"] for row in result.rows)
    spent = [row["privacy"]["epsilon"] for row in result.rows]
    assert spent == sorted(set(spent))


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"bounds": {"enabled": True}}, ("in-conflict", "bounds.enabled")),
        ({"weigh": "trimmed_mean"}, ("in-conflict", "weigh.name")),
        ({"attack": "sign_flip"}, ("in-conflict", "attack")),
        ({"train": {"sampler": "cover_then_uniform"}}, ("in-conflict", "train.sampler")),
        (
            {"train": {"sampler": lambda number: np.arange(6)}},
            ("in-conflict", "train.sampler"),
        ),
        (
            {"train": {"sampler": "uniform"}, "privacy": ct.Privacy(noise=1.0)},
            ("in-conflict", "privacy.accountant"),
        ),
        (
            {"train": {"sampler": "uniform"}, "availability": Availability("random", share=0.3)},
            ("in-conflict", "availability"),
        ),
        (
            {"method": with_buffer(ct.fedavg(), Buffering(buffer=3))},
            ("in-conflict", "asynchronous"),
        ),
        ({"method": ct.fedgsp()}, ("does-not-fit", "algorithm.name")),
        ({"method": ct.fedclust()}, ("does-not-fit", "algorithm.name")),
        ({"method": ct.ifca(groups=2, restarts=2)}, ("does-not-fit", "algorithm.name")),
        ({"method": ct.pooled()}, ("does-not-fit", "algorithm.name")),
    ],
)
def test_what_compares_clients_is_refused_in_one_line(changed, refusal: tuple[Code, str]):
    settings = {"privacy": ct.Privacy(noise=1.0, accountant="rdp"), **changed}
    with refuses(ConfigError, *refusal) as error:
        run(**settings)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"bounds": {"enabled": True}}, ("in-conflict", "bounds.enabled")),
        ({"weigh": {"name": "krum"}}, ("in-conflict", "weigh.name")),
        ({"attack": {"kind": "alie"}}, ("in-conflict", "attack")),
        ({"shift": {"kind": "swap_all"}}, ("in-conflict", "shift")),
        ({"asynchronous": {"buffer": 3}}, ("in-conflict", "asynchronous")),
        ({"quorum": {"min_replies": 3}}, ("in-conflict", "quorum.min_replies")),
        ({"privacy": {"delta": 1e-6}}, ("missing", "privacy.epsilon")),
        ({"privacy": {"epsilon": -1.0}}, ("out-of-range", "privacy.epsilon")),
    ],
)
def test_what_goes_not_with_it_is_refused_in_the_configuration(changed, refusal: tuple[Code, str]):
    with refuses(ConfigError, *refusal):
        check({**TABLES, **changed})


def test_clients_that_are_away_spend_no_more_where_each_is_drawn_by_itself():
    everybody = run(privacy=ct.Privacy(noise=2.0, accountant="rdp"))
    some = run(
        privacy=ct.Privacy(noise=2.0, accountant="rdp"),
        availability=Availability("random", share=0.3),
    )
    assert some.rows[-1]["privacy"]["epsilon"] == everybody.rows[-1]["privacy"]["epsilon"]


def test_a_resumed_run_has_the_same_bits(tmp_path: Path):
    tables = {**TABLES, "privacy": {"noise": 2.0, "quantile": 0.5, "accountant": "rdp"}}
    tables["checkpoint"] = {"seconds": 0.0}
    composed = compose(check(tables))
    # Of one secret, which another run would not have.
    straight = execute(composed, make_folder(composed, tmp_path / "straight"))
    folder = make_folder(composed, tmp_path / "stopped")
    rounds = []

    def stop() -> int:
        rounds.append(1)
        return 15 if len(rounds) == 2 else 0

    with pytest.raises(Stopped) as caught:
        execute(composed, folder, stop=stop)
    assert caught.value.code == 143
    again = RunFolder.open(tmp_path / "stopped")
    config = again.config({})
    checkpoint = again.checkpoints.latest(config.resolved())
    execute(compose(config, again.partition), again, checkpoint=checkpoint, resume=True)
    name = "models/group-0.safetensors"
    assert (tmp_path / "straight" / name).read_bytes() == (again.path / name).read_bytes()
    kept = [row["privacy"] for row in RunFolder.open(tmp_path / "straight").rows()]
    assert kept == [row["privacy"] for row in again.rows()]
    assert straight["privacy"]["epsilon"] == kept[-1]["epsilon"]


def test_noise_follows_from_the_seed_only_where_that_is_asked_for():
    models = [
        run(privacy=ct.Privacy(noise=1.0, accountant="rdp", **kind)).state.models
        for kind in (REPEATABLE, REPEATABLE, {}, {})
    ]
    assert torch.equal(models[0], models[1])
    # With every client in every cohort the noise alone differs.
    everyone = {"clients_per_round": 12, "rounds": 1}
    drawn = ct.Privacy(noise=1.0, accountant="rdp")
    one, other = (run(privacy=drawn, **everyone).state.models for _ in range(2))
    assert not torch.equal(one, other)
    assert not torch.equal(models[2], models[3])


# --- noised descriptions of columns ---------------------------------------------------------------


def table_config(tmp_path: Path, column_noise: float | None, **privacy: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    lines = ["age,ward,y,client"]
    for row in range(240):
        ward = "ab"[row % 2]
        lines.append(f"{rng.normal(60, 10):.0f},{ward},{int(rng.random() < 0.5)},{row % 60}")
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    encode: dict[str, Any] = {}
    if column_noise is not None:
        encode = {
            "noise": column_noise,
            "ranges": {"age": [0, 120]},
            "values": {"ward": ["a", "b"]},
        }
    source = {"source": "file", "path": str(path), "features": "*", "label": "y"}
    return {
        **TABLES,
        "data": {**source, "encode": encode, "partition": {"kind": "natural"}},
        "train": {"rounds": 2, "clients_per_round": 20},
        "privacy": {"epsilon": 10.0, "accountant": "rdp", **privacy},
    }


def test_the_description_of_columns_is_a_part_of_the_budget(tmp_path, capsys):
    plain = compose(check(table_config(tmp_path, None))).spec.schedule
    assert "protects updates, but not the clients' reports" in capsys.readouterr().err
    spec = compose(check(table_config(tmp_path, 2.0))).spec.schedule
    assert "protects updates" not in capsys.readouterr().err
    assert plain.budget is not None
    assert spec.budget is not None
    # What the columns cost is spent before the first round, and the rounds get the rest.
    alone = accounting.epsilon_of((accounting.Release(2.0),), 1e-5, "rdp")
    assert spec.budget.epsilon(0) == alone
    assert plain.budget.epsilon(0) == 0
    assert spec.budget.each.noise > plain.budget.each.noise
    assert 9.9 < spec.budget.epsilon(2) <= 10.0
    summary = run_config(check(table_config(tmp_path, 2.0)), tmp_path / "run")
    rows = RunFolder(tmp_path / "run").rows()
    assert summary["rounds"] == 2
    assert alone < rows[0]["privacy"]["epsilon"] < rows[1]["privacy"]["epsilon"] <= 10.0


def test_descriptions_that_cannot_be_paid_or_counted_are_refused(tmp_path):
    with refuses(PrivacyError, "over-budget", "privacy.epsilon"):
        compose(check(table_config(tmp_path, 0.2)))
    with refuses(PrivacyError, "over-budget", "privacy.epsilon"):
        compose(check(table_config(tmp_path, 1.0, noise=0.5)))
    uniform = table_config(tmp_path, 2.0)
    uniform["train"]["sampler"] = "uniform"
    with refuses(ConfigError, "in-conflict", "data.encode.noise"):
        compose(check(uniform))
    unpaid = table_config(tmp_path, 2.0)
    del unpaid["privacy"]
    with refuses(ConfigError, "in-conflict", "data.encode.noise"):
        compose(check(unpaid))
