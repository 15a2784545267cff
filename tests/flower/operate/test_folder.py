"""The folder of a deployment: a Flower app, and what a user fills in."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import tomli_w
import torch

from coterie.cli.main import invoke
from coterie.data.sources.files import DataForm
from coterie.errors import ConfigError, DataError
from coterie.experiment.defaults import resolved_without_lowered
from coterie.flower.federation_spec import FederationSpec
from coterie.flower.node.data_sources import load_function, trial_share
from coterie.flower.operate.folder import init, next_step
from coterie.flower.server.configured import ServerInput
from coterie.flower.settings import DeploymentSettings, load_deployment
from coterie.runs.data import load_data
from tests.flower.conftest import CONFIG
from tests.refusals import refuses
from tests.runs.calls import call


def test_the_folder_is_an_app_and_its_data_are_shares(deployment: Path) -> None:
    config, settings = load_deployment(deployment)
    assert (settings.clients, settings.shape, len(settings.classes)) == (3, (1, 8, 8), 10)
    project = tomllib.loads((deployment / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert project["components"] == {
        "serverapp": "coterie.flower.app:server",
        "clientapp": "coterie.flower.app:client",
    }
    (x, y), (tx, ty) = load_function(deployment / "client.py")(
        SimpleNamespace(node_config={"share": 1})
    )
    _, _, population = load_data(config)
    assert torch.equal(x, population.x[torch.from_numpy(population.train[1])])
    assert torch.equal(ty, population.y[torch.from_numpy(population.test[1])])
    assert len(y) == len(population.train[1])
    assert len(tx) == len(ty)
    with refuses(DataError, "not-found", "client"):
        trial_share(deployment / "run.toml", 3)


def test_the_app_of_another_version_is_refused(deployment: Path) -> None:
    """Flower would say that a module cannot be loaded."""
    project = deployment / "pyproject.toml"
    text = project.read_text()
    project.write_text(text.replace("coterie.flower.app", "coterie.flower_app"))
    with refuses(ConfigError, "differs", str(project)):
        load_deployment(deployment)
    project.write_text(text)
    assert load_deployment(deployment)[1].clients == 3


def test_data_that_stay_on_their_nodes_need_only_a_shape_and_names(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")
    data = '[data]\nsource = "nodes"\nshape = [30]\nclasses = ["healthy", "ill"]\n[data.partition]\nkind = "natural"\n'
    (tmp_path / "c.toml").write_text(data + CONFIG[CONFIG.index("[model]") :])
    init(tmp_path / "d", tmp_path / "c.toml", 4)
    config, settings = load_deployment(tmp_path / "d")
    assert (settings.shape, settings.classes, settings.clients) == ((30,), ("healthy", "ill"), 4)
    with refuses(DataError, "does-not-fit", "data.source"):
        load_data(config)
    with pytest.raises(NotImplementedError, match="fill in load_client"):
        load_function(tmp_path / "d" / "client.py")(None)
    # Sites have their own data, so the first step is a server for them and no trial here.
    assert next_step(tmp_path / "d").startswith(f"next: coterie server up {tmp_path / 'd'}; sites ")
    assert "deploy local" not in (tmp_path / "d" / "README.md").read_text()
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    code, _, said = call("deploy", "local", str(tmp_path / "d"))
    assert (code, said.count("\n")) == (2, 1)
    assert "client.py: load_client returns no samples" in said


def test_targets_that_are_numbers_have_no_classes(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")
    data = '[data]\nsource = "nodes"\nshape = [30]\nclasses = []\ntarget_shape = [2]\n'
    rest = '[data.partition]\nkind = "natural"\n[task]\nkind = "regression"\n'
    (tmp_path / "c.toml").write_text(data + rest + CONFIG[CONFIG.index("[model]") :])
    init(tmp_path / "d", tmp_path / "c.toml", 4)
    config, settings = load_deployment(tmp_path / "d")
    assert settings.form == DataForm((30,), (), (2,))
    spec = FederationSpec.of(config, settings.form, settings.clients)
    assert (spec.task.name, spec.task.outputs, spec.classes) == ("regression", 2, 0)


def test_columns_of_a_table_are_in_deploy_toml(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")
    rows = [f"{40 + at},{'fm'[at % 2]},{at % 3 == 0},h{at % 2}" for at in range(24)]
    (tmp_path / "t.csv").write_text("\n".join(["age,the sex,ill,client", *rows]))
    data = (
        f'[data]\nsource = "file"\npath = "{tmp_path / "t.csv"}"\nfeatures = "*"\nlabel = "ill"\n'
        'missing = ["unknown"]\n'
    )
    rest = '[data.partition]\nkind = "natural"\ncolumn = "client"\n'
    (tmp_path / "c.toml").write_text(data + rest + CONFIG[CONFIG.index("[model]") :])
    init(tmp_path / "d", tmp_path / "c.toml", 3)
    _, settings = load_deployment(tmp_path / "d")
    assert settings.form.shape == ()
    assert settings.columns == {"age": "number", "the sex": ["f", "m"]}
    assert settings.missing == ("unknown",)
    with refuses(ConfigError, "unknown-choice", "columns.age"):
        DeploymentSettings.of(
            {"clients": 1, "shape": [], "classes": [], "columns": {"age": "numbers"}}, "deploy.toml"
        )


def test_a_deployment_of_fewer_clients_asks_fewer_in_a_round(tmp_path: Path) -> None:
    """The default of ``clients_per_round`` is that of the deployment, not of the trial's data."""
    pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")
    (tmp_path / "c.toml").write_text(CONFIG.replace("clients_per_round = 3\n", ""))
    init(tmp_path / "d", tmp_path / "c.toml", 2)
    config, settings = load_deployment(tmp_path / "d")
    assert (settings.clients, config.train.clients_per_round) == (2, 2)


