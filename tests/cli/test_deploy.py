"""``coterie deploy``: options, and what it refuses in one line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
import pytest
import typer

from coterie.cli.main import app, invoke
from tests.flower.conftest import CONFIG, write_deployment


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    return write_deployment(tmp_path)


NODE = {"--server", "--ca", "--name", "--folder", "--cache"}
DATA = {
    "--data",
    "--query",
    "--label",
    "--input",
    "--shape",
    "--classes",
    "--loader",
    "--unlabelled",
}


def test_commands_and_options_are_frozen() -> None:
    assert options_of("deploy") == {
        "init": {"folder", "--config", "--clients", "--host", "--debug"},
        "run": {"folder", "--resume", "--set", "--debug"},
        "local": {"folder", "--clients", "--unlabelled", "--resume", "--set", "--debug"},
        "status": {"folder", "--page", "--port", "--out", "--debug"},
        "check": {"folder", "--superlink", "--root-certificates", "--debug"},
    }
    assert options_of("server") == {
        "up": {"folder", "--debug"},
        "add": {"folder", "keys", "--name", "--replace", "--debug"},
        "remove": {"folder", "names", "--debug"},
        "status": {"folder", "--quick", "--debug"},
    }
    assert options_of("node") == {
        "join": {*NODE, *DATA, "--json-logs", "--debug"},
        "check": {*NODE, *DATA, "--debug"},
        "status": {"name", "--folder", "--debug"},
        "key": {"names", "--folder", "--debug"},
        "export": {"name", "--out", "--cache", "--debug"},
        "forget": {"name", "--cache", "--debug"},
    }


def options_of(name: str) -> dict[str, set[str]]:
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    group = root.commands[name]
    assert isinstance(group, click.Group)
    return {
        name: {o for p in command.params for o in (*p.opts, *p.secondary_opts)} - {"--help"}
        for name, command in group.commands.items()
    }


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ((), 6, "privacy.epsilon: "),
        (("train.sampler=uniform",), 2, "train.sampler: cohorts of a fixed size depend on which"),
        (("algorithm.name=pooled",), 2, "algorithm.name: with these options, its server needs"),
    ],
)
def test_a_run_that_the_server_would_refuse_is_not_submitted(
    changes: Sequence[str],
    code: int,
    words: str,
    deployment: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    pytest.importorskip("dp_accounting", reason="the extra 'privacy' is not installed")

    def never(*arguments: object) -> None:
        raise AssertionError("something was submitted")

    monkeypatch.setattr("coterie.flower.operate.submit.run_flwr", never)
    private = ("privacy.epsilon=0.1", "privacy.noise=0.5", "privacy.accountant=rdp")
    first = ("train.sampler=poisson", "bounds.enabled=false")
    put = [part for change in (*first, *private, *changes) for part in ("--set", change)]
    assert invoke(["deploy", "run", str(deployment), *put]) == code
    assert words in capsys.readouterr().err
    assert not (deployment / "last-run.json").exists()


def test_a_client_is_forgotten_but_for_its_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from coterie.flower.node.cache import NodeCache, cache_root

    for name in ("hospital-3", "hospital-4"):
        cache = NodeCache(cache_root({"cache": tmp_path}, name), "a")
        cache.secret()
        (cache.folder / "kept.safetensors").write_bytes(b"its own")
    command = ["node", "forget", "hospital-3", "--cache", str(tmp_path)]
    assert invoke(command) == 0
    removed, left = capsys.readouterr().out.replace("\n/", " /").splitlines()[:2]
    root = cache_root({"cache": tmp_path}, "hospital-3")
    assert f"removed {root / 'run-a'}" in removed
    assert "kept" in left
    assert [file.name for file in root.iterdir()] == ["secret"]
    assert (cache_root({"cache": tmp_path}, "hospital-4") / "run-a/kept.safetensors").exists()
    assert invoke(command) == 2
    assert "nothing is stored for this client ('hospital-3'" in capsys.readouterr().err


def test_a_password_on_the_command_line_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["node", "check", "--server", "localhost:1", "--name", "a", "--query", "none"]
    command += ["--ca", str(tmp_path / "none"), "--data"]
    assert invoke([*command, "sqlite://me:secret@/a"]) == 2
    seen = capsys.readouterr().err
    assert "warning: --data: every user of this machine can see the password in the URL" in seen
    assert "set it in COTERIE_DATABASE_PASSWORD" in seen
    assert "secret" not in seen
    assert invoke([*command, "sqlite:////srv/a"]) == 2
    assert "warning" not in capsys.readouterr().err


def test_what_a_node_keeps_is_for_its_user_alone(tmp_path: Path) -> None:
    from coterie.flower.node.cache import NodeCache, cache_root

    root = cache_root({"cache": tmp_path}, "hospital-3")
    # As an earlier version made it.
    root.mkdir(mode=0o755)
    NodeCache(root, "a").reference(1, np.array([3, 4]))
    assert (root / "run-a" / "reference.json").exists()
    assert root.stat().st_mode & 0o077 == 0


def test_a_folder_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["deploy", "run", str(tmp_path)]) == 2
    assert "no run.toml: specify a folder from `coterie deploy init`" in capsys.readouterr().err
    (tmp_path / "c.toml").write_text(CONFIG)
    assert invoke(["deploy", "init", str(tmp_path), "--config", str(tmp_path / "c.toml")]) == 2
    assert "not empty" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["bad host", "", "a" * 300, "b\x1bd"])
def test_a_host_that_is_none_leaves_no_folder(tmp_path: Path, host: str) -> None:
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    (tmp_path / "c.toml").write_text(CONFIG)
    arguments = ["deploy", "init", str(tmp_path / "new"), "--config", str(tmp_path / "c.toml")]
    assert invoke([*arguments, "--host", host]) == 2
    assert not (tmp_path / "new").exists()


def test_resume_without_a_run_is_refused(
    deployment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    assert invoke(["deploy", "run", str(deployment), "--resume"]) == 2
    assert "no run was started from here" in capsys.readouterr().err


@pytest.mark.parametrize("out", ["{runs}/..", "{runs}/.", "{runs}/", "{runs}/../x", "/x/run", "x"])
@pytest.mark.parametrize("words", [["status"], ["run", "--resume"]])
def test_a_last_run_outside_the_folder_of_runs_is_refused(
    deployment: Path, capsys: pytest.CaptureFixture[str], out: str, words: list[str]
) -> None:
    """Both files may come from a backup, or from someone else."""
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    place = {"out": out.format(runs=deployment / "runs")}
    (deployment / "last-run.json").write_text(json.dumps(place))
    command, *options = words
    assert invoke(["deploy", command, str(deployment), *options]) == 2
    assert "last-run.json: names another folder" in capsys.readouterr().err


def test_a_restored_deployment_with_its_old_path_does_not_begin_anew(
    deployment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    settings = deployment / "deploy.toml"
    # The key in quotes, which the same file may have.
    text = settings.read_text().replace("\nfolder = ", '\n"folder" = ')
    old = str(deployment / "runs")
    settings.write_text(text.replace(old, "/old/runs"))
    (deployment / "runs" / "fedavg-1").mkdir(parents=True)
    (deployment / "last-run.json").write_text(json.dumps({"out": "/old/runs/fedavg-1"}))
    assert invoke(["deploy", "run", str(deployment), "--resume"]) == 2
    assert "deploy.toml: folder: the last run is not in" in capsys.readouterr().err


def test_a_server_that_is_not_there_is_a_remote_failure(
    deployment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    from coterie.flower.processes.process import free_ports

    text = (deployment / "deploy.toml").read_text().replace(":18101", f":{free_ports(1)[0]}")
    (deployment / "deploy.toml").write_text(text)
    assert invoke(["deploy", "run", str(deployment)]) == 7
    assert capsys.readouterr().err.startswith("error: flwr run ")


def test_a_check_of_an_address_where_nobody_is_says_so(
    deployment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It must not be taken for one that is closed."""
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    from coterie.flower.processes.process import free_ports

    command = ["deploy", "check", str(deployment), "--superlink", f"127.0.0.1:{free_ports(1)[0]}"]
    assert invoke(command) == 7
    assert "no connection with TLS" in capsys.readouterr().err
    assert invoke([*command, "--root-certificates", str(tmp_path / "none.crt")]) == 2
    assert "root_certificates: not found" in capsys.readouterr().err
    bad = command[:-1]
    for address in ("fl.example.org:port", "127.0.0.1"):
        assert invoke([*bad, address]) == 2, address
        assert "--superlink: not an address, got" in capsys.readouterr().err
