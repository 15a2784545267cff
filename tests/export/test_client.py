"""Exports of runs whose clients have layers or a model of their own: the shared part, and a client's."""

from __future__ import annotations

import csv
import importlib.util
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import coterie as ct
from coterie.cli.main import invoke
from coterie.errors import ConfigError
from coterie.experiment import check
from coterie.export import export_run
from coterie.export.models import number_of
from coterie.runs.run import run_config
from tests.conftest import config_errors
from tests.export.conftest import tables
from tests.refusals import refuses

DATA: dict[str, Any] = {
    "partition": {"kind": "planted", "clients": 6, "groups": 2},
}
CLIENT = 2


def trained(method: ct.Method, out: Path, **options: Any) -> ct.Result:
    return ct.run(
        method,
        data=ct.load("digits", **DATA),
        model="mlp",
        local=ct.Solver(epochs=1),
        rounds=2,
        clients_per_round=4,
        engine="serial",
        out=out,
        **options,
    )


def loader(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("client_export_load", folder / "load.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outputs(module: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return module(ct.load("digits", **DATA).x[:20])


def correct(run: Path) -> list[int]:
    """How many test samples of each client were right in the last evaluation."""
    with open(run / "clients.csv", newline="") as file:
        return [int(row["correct"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize(
    ("method", "options", "own"),
    [
        (ct.fedper(), {}, "their own layers"),
        (ct.fedgroup(groups=2, alpha=2), {"personal": {"layers": ["head"]}}, "their own layers"),
        (ct.ditto(), {}, "their own model"),
        (ct.apfl(), {}, "their own model"),
        (ct.fedala(), {}, "their own model"),
        (ct.fedavg(), {}, ""),
    ],
    ids=["fedper", "fedgroup with a head", "ditto", "apfl", "fedala", "fedavg"],
)
def test_a_client_has_its_own_file(
    method: ct.Method, options: dict[str, Any], own: str, tmp_path: Path
) -> None:
    result = trained(method, tmp_path / "run", **options)
    done = export_run(tmp_path / "run", client=str(CLIENT))
    assert done.folder == tmp_path / "run" / f"export-client-{CLIENT}"
    assert sorted(path.name for path in done.folder.iterdir()) == [
        "README.md",
        "client.safetensors",
        "export.json",
        "groups.csv",
        "load.py",
        "network.pt2",
    ]
    load = loader(done.folder)
    # Its line alone: who else took part is not for this client to know.
    assert list(load.groups()) == [str(CLIENT)]
    network = load.load_for(str(CLIENT))
    # The model that was scored at the end of the run, with all that the client has of its own.
    data = ct.load("digits", **DATA)
    rows = torch.from_numpy(data.test[CLIENT])
    with torch.no_grad():
        right = network(data.x[rows]).argmax(1) == data.y[rows]
    assert int(right.sum()) == correct(tmp_path / "run")[CLIENT]
    # FedALA's clients fit the model to their samples first, which a result cannot do.
    if method.local.own_model != ct.fedala().local.own_model:
        assert torch.equal(outputs(network), outputs(result.model_for(CLIENT)))
    assert done.card.own_part == own
    assert done.card.client == str(CLIENT)


def test_without_a_client_the_shared_models_are_written_and_called_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = trained(ct.fedper(), tmp_path / "run")
    capsys.readouterr()
    assert invoke(["export", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "only the shared models: clients keep their own layers" in said
    assert "coterie export RUN --client NAME" in said
    card = (tmp_path / "run" / "export" / "README.md").read_text()
    assert "**These are the shared models.**" in card
    assert "and without their own layers" in card
    shared = loader(tmp_path / "run" / "export").load(0)
    assert not torch.equal(outputs(shared), outputs(result.model_for(CLIENT)))
    assert invoke(["export", str(tmp_path / "run"), "--client", "1"]) == 0
    assert "client 1: the model that serves it, with its own layers" in capsys.readouterr().out


def test_a_method_that_shares_nothing_needs_the_name_of_a_client(tmp_path: Path) -> None:
    config = check(
        {
            "data": {"source": "digits", **DATA},
            "model": {"name": "mclr"},
            "local": {"epochs": 1},
            "train": {"rounds": 1, "clients_per_round": 6},
            "algorithm": {"name": "local"},
            "engine": {"name": "serial"},
        }
    )
    run_config(config, tmp_path / "run")
    with refuses(ConfigError, "does-not-fit", "algorithm.name"):
        export_run(tmp_path / "run")
    assert not (tmp_path / "run" / "export").exists()
    assert export_run(tmp_path / "run", client="3").client.own


def test_a_client_that_is_not_there_is_refused(tmp_path: Path) -> None:
    trained(ct.fedavg(), tmp_path / "run")
    (line,) = config_errors(lambda: export_run(tmp_path / "run", client="ann"))
    assert line == "--client: no such client, got 'ann'; expected one of 0, 1, 2, 3, 4, and 1 more"


def test_a_client_of_a_table_has_what_makes_its_inputs(table: Path, tmp_path: Path) -> None:
    run_config(check(tables(table, algorithm={"name": "ditto"})), tmp_path / "run")
    shared = export_run(tmp_path / "run").folder
    # It would predict by the shared models.
    assert not (shared / "predict.py").exists()
    name = next(iter(loader(shared).groups()))
    folder = export_run(tmp_path / "run", client=name).folder
    assert not (folder / "predict.py").exists()
    assert loader(folder).group_of(name) == 0


def test_the_loader_prints_no_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "ann\x1b[2J"
    data = ct.load("digits", **DATA)
    data = replace(data, names=(name, *data.names[1:]))
    ct.run("fedavg", data=data, model="mclr", rounds=1, engine="serial", out=tmp_path / "run")
    folder = export_run(tmp_path / "run", client=name).folder
    runpy.run_path(str(folder / "load.py"), run_name="__main__")
    assert "ann\\x1b[2J: 650 parameters" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("keeps", "word"), [(True, "coterie node export ann"), (False, "predict.py")]
)
def test_a_client_of_a_real_federation_is_told_where_its_model_is(keeps: bool, word: str) -> None:
    source: Any = SimpleNamespace(real=True, keeps=keeps)
    with refuses(ConfigError, "does-not-fit", "--client") as refused:
        number_of(source, "ann")
    assert word in str(refused.value)
