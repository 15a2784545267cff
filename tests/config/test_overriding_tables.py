"""The tables ``[server]`` and ``[objective]``: another server or objective for any method."""

from __future__ import annotations

import json
import signal
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

import coterie as ct
from coterie.cli.main import invoke
from coterie.config.identity import config_hash
from coterie.core.groups import Groups
from coterie.errors import Code, ConfigError
from coterie.experiment import check, load_config
from coterie.methods.method import Clustered
from coterie.objectives import OBJECTIVES, Fused, Fusion, proximal
from coterie.rules.server import SERVERS, yogi
from coterie.runs.compose import Composed, compose
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import Stopped, execute, make_folder, run_config
from tests.conftest import config_errors
from tests.refusals import refuses

BASE = """
seed = 3
[data]
source = "digits"
[data.partition]
kind = "planted"
clients = 12
groups = 2
how = "swap"
[model]
name = "mclr"
[local]
epochs = 1
lr = 0.1
[train]
rounds = 4
clients_per_round = 4
[engine]
name = "serial"
[checkpoint]
seconds = 0
"""
FEDGROUP = '[algorithm]\nname = "fedgroup"\ngroups = 2\nalpha = 3\npretrain_steps = 5\n'
IFCA = '[algorithm]\nname = "ifca"\ngroups = 2\n'
YOGI = '[server]\nname = "fedyogi"\nlr = 0.01\n'
ADAM = '[server]\nname = "fedadam"\n'
PROX = '[objective]\nname = "proximal"\nmu = 0.5\n'
PERSONAL = '[personal]\nlayers = ["*bias"]\n'
CFL = '[algorithm]\nname = "cfl"\nafter = 1\neps1 = 100.0\neps2 = 0.0\n'  # splits wherever it can
COMBINED = {
    "ifca + yogi": IFCA + YOGI,
    "ifca + prox": IFCA + PROX,
    "fedgroup + adam": FEDGROUP + ADAM,
    "fedgroup + yogi + prox": FEDGROUP + YOGI + PROX,
    "flexcfl + momentum": FEDGROUP.replace("fedgroup", "flexcfl") + '[server]\nname = "fedavgm"\n',
    "ifca + mmd": IFCA + '[objective]\nname = "mmd"\nweight = 1.0\n',
    "cfl + prox": CFL + PROX,
    "cfl + yogi": CFL + YOGI,
    "ifca + personal": IFCA + PERSONAL,
    "fedgroup + personal": FEDGROUP + PERSONAL,
}
LOCAL = ct.Solver(epochs=1, lr=0.1)


def tables(text: str) -> dict[str, Any]:
    return tomllib.loads(BASE + text)


def last(text: str, folder: Path) -> Groups:
    run_config(check(tables(text)), folder)
    checkpoint = RunFolder.open(folder).checkpoints.latest()
    assert checkpoint is not None
    return checkpoint.groups


@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", COMBINED.values(), ids=COMBINED.keys())
def test_any_method_takes_any_server_and_objective(text: str, tmp_path: Path) -> None:
    """Both act, and a run stopped in the middle goes on to the same bits, optimiser rows
    included."""
    config = tables(text)
    straight = last(text, tmp_path / "straight")
    plain_run = last(
        "".join(f"[{p}" for p in text.split("[") if p.startswith("algorithm")), tmp_path / "plain"
    )
    assert straight.models.shape != plain_run.models.shape or not torch.equal(
        straight.models, plain_run.models
    )
    assert torch.isfinite(straight.models).all()

    composed = compose(check(config))
    done = []
    folder = make_folder(composed, tmp_path / "stopped")
    with pytest.raises(Stopped):
        execute(composed, folder, done.append, stop=lambda: signal.SIGTERM * (len(done) == 2))
    execute(composed, folder, checkpoint=folder.checkpoints.latest(), resume=True)
    checkpoint = folder.checkpoints.latest()
    assert checkpoint is not None
    resumed = checkpoint.groups
    assert torch.equal(resumed.models, straight.models)
    assert resumed.optimiser.keys() == straight.optimiser.keys()
    assert all(torch.equal(resumed.optimiser[n], rows) for n, rows in straight.optimiser.items())
    assert straight.k >= 2
    assert all(rows.shape == straight.models.shape for rows in straight.optimiser.values())
    moments = {"fedavgm": {"m"}, "fedadam": {"m", "v"}, "fedyogi": {"m", "v"}}
    assert set(straight.optimiser) == moments.get(config.get("server", {}).get("name"), set())


