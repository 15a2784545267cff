"""Runs with a folder that were given Python objects: what the folder says, and how they resume."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import coterie as ct
from coterie.cli.main import invoke
from coterie.errors import ConfigError
from coterie.rules.weighing import by_size
from coterie.sweep.run_once import plan_of_runs
from tests.conftest import blobs
from tests.refusals import refuses


class Net(nn.Module):
    """A network with a frozen layer, running statistics and tied weights."""

    def __init__(self, seed: int, hidden: int = 5) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first = nn.Linear(blobs().shape[0], hidden).requires_grad_(False)
        self.norm = nn.BatchNorm1d(hidden)
        self.last = nn.Linear(hidden, blobs().classes)
        self.tied = self.last
        with torch.no_grad():
            for one in self.parameters():
                one.copy_(torch.randn(one.shape, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x)))


@dataclass(frozen=True)
class Shifted:
    """An objective of the user's own."""

    mu: float = 0.0

    def loss(self, module: nn.Module, x: Tensor, y: Tensor, received: Any) -> Tensor:
        return nn.functional.cross_entropy(module(x) + 0.1, y)


def method() -> ct.Method:
    """A method that no factory made."""
    return replace(ct.fedgroup(2, alpha=2), first=ct.fedgroup(2).first)


def server(*_: Any) -> Any:
    raise AssertionError


def called(rounds: int, out: Path, **more: Any) -> ct.Result:
    given = {"model": Net(1), "objective": Shifted(), **more}
    how = given.pop("method", None) or method()
    return ct.run(
        how,
        data=blobs(),
        rounds=rounds,
        local=ct.Solver(epochs=1, lr=0.05),
        engine="serial",
        out=out,
        **given,
    )


def test_a_run_with_objects_resumes_as_an_uninterrupted_one(tmp_path: Path) -> None:
    straight = called(4, tmp_path / "straight")
    called(2, tmp_path / "run")
    # Other first weights: the run has its own.
    again = ct.resume(
        tmp_path / "run", rounds=4, model=Net(2), method=method(), objective=Shifted()
    )
    assert torch.equal(again.state.models, straight.state.models)
    assert again.scores == straight.scores
    mine = again.model_for(0).state_dict()
    for name, tensor in straight.model_for(0).state_dict().items():
        assert torch.equal(mine[name], tensor), name


def test_the_folder_says_what_the_objects_were(tmp_path: Path) -> None:
    called(1, tmp_path / "run")
    tables = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    source = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    digests = json.loads((tmp_path / "run" / "digests.json").read_text())
    assert digests["code"][__file__] == source
    assert tables["model"]["name"] == "(Net)"
    assert tables["model"]["type"] == f"{__name__}.Net"
    assert tables["objective"] == {"name": "(Shifted)", "type": f"{__name__}.Shifted"}
    # Coterie's own record has no rule of the user's.
    assert tables["algorithm"]["name"] == "(Method)"
    assert "rules" not in tables["algorithm"]
    saved = load_file(tmp_path / "run" / "initial.safetensors")
    for name, tensor in Net(1).state_dict().items():
        assert torch.equal(saved[name], tensor)


def test_what_is_missing_is_a_line_each(tmp_path: Path) -> None:
    called(1, tmp_path / "run")
    for reopened in (ct.resume, ct.Result.open):
        with pytest.raises(ConfigError) as caught:
            reopened(tmp_path / "run", objective=Shifted())
        found = [(one.code, one.path, one.got) for one in caught.value.problems]
        assert found == [
            ("missing", "model", f"{__name__}.Net"),
            ("missing", "method", "coterie.methods.method.Method"),
        ]
    assert invoke(["resume", str(tmp_path / "run")]) == 2
    assert invoke(["run", str(tmp_path / "run" / "config.toml")]) == 2


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"model": lambda: Net(1, hidden=6)}, ("differs", "model")),
        ({"model": lambda: nn.Linear(2, 2)}, ("differs", "model")),
        ({"model": lambda: "mclr"}, ("differs", "model")),
        ({"server": lambda: server}, ("unknown-key", "server")),
        ({"net": lambda: Net(1)}, ("unknown-key", "net")),
    ],
)
def test_another_object_is_one_line(
    given: dict[str, Any], refusal: tuple[Any, str], tmp_path: Path
) -> None:
    called(1, tmp_path / "run", method=ct.fedavg(), objective=None)
    before = (tmp_path / "run" / "config.toml").read_bytes()
    with refuses(ConfigError, *refusal):
        ct.resume(tmp_path / "run", **{name: made() for name, made in given.items()})
    assert (tmp_path / "run" / "config.toml").read_bytes() == before


