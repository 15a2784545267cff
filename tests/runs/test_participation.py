"""Clients that cannot be reached, and clients that answer too late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.clients.cohort import Sampler
from coterie.config.identity import config_hash
from coterie.core.availability import Availability, read_spans
from coterie.core.keys import Key
from coterie.core.reply_times import ReplyTimes
from coterie.errors import Code, ConfigError, DataError
from coterie.experiment import check
from coterie.runs.compose import compose
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config
from coterie.runs.schedule import Participation, asked_clients
from coterie.sweep.data_hash import availability_digest
from tests.refusals import refuses

CLIENTS = 10


def tables(name: str = "fedavg", rounds: int = 4, **changes: Any) -> dict[str, Any]:
    partition = {"kind": "planted", "clients": CLIENTS, "groups": 2}
    train = {"rounds": rounds, "clients_per_round": 4, "sampler": "uniform"}
    return {
        "seed": 5,
        "data": {"source": "digits", "partition": partition},
        "model": {"name": "mclr"},
        "local": {"epochs": 1, "lr": 0.1},
        "engine": {"name": "serial"},
        "algorithm": {"name": name},
        **changes,
        "train": {**train, **changes.get("train", {})},
    }


def left(config: dict[str, Any], run: Path) -> tuple[torch.Tensor, list[dict[str, Any]]]:
    run_config(check(config), run)
    return left_in(run)


def left_in(run: Path) -> tuple[torch.Tensor, list[dict[str, Any]]]:
    folder = RunFolder(run)
    checkpoint = folder.checkpoints.latest()
    assert checkpoint is not None
    rows = [
        {name: value for name, value in row.items() if name not in ("seconds", "chain")}
        for row in folder.rows()
    ]
    return checkpoint.groups.models, rows


# --- late replies ---------------------------------------------------------------------------------


def test_the_first_replies_count_and_the_others_are_late(tmp_path: Path) -> None:
    models, rows = left(tables(train={"over_selection": 1.5}), tmp_path / "run")
    assert [row["refused"] for row in rows] == [{"late": 2}] * 4
    assert [row["notes"]["replies"] for row in rows] == [4] * 4
    # The same rounds without the slow clients, by a sampler that leaves them out.
    data = ct.load("digits", partition=tables()["data"]["partition"], seed=5)

    def fast(round: int) -> np.ndarray:
        cohort = Sampler("uniform", np.arange(CLIENTS), 6, Key(5))(round)
        times = ReplyTimes().draw(CLIENTS, Key(5).at(round))
        return np.sort(cohort[np.argsort(times[cohort])][:4])

    result = ct.run(
        ct.fedavg(),
        data=data,
        model="mclr",
        local=ct.Solver(epochs=1, lr=0.1),
        rounds=4,
        clients_per_round=4,
        seed=5,
        engine="serial",
        train={"sampler": fast},
    )
    assert torch.equal(result.state.models, models)


def test_who_misses_the_deadline_is_late_in_every_training() -> None:
    times = ReplyTimes(spread=1.0, deadline=1.0)
    late = Participation(reply_times=times, wanted=2).late(np.arange(6), 6, Key(1).at(0))
    assert late is not None
    drawn = times.draw(6, Key(1).at(0))
    assert late.missed.tolist() == (drawn > 1.0).tolist()
    assert (~late.beyond).sum() == min(2, (drawn <= 1.0).sum())
    assert (late.beyond >= late.missed).all()


def test_slow_clients_stay_slow_and_times_follow_from_the_seed() -> None:
    times = ReplyTimes(noise=0.0)
    one = times.draw(100, Key(3).at(0))
    assert np.array_equal(one, times.draw(100, Key(3).of("other").at(7)))
    assert not np.array_equal(one, times.draw(100, Key(4).at(0)))
    # A client that joins changes nobody's time.
    assert np.array_equal(one, times.draw(101, Key(3).at(0))[:100])


def test_a_round_in_which_all_are_late_is_skipped(tmp_path: Path) -> None:
    config = tables(reply_times={"deadline": 1e-6}, quorum={"max_skipped_rounds": 9})
    _, rows = left(config, tmp_path / "run")
    assert [row["refused"] for row in rows] == [{"late": 4}] * 4
    assert all(row["skipped"] for row in rows)


@pytest.mark.parametrize("name", ["fedgroup", "ifca", "fedper"])
def test_engines_agree_on_who_is_late_and_a_resumed_run_does_too(name: str, tmp_path: Path) -> None:
    options = {"fedgroup": {"groups": 2, "alpha": 2}, "ifca": {"groups": 2}}
    config = tables(
        algorithm={"name": name, **options.get(name, {})},
        model={"name": "mlp"},
        train={"over_selection": 1.5},
        reply_times={"deadline": 2.0},
        availability={"kind": "random", "share": 0.8},
    )
    models, rows = left(config, tmp_path / "serial")
    assert any(row["refused"] for row in rows)
    pool = {**config, "engine": {"name": "pool", "workers": 2}}
    assert torch.equal(left(pool, tmp_path / "pool")[0], models)
    run_config(check({**config, "train": {**config["train"], "rounds": 2}}), tmp_path / "resumed")
    ct.resume(tmp_path / "resumed", rounds=4)
    resumed, resumed_rows = left_in(tmp_path / "resumed")
    assert torch.equal(resumed, models)
    assert resumed_rows == rows


def test_a_cohort_is_larger_by_what_is_asked_for() -> None:
    assert asked_clients(10, 1.1, 100) == 11
    assert asked_clients(3, 1.3, 3) == 3
    # Without the option a run is the run that it was.
    assert config_hash(check(tables()).resolved()) == config_hash(
        check(tables(train={"over_selection": 1.0})).resolved()
    )


# --- who can be reached ---------------------------------------------------------------------------


def test_day_and_night_come_to_everybody() -> None:
    pattern = Availability("day_night", period=6, share=0.5)
    there = np.array([pattern.reachable(t, 50, Key(0)) for t in range(12)])
    assert (there[:6].sum(axis=0) == 3).all()
    assert np.array_equal(there[:6], there[6:])
    zones = Availability("day_night", period=6, share=0.5, zones=2)
    assert len({tuple(zones.reachable(t, 50, Key(0))) for t in range(6)}) == 2


@pytest.mark.parametrize(
    ("names", "named", "absent"),
    [
        # The number of a client is the name of another, which alone is meant.
        (("3", "x", "y", "z"), "3", 0),
        (("1", "0", "y", "z"), "0", 1),
        (("10", "11", "12", "1"), "1", 3),
        # Nobody has this name: the number of a client.
        (("x", "y", "z", "w"), "3", 3),
        (("x", "y", "z", "w"), "z", 2),
        ((), "2", 2),
        # Where names are numbers, another number is a mistake, and nobody is meant.
        (("01", "02", "03", "04"), "1", None),
    ],
)
def test_a_number_that_is_a_name_is_the_name(
    names: tuple[str, ...], named: str, absent: int | None
) -> None:
    spans = {named: ((5, 6),)}
    availability = Availability("file", file="a.csv", period=0, spans=spans, names=names)
    there = availability.reachable(0, 4, Key(0))
    assert np.flatnonzero(~there).tolist() == ([] if absent is None else [absent])
    assert availability.unknown_clients(4) == ([named] if absent is None else [])


@pytest.mark.parametrize("name", ["1.0", "07", "nobody", "1"])
def test_spans_of_nobody_are_said(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{site},{at},{at % 2}\n" for at in range(10) for site in ("007", "7", "0"))
    (tmp_path / "t.csv").write_text(f"site,v,y\n{rows}")
    (tmp_path / "spans.csv").write_text(f"client,from,until\n7,0,1\n{name},0,1\n")
    source = {"source": "file", "path": str(tmp_path / "t.csv"), "client": "site", "features": "*"}
    tables = {
        "data": {**source, "partition": {"kind": "natural"}},
        "algorithm": {"name": "fedavg"},
        "model": {"name": "mclr"},
        "train": {"rounds": 1},
        "availability": {"kind": "file", "period": 0, "file": str(tmp_path / "spans.csv")},
    }
    compose(check(tables))
    lines = [line for line in capsys.readouterr().err.splitlines() if "availability" in line]
    assert len(lines) == 1
    assert all(repr(name) in line for line in lines)


def test_only_clients_that_can_be_reached_train(tmp_path: Path) -> None:
    spans = tmp_path / "spans.csv"
    spans.write_text("client,from,until\n0,0,2\n1,0,2\n2,2,4\n3,9,10\n")
    config = tables(
        algorithm={"name": "ifca", "groups": 2},
        availability={"kind": "file", "file": str(spans), "period": 0},
        train={"clients_per_round": 10},
    )
    _, rows = left(config, tmp_path / "run")
    # Clients 4 to 9 are not in the file.
    assert [row["notes"]["replies"] for row in rows] == [8, 8, 7, 7]
    met = {client for row in rows for client, _ in row["moves"]}
    assert met == {0, 1, 2, 4, 5, 6, 7, 8, 9}


def test_a_run_goes_on_with_the_file_that_it_began_with(tmp_path: Path) -> None:
    spans = tmp_path / "spans.csv"
    spans.write_text("client,from,until\n0,0,1\n1,0,1\n2,1,4\n")
    config = tables(availability={"kind": "file", "file": str(spans), "period": 0})
    models, rows = left(config, tmp_path / "straight")
    assert (tmp_path / "straight" / "availability.csv").read_text() == spans.read_text()
    run_config(check({**config, "train": {**config["train"], "rounds": 2}}), tmp_path / "resumed")
    spans.write_text("client,from,until\n0,0,4\n")
    ct.resume(tmp_path / "resumed", rounds=4)
    resumed, resumed_rows = left_in(tmp_path / "resumed")
    assert torch.equal(resumed, models)
    assert resumed_rows == rows
    # Without the user's own file, too.
    spans.unlink()
    assert len(ct.Result.open(tmp_path / "resumed").rows) == 4


def test_a_changed_copy_of_the_file_is_refused(tmp_path: Path) -> None:
    spans = tmp_path / "spans.csv"
    spans.write_text("client,from,until\n0,0,1\n")
    left(tables(rounds=1, availability={"kind": "file", "file": str(spans)}), tmp_path / "run")
    (tmp_path / "run" / "availability.csv").write_text("client,from,until\n0,0,9\n")
    with refuses(ct.CheckpointError, "damaged", "availability.csv"):
        ct.resume(tmp_path / "run", rounds=2)


def test_another_content_of_the_file_is_another_run_of_a_sweep(tmp_path: Path) -> None:
    spans = tmp_path / "spans.csv"
    spans.write_text("client,from,until\n0,0,1\n")
    with_file = check(tables(availability={"kind": "file", "file": str(spans)}))
    before = availability_digest(with_file)
    spans.write_text("client,from,until\n0,0,2\n")
    assert availability_digest(with_file) != before
    # Runs without a file keep the names that they have.
    assert availability_digest(check(tables())) == ""


def test_a_method_that_asks_everybody_asks_who_can_be_reached(tmp_path: Path) -> None:
    config = tables(
        "pacfl", rounds=1, model={"name": "mclr"}, availability={"kind": "random", "share": 0.6}
    )
    _, rows = left(config, tmp_path / "run")
    reachable = Availability("random", share=0.6).reachable(0, CLIENTS, Key(5))
    assert rows[0]["clients_assigned"] == reachable.sum() < CLIENTS


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("client,from\n0,1\n", ("differs", "spans.csv")),
        ("client,from,until\n0,1,x\n", ("wrong-type", "spans.csv")),
        ("client,from,until\n0,1,2\n0,3,3\n", ("wrong-type", "spans.csv")),
    ],
)
def test_a_file_that_says_no_rounds_is_refused(
    text: str, refusal: tuple[Code, str], tmp_path: Path
) -> None:
    (tmp_path / "spans.csv").write_text(text)
    with refuses(DataError, *refusal):
        read_spans(tmp_path / "spans.csv")


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"reply_times": {}}, ("in-conflict", "reply_times")),
        ({"train": {"over_selection": 0.5}}, ("out-of-range", "train.over_selection")),
        (
            {"train": {"over_selection": 2.0, "sampler": "poisson"}},
            ("in-conflict", "train.over_selection"),
        ),
        (
            {"train": {"over_selection": 2.0}, "privacy": {"epsilon": 8.0}},
            ("in-conflict", "train.over_selection"),
        ),
        ({"availability": {"kind": "file"}}, ("missing", "availability.file")),
        ({"availability": {"file": "a.csv"}}, ("in-conflict", "availability.file")),
        ({"availability": {"period": 0}}, ("out-of-range", "availability.period")),
        ({"availability": {"kind": "random", "zones": 2}}, ("in-conflict", "availability.zones")),
    ],
)
def test_what_does_not_go_together_is_refused(
    changes: dict[str, Any], refusal: tuple[Code, str]
) -> None:
    with refuses(ConfigError, *refusal):
        check(tables(**changes))


def test_a_method_that_draws_its_clients_takes_no_more_than_it_draws(tmp_path: Path) -> None:
    config = tables("fedgsp", train={"over_selection": 1.5})
    with refuses(ConfigError, "in-conflict", "train.over_selection"):
        run_config(check(config), tmp_path / "run")