def test_the_configuration_does_what_python_does(tmp_path: Path) -> None:
    data = ct.load(
        "digits", partition={"kind": "planted", "clients": 12, "groups": 2, "how": "swap"}, seed=3
    )
    run: dict[str, Any] = {
        "data": data,
        "model": "mclr",
        "local": LOCAL,
        "rounds": 4,
        "clients_per_round": 4,
        "seed": 3,
    }
    result = ct.run(
        ct.ifca(groups=2), **run, engine="serial", server=yogi(lr=0.01), objective=proximal(mu=0.5)
    )
    assert torch.equal(result.state.models, last(IFCA + YOGI + PROX, tmp_path / "run").models)


def test_fedgroup_with_a_proximal_term_is_fedgrouprox(tmp_path: Path) -> None:
    """The objective is that of the cold starts, too."""
    prox = last(FEDGROUP + PROX, tmp_path / "a")
    assert torch.equal(
        prox.models,
        last(FEDGROUP.replace("fedgroup", "fedgrouprox") + "mu = 0.5\n", tmp_path / "b").models,
    )


@pytest.mark.parametrize("text", [FEDGROUP, IFCA])
def test_the_tables_of_what_a_method_has_anyway_change_nothing(text: str, tmp_path: Path) -> None:
    alone, same = (
        last(text + more, tmp_path / str(at))
        for at, more in enumerate(("", '[server]\nname = "sgd"\n[objective]\nname = "plain"\n'))
    )
    assert torch.equal(alone.models, same.models)
    assert not same.optimiser


def test_fusion_reaches_the_network_of_a_run(tmp_path: Path) -> None:
    text = FEDGROUP + '[objective]\nname = "fusion"\noperator = "multi"\n'
    config = tables(text) | {"model": {"name": "mlp", "hidden": 8}}
    composed = compose(check(config))
    assert isinstance(composed.module, Fused)
    assert isinstance(composed.algorithm, Clustered)
    assert composed.algorithm.method.local.objective == Fusion("multi")
    run_config(check(config), tmp_path / "run")
    assert {p.name for p in (tmp_path / "run" / "models").iterdir()} == {
        "group-0.safetensors",
        "group-1.safetensors",
    }
    (line,) = config_errors(lambda: compose(check(tables(text))))
    assert line.startswith(
        "model.name: fusion puts an operator between features and classifier (a network that has"
    )


def test_the_tables_are_part_of_a_runs_identity() -> None:
    plain_run, with_server = (check(tables(IFCA + more)).resolved() for more in ("", YOGI))
    assert "server" not in plain_run
    assert with_server["server"] == {
        "name": "fedyogi",
        "lr": 0.01,
        "beta1": 0.9,
        "beta2": 0.99,
        "tau": 0.001,
    }
    assert config_hash(plain_run) != config_hash(with_server)
    assert (
        check(tomllib.loads(check(tables(IFCA + YOGI + PROX)).toml())).resolved()["objective"]["mu"]
        == 0.5
    )


