"""Private runs of real clients, without Flower's processes: equal to the simulation, and no noise is
used twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from tests.refusals import refuses

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
pytest.importorskip("dp_accounting", reason="the extra 'privacy' is not installed")

from flwr.app import Array, Message

from coterie.errors import ConfigError, PrivacyError
from coterie.experiment import check
from coterie.flower.server.serve import serve
from coterie.runs.run import run_config
from tests.conftest import assert_near
from tests.engines.fake_grid import parts_of
from tests.engines.test_flower import SETTINGS, Reported, deploy, models, nodes, tables

Change = Callable[[dict[str, np.ndarray]], None]


def private(
    name: str = "fedavg", rounds: int = 3, privacy: dict[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    found = tables(name, rounds, **options)
    found["train"] |= {"clients_per_round": 3}
    # Compared with simulations, and with other processes, whose noise has to be the same.
    repeatable = {"accountant": "rdp", "randomness": "seed_not_private"}
    found["privacy"] = {"noise": 0.5, "clip": 0.2, **repeatable, **(privacy or {})}
    return found


def changing(change: Change) -> Callable[[int, Message, list[Message]], list[Message]]:
    """Node 100 changes what it sends after a training."""

    def meddle(node: int, message: Message, replies: list[Message]) -> list[Message]:
        records = [record for reply in replies for record in reply.content.array_records.values()]
        for fields in records:
            if node == 100 and "clipped" in fields:
                values = {name: array.numpy().copy() for name, array in fields.items()}
                change(values)
                for name, value in values.items():
                    fields[name] = Array(value)
        return replies

    return meddle


@pytest.mark.parametrize(
    ("name", "options", "privacy"),
    [
        ("fedavg", {}, {}),
        ("fedavg", {}, {"quantile": 0.5, "epsilon": 60.0}),
        ("fedadam", {}, {}),
        ("ditto", {}, {}),
        ("ifca", {"groups": 2}, {}),
        ("fedgroup", {"groups": 2, "alpha": 2}, {"least_group": 2.0}),
    ],
)
def test_a_private_deployment_is_the_simulation(
    tmp_path: Path, name: str, options: dict[str, Any], privacy: dict[str, Any]
) -> None:
    config = private(name, privacy=privacy, **options)
    reported = deploy(tmp_path, config)
    simulated: list[dict[str, Any]] = []
    run_config(check(config), tmp_path / "s", lambda result: simulated.append(result.row))
    assert_near(models(tmp_path / "run"), models(tmp_path / "s"))
    for ours, theirs in zip(reported.rows, simulated, strict=True):
        # The noised clip is computed from the same counts.
        assert ours["privacy"] == pytest.approx(theirs["privacy"])
    assert sum(row["privacy"]["clipped"] for row in reported.rows) > 0
    assert not reported.refused
    kept = json.loads((tmp_path / "run" / "releases.json").read_text())
    assert kept == {"processes": 1, "rounds": [0, 1, 2]}


def test_no_update_leaves_a_client_longer_than_the_clip(tmp_path: Path) -> None:
    config = private(rounds=2)
    grid = nodes(tmp_path, config)
    deploy(tmp_path, config, grid)
    fields = [one for reply in grid.replied for _, one in parts_of(reply)]
    lengths = [np.linalg.norm(one["delta"]) for one in fields if "delta" in one]
    assert lengths
    assert max(lengths) <= 0.2 * (1 + 1e-6)


def test_the_server_bounds_a_node_that_does_not_clip(tmp_path: Path) -> None:
    def swell(values: dict[str, np.ndarray]) -> None:
        values["delta"] *= 1000.0

    config = private()
    deploy(tmp_path / "honest", config)
    deploy(tmp_path / "swollen", config, nodes(tmp_path / "swollen", config, 6, changing(swell)))
    assert_near(models(tmp_path / "swollen" / "run"), models(tmp_path / "honest" / "run"))


def test_a_mark_that_is_no_mark_is_refused(tmp_path: Path) -> None:
    def forge(values: dict[str, np.ndarray]) -> None:
        values["clipped"] = np.array(-1000.0)

    config = private(privacy={"quantile": 0.5})
    config["train"]["clients_per_round"] = 6
    reported = deploy(tmp_path, config, nodes(tmp_path, config, 6, changing(forge)))
    assert reported.refused == {"clipped": 3}


def test_a_budget_that_would_be_exceeded_is_refused_before_anyone_is_asked(tmp_path: Path) -> None:
    config = private(privacy={"epsilon": 1.0})
    grid = nodes(tmp_path, config)
    with refuses(PrivacyError, "over-budget", "privacy.epsilon"):
        deploy(tmp_path, config, grid)
    assert not grid.sent
    assert not (tmp_path / "run" / "releases.json").exists()


def test_cohorts_of_those_who_are_connected_are_refused(tmp_path: Path) -> None:
    config = private()
    config["train"]["sampler"] = "uniform"
    with refuses(ConfigError, "in-conflict", "train.sampler"):
        deploy(tmp_path, config)


class StopsAfter(Reported):
    """A server that ends after a round is shown."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def __call__(self, what: str, value: Any) -> None:
        super().__call__(what, value)
        if what == "round" and value["round"] == self.number:
            raise KeyboardInterrupt