def test_sites_are_as_many_as_a_round_asks(tmp_path: Path) -> None:
    """Where sites have their data no partition says how many there are."""
    pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")
    data = '[data]\nsource = "nodes"\nshape = [3]\nclasses = ["a", "b"]\n'
    rest = '[data.partition]\nkind = "natural"\n'
    for asked, clients in (("clients_per_round = 3\n", 3), ("", 2)):
        text = CONFIG.replace("clients_per_round = 3\n", asked)
        (tmp_path / "c.toml").write_text(data + rest + text[text.index("[model]") :])
        init(tmp_path / f"d{clients}", tmp_path / "c.toml")
        config, settings = load_deployment(tmp_path / f"d{clients}")
        assert (settings.clients, config.train.clients_per_round) == (clients, clients)


@pytest.mark.parametrize("method", ["flexcfl", "fedgroup", 'ifca"\ninit = "cold_start'])
def test_a_cold_start_follows_the_number_of_sites(tmp_path: Path, method: str) -> None:
    """``run.toml`` leaves out the default of ``alpha``, which 40 clients need and 8 lower."""
    pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")
    data = '[data]\nsource = "nodes"\nshape = [3]\nclasses = ["a", "b"]\n'
    data += '[data.partition]\nkind = "natural"\n'
    rest = CONFIG[CONFIG.index("[model]") : CONFIG.index("[algorithm]")]
    algorithm = f'[algorithm]\nname = "{method}"\ngroups = 2\n'
    (tmp_path / "c.toml").write_text(data + rest + algorithm)
    init(tmp_path / "d", tmp_path / "c.toml", 8)
    for clients, alpha in ((8, 4), (60, 20)):
        settings = (tmp_path / "d" / "deploy.toml").read_text()
        settings = re.sub("(?m)^clients = [0-9]+", f"clients = {clients}", settings)
        (tmp_path / "d" / "deploy.toml").write_text(settings)
        config, read = load_deployment(tmp_path / "d")
        FederationSpec.of(config, read.form, read.clients)
        text = tomli_w.dumps(resolved_without_lowered(config))
        values = {"config": text, "settings": read.dumps(), "out": "r", "resume": False}
        assert ServerInput.of(values).config.options("algorithm")["alpha"] == alpha


def test_a_round_that_asks_more_clients_than_there_are_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    words = "train.clients_per_round: more than the number of clients, got 3; expected at most 2"
    (tmp_path / "c.toml").write_text(CONFIG)
    folder = tmp_path / "d"
    with refuses(ConfigError, "out-of-range", "train.clients_per_round"):
        init(folder, tmp_path / "c.toml", 2)
    assert not folder.exists()
    init(folder, tmp_path / "c.toml")
    settings = (folder / "deploy.toml").read_text()
    (folder / "deploy.toml").write_text(settings.replace("clients = 3", "clients = 2"))

    def never(*arguments: object) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr("coterie.flower.operate.submit.run_flwr", never)
    monkeypatch.setattr("coterie.flower.operate.local.local_federation", never)
    for command in ("run", "local"):
        assert invoke(["deploy", command, str(folder)]) == 2
        assert words in capsys.readouterr().err