def test_overrides_make_the_tables(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(BASE + IFCA)
    config = load_config(file, ["server.name=fedyogi", "server.lr=0.1", "objective.name=proximal"])
    assert (config.server.lr, config.objective.mu) == (0.1, 1.0)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            '[server]\nname = "fedyogy"\n',
            ["server.name: unknown choice, got 'fedyogy'", "did you mean 'fedyogi'?"],
        ),
        (
            '[server]\nname = "sgd"\nbeta1 = 0.9\n',
            ["server.beta1: unknown key, got 0.9; expected one of name, lr"],
        ),
        ('[server]\nname = "fedadam"\nbeta2 = 1.0\n', ["server.beta2: out of range, got 1.0"]),
        (
            "[server]\nlr = 0.1\n",
            ["server.name: missing: specify one of 'fedadagrad', "],
        ),
        (
            '[objective]\nname = "fedprox"\n',
            ["objective.name: unknown choice", "one of 'fusion', 'mmd', 'plain', 'prox"],
        ),
        (
            '[objective]\nname = "proximal"\nmu = -1\n',
            ["objective.mu: out of range, got -1; expected a number >= 0"],
        ),
        ('[objective]\nname = "fusion"\noperator = "sum"\n', ["one of 'conv', 'multi', 'single'"]),
        ("server = 3\n", ["server: wrong type, got 3; expected a table"]),
        ('[server]\nname = "nowhere:rule"\n', ["server.name: cannot be used (ModuleNotFoundError"]),
    ],
)
def test_mistakes_are_one_line_each(text: str, parts: list[str]) -> None:
    tables = tomllib.loads(
        (text + BASE + IFCA) if text.startswith("server") else BASE + IFCA + text
    )
    (line,) = config_errors(lambda: check(tables))
    assert all(part in line for part in parts), line


CUSTOM = """
import torch
from coterie.rules.server import sgd
from coterie.objectives import CrossEntropy

class CustomAlgorithm:
    def init(self, initial_models, clients):
        raise NotImplementedError
    def step(self, state, round):
        raise NotImplementedError

def algorithm():
    return CustomAlgorithm()
def halving(lr: float = 0.5):
    return sgd(lr)
def objective(mu: float = 0.1):
    return CrossEntropy(mu)
def nothing():
    return None
def three():
    return 3
def failing():
    raise RuntimeError("no luck")
"""


@pytest.fixture
def custom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "custom_rules.py").write_text(CUSTOM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return "custom_rules"


def test_custom_servers_and_objectives(custom: str, tmp_path: Path) -> None:
    text = (
        f'[server]\nname = "{custom}:halving"\n[objective]\nname = "{custom}:objective"\nmu = 0.5\n'
    )
    ours = last(IFCA + text, tmp_path / "own")
    same = last(IFCA + '[server]\nname = "sgd"\nlr = 0.5\n' + PROX, tmp_path / "same")
    assert torch.equal(ours.models, same.models)
    assert check(tables(IFCA + text)).folder == str(tmp_path)


@pytest.mark.parametrize("table", [YOGI, PROX])
def test_an_algorithm_with_its_own_step_has_nothing_to_replace(custom: str, table: str) -> None:
    (line,) = config_errors(
        lambda: compose(check(tables(f'[algorithm]\nname = "{custom}:algorithm"\n' + table)))
    )
    key = table[1:].split("]")[0]
    assert line.startswith(
        f"{key}: the algorithm has its own step, got '{custom}:algorithm'; expected an algorithm made of"
    )


@pytest.mark.parametrize(
    ("kind", "factory", "code"),
    [
        ("server", "nothing", "wrong-type"),
        ("server", "three", "wrong-type"),
        ("objective", "three", "wrong-type"),
        ("objective", "failing", "failed"),
    ],
)
def test_factories_that_make_something_else(
    custom: str, kind: str, factory: str, code: Code
) -> None:
    with refuses(ConfigError, code, f"{kind}.name"):
        compose(check(tables(IFCA + f'[{kind}]\nname = "{custom}:{factory}"\n')))


def test_summary_and_rows_are_as_ever(tmp_path: Path) -> None:
    summary = run_config(check(tables(IFCA + ADAM)), tmp_path / "run")
    assert summary == json.loads((tmp_path / "run" / "summary.json").read_text())


@pytest.mark.parametrize(("what", "names"), [("servers", SERVERS), ("objectives", OBJECTIVES)])
def test_they_are_listed(what: str, names: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["list", what]) == 0
    text = capsys.readouterr().out
    assert all(f"{name}: " in text for name in names)


def test_prepared_holds_an_algorithm() -> None:
    composed = compose(check(tables(IFCA + YOGI)))
    assert isinstance(composed, Composed)
    assert isinstance(composed.algorithm, Clustered)