def stopped(folder: Path, config: dict[str, Any], reported: Reported, grid: Any = None) -> None:
    request = {
        "config": tomli_w.dumps(config),
        "settings": json.dumps(SETTINGS),
        "out": str(folder / "run"),
        "resume": False,
    }
    with pytest.raises(KeyboardInterrupt):
        serve(grid or nodes(folder, config), request, reported)


def test_a_resumed_run_has_other_noise_and_the_same_budget(tmp_path: Path) -> None:
    config = private(privacy={"epsilon": 60.0, "noise": 0.8})
    straight = deploy(tmp_path / "straight", config)
    stopped(tmp_path / "two", config, StopsAfter(0))
    resumed = deploy(tmp_path / "two", config, resume=True)
    assert [row["round"] for row in resumed.rows] == [1, 2]
    # A checkpoint is written before a round is shown: nothing is done again.
    assert resumed.rows[-1]["privacy"]["epsilon"] == straight.rows[-1]["privacy"]["epsilon"]
    gap = models(tmp_path / "straight" / "run") - models(tmp_path / "two" / "run")
    assert gap.abs().max() > 0.01


def test_a_round_whose_models_were_sent_counts_again(tmp_path: Path) -> None:
    config = private(rounds=2)

    # The models that a round leaves are sent in it only where they are scored after it.
    config["evaluate"] = {"order": "after"}

    def dies(node: int, message: Message, replies: list[Message]) -> list[Message]:
        if message.metadata.message_type == "evaluate":
            raise KeyboardInterrupt
        return replies

    stopped(tmp_path, config, Reported(), nodes(tmp_path, config, 6, dies))
    resumed = deploy(tmp_path, config, resume=True)
    longer = deploy(tmp_path / "longer", private(rounds=3))
    spent = [row["privacy"]["epsilon"] for row in resumed.rows]
    assert spent == [row["privacy"]["epsilon"] for row in longer.rows][1:]
    kept = json.loads((tmp_path / "run" / "releases.json").read_text())
    assert kept == {"processes": 2, "rounds": [0, 0, 1]}


def test_a_resumed_run_that_would_spend_too_much_is_refused(tmp_path: Path) -> None:
    spent = deploy(tmp_path / "once", private(rounds=2)).rows[-1]["privacy"]["epsilon"]
    config = private(rounds=2, privacy={"epsilon": spent})

    # The models that a round leaves are sent in it only where they are scored after it.
    config["evaluate"] = {"order": "after"}

    def dies(node: int, message: Message, replies: list[Message]) -> list[Message]:
        if message.metadata.message_type == "evaluate":
            raise KeyboardInterrupt
        return replies

    stopped(tmp_path, config, Reported(), nodes(tmp_path, config, 6, dies))
    with refuses(PrivacyError, "over-budget", "privacy.epsilon"):
        deploy(tmp_path, config, resume=True)