def test_commands_that_need_no_object_read_such_a_run(tmp_path: Path) -> None:
    called(2, tmp_path / "run")
    for command in (["show"], ["report"], ["watch", "--once"]):
        assert invoke([*command, str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.parametrize("where", ["folder", "memory"])
def test_a_result_knows_its_objects(where: str, tmp_path: Path) -> None:
    result = called(1, tmp_path / "run")
    if where == "memory":
        result = ct.run(
            method(), data=blobs(), model=Net(1), rounds=1, engine="serial", objective=Shifted()
        )
    assert (result.export(tmp_path / "models").folder / "load.py").is_file()
    saved = result.save(tmp_path / "copy")
    again = ct.Result.open(saved, model=Net(3), method=method(), objective=Shifted())
    assert torch.equal(again.state.models, result.state.models)
    assert again.report().is_file()


def test_a_changed_source_file_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "my_rules.py"
    file.write_text(
        "from coterie.rules.weighing import by_size\n\n\ndef weigh(*args):\n    return by_size(*args)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import my_rules

    called(1, tmp_path / "run", method=ct.fedavg(), weigh=my_rules.weigh)
    file.write_text(file.read_text() + "# changed\n")
    ct.resume(tmp_path / "run", model=Net(1), objective=Shifted(), weigh=my_rules.weigh)
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "my_rules" in one]
    assert str(file) in line
    with refuses(ConfigError, "differs", "compare"):
        plan_of_runs([tmp_path / "run"])


def halved(groups: Any, updates: Any, round: Any) -> Any:
    """A rule of the user's own."""
    return by_size(groups, updates, round) / 2


class Method:
    """An algorithm of the user's own, by a common name."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def init(self, initial_models: Any, clients: int) -> ct.Groups:
        return ct.Groups(initial_models(0)[None], np.zeros(clients, np.int64))

    def step(self, state: ct.Groups, round: Any) -> tuple[ct.Groups, dict[str, Any]]:
        return state, {}


def test_methods_of_ones_own_have_names_of_their_own(tmp_path: Path) -> None:
    given = {
        "halved": replace(method(), weigh=halved),
        "slow": replace(method(), weigh=halved, name="slow"),
        "Method": Method(),
        "other": Method("other"),
    }
    for name, one in given.items():
        called(1, tmp_path / name, method=one, objective=None)
    plan = plan_of_runs([tmp_path / name for name in given])
    assert plan.algorithms == tuple(given)
    called(1, tmp_path / "again", method=Method("other"), objective=None)
    with refuses(ConfigError, "in-conflict", "compare"):
        plan_of_runs([tmp_path / "other", tmp_path / "again"])


def test_a_method_of_other_rules_is_another(tmp_path: Path) -> None:
    called(1, tmp_path / "run", method=replace(method(), weigh=halved))
    objects = {"model": Net(1), "objective": Shifted()}
    with refuses(ConfigError, "differs", "method"):
        ct.resume(tmp_path / "run", rounds=2, method=method(), **objects)
    again = replace(method(), weigh=halved)
    assert len(ct.resume(tmp_path / "run", rounds=2, method=again, **objects).rows) == 2
