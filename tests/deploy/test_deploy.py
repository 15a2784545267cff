"""What surrounds a real federation: the folder, keys, a node's data, processes; and one of real
processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch
import typer

from coterie.cli.main import app, invoke
from coterie.config import check
from coterie.config.reading import read
from coterie.deploy.folder import init
from coterie.deploy.own import load_function, read_own, share
from coterie.deploy.process import stop
from coterie.deploy.settings import Settings, load
from coterie.errors import ConfigError, CoterieError, DataError, RemoteError
from coterie.runs.run import load_data, run_config

CONFIG = """
seed = 3
[data]
source = "digits"
[data.partition]
kind = "planted"
clients = 3
groups = 2
[model]
name = "mclr"
[local]
epochs = 1
lr = 0.1
[train]
rounds = 3
clients_per_round = 3
evaluate_every = 3
[algorithm]
name = "fedavg"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")
    (tmp_path / "c.toml").write_text(CONFIG)
    init(tmp_path / "d", tmp_path / "c.toml")
    return tmp_path / "d"


def test_commands_and_options_are_frozen() -> None:
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    deploy = root.commands["deploy"]
    assert isinstance(deploy, click.Group)
    found = {
        name: {o for p in command.params for o in (*p.opts, *p.secondary_opts)} - {"--help"}
        for name, command in deploy.commands.items()
    }
    assert found == {
        "init": {"folder", "--config", "--clients", "--host", "--debug"},
        "run": {"folder", "--resume", "--set", "--debug"},
        "local": {"folder", "--clients", "--resume", "--set", "--debug"},
        "key": {"folder", "names", "--debug"},
    }


def test_the_folder_is_an_app_and_its_data_are_shares(folder: Path) -> None:
    config, settings = load(folder)
    assert (settings.clients, settings.shape, len(settings.classes)) == (3, (1, 8, 8), 10)
    project = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert project["components"] == {
        "serverapp": "coterie.flower_app:server",
        "clientapp": "coterie.flower_app:client",
    }
    (x, y), (tx, ty) = load_function(folder / "client.py")(
        SimpleNamespace(node_config={"share": 1})
    )
    _, _, population = load_data(config)
    assert torch.equal(x, population.x[torch.from_numpy(population.train[1])])
    assert torch.equal(ty, population.y[torch.from_numpy(population.test[1])])
    assert len(y) == len(population.train[1])
    assert len(tx) == len(ty)
    with pytest.raises(DataError, match=r"no such client, got 3; expected 0 to 2"):
        share(folder / "run.toml", 3)


def test_data_that_stay_on_their_nodes_need_only_a_shape_and_names(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")
    data = '[data]\nsource = "nodes"\nshape = [30]\nclasses = ["healthy", "ill"]\n[data.partition]\nkind = "natural"\n'
    (tmp_path / "c.toml").write_text(data + CONFIG[CONFIG.index("[model]") :])
    init(tmp_path / "d", tmp_path / "c.toml", 4)
    config, settings = load(tmp_path / "d")
    assert (settings.shape, settings.classes, settings.clients) == ((30,), ("healthy", "ill"), 4)
    with pytest.raises(DataError, match="the data stay on their nodes"):
        load_data(config)
    with pytest.raises(NotImplementedError, match="to be filled in"):
        load_function(tmp_path / "d" / "client.py")(None)


def test_keys_are_private_and_stay(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["deploy", "key", str(folder), "hospital-3"]) == 0
    private = folder / "keys" / "hospital-3.key"
    public = folder / "keys" / "hospital-3.pub"
    assert str(private) in capsys.readouterr().out
    assert public.read_text().startswith("ecdsa-sha2-nistp384 ")
    assert all(
        file.stat().st_mode & 0o077 == 0 for file in (private, folder / "keys" / "server.key")
    )
    before = private.read_bytes()
    assert invoke(["deploy", "key", str(folder), "hospital-3"]) == 0
    assert private.read_bytes() == before


def test_the_certificate_is_for_the_hosts_named(tmp_path: Path) -> None:
    x509 = pytest.importorskip("cryptography.x509", reason="the extra 'flower' is not installed")
    from coterie.deploy.keys import make_server

    make_server(tmp_path, ("localhost", "127.0.0.1", "fl.example.org"))
    leaf, ca = (
        x509.load_pem_x509_certificate((tmp_path / name).read_bytes())
        for name in ("server.pem", "ca.crt")
    )
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "fl.example.org"]
    leaf.verify_directly_issued_by(ca)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clients = 3", "deploy.toml: shape: missing"),
        ('clients = 3\nshape = [4]\nclasses = ["a"]\nport = 4', "port: unknown key"),
        ('clients = 0\nshape = [4]\nclasses = ["a"]', "clients: out of range, got 0"),
        ('clients = 3\nshape = [4]\nclasses = ["a"]\nmin_clients = 4', "expected at most 3"),
        ('clients = 3\nshape = 4\nclasses = ["a"]', "shape: "),
    ],
)
def test_settings_are_checked_in_clear_words(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Settings.of(tomllib.loads(text))


def test_a_folder_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["deploy", "run", str(tmp_path)]) == 2
    assert (
        "no run.toml, got none; expected a folder made by `coterie deploy init`"
        in capsys.readouterr().err
    )
    (tmp_path / "c.toml").write_text(CONFIG)
    assert invoke(["deploy", "init", str(tmp_path), "--config", str(tmp_path / "c.toml")]) == 2
    assert "not empty" in capsys.readouterr().err


def test_resume_without_a_run_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    assert invoke(["deploy", "run", str(folder), "--resume"]) == 2
    assert "no run to go on with" in capsys.readouterr().err


def test_a_server_that_is_not_there_is_a_remote_failure(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    from coterie.deploy.process import free_ports

    text = (folder / "deploy.toml").read_text().replace(":18001", f":{free_ports(1)[0]}")
    (folder / "deploy.toml").write_text(text)
    assert invoke(["deploy", "run", str(folder)]) == 7
    assert capsys.readouterr().err.startswith("error: flwr run ")


def test_parquet_files_of_a_node(tmp_path: Path) -> None:
    rows = [[float(4 * i + j) for j in range(4)] for i in range(10)]
    parquet.write_table(
        pa.table({"x": rows, "label": [i % 2 for i in range(10)]}), tmp_path / "train.parquet"
    )
    (x, y), (tx, ty) = read_own(tmp_path, {"shape": "2,2"})
    assert x.shape == (10, 2, 2)
    assert (len(tx), len(ty)) == (0, 0)
    (x, y), (tx, ty) = read_own(tmp_path / "train.parquet", {})
    assert (x.shape, tx.shape) == ((8, 4), (2, 4))
    assert sorted([*x[:, 0], *tx[:, 0]]) == [4.0 * i for i in range(10)]
    assert all(
        int(row[0] // 4) % 2 == label for row, label in zip([*x, *tx], [*y, *ty], strict=True)
    )
    columns = {"a": [1.0, 2.0], "b": [3.0, 4.0], "diagnosis": [0, 1]}
    parquet.write_table(pa.table(columns), tmp_path / "own.parquet")
    assert read_own(tmp_path / "own.parquet", {"label": "diagnosis"})[0][0].shape == (2, 2)
    for file, given, words in (
        ("own.parquet", {}, "no labels, got columns a, b, diagnosis"),
        ("none", {}, "read"),
    ):
        with pytest.raises(DataError, match=words):
            read_own(tmp_path / file, given)


def test_a_loader_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text("load = 3\n")
    with pytest.raises(DataError, match="no function load_client"):
        load_function(tmp_path / "client.py")


def test_processes_are_stopped_with_all_that_they_started() -> None:
    code = "import subprocess, time; subprocess.Popen(['sleep', '97'], start_new_session=True); time.sleep(97)"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    end = time.monotonic() + 20
    while not (
        children := subprocess.run(
            ["pgrep", "-P", str(process.pid)], capture_output=True
        ).stdout.split()
    ):
        assert time.monotonic() < end
        time.sleep(0.05)
    stop([process], 0.5)
    assert process.poll() is not None
    end = time.monotonic() + 10
    while any(_runs(int(child)) for child in children):
        assert time.monotonic() < end
        time.sleep(0.05)


def followed(
    lines: list[str],
    status: str | Callable[[Path, int], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[dict[str, Any], list[int]]:
    """Follow a run whose log holds these lines; returns the summary and the rounds told."""
    from coterie.deploy import run

    (tmp_path / "log").write_text("".join(f"{line}\n" for line in lines))
    script = tmp_path / "flwr"
    script.write_text(f"#!/bin/sh\ncat {tmp_path / 'log'}\n")
    script.chmod(0o755)
    (tmp_path / "c.toml").write_text(CONFIG)
    monkeypatch.setattr(run, "command", lambda name: str(script))
    monkeypatch.setattr(run, "status", status if callable(status) else lambda home, number: status)
    rounds: list[int] = []
    config = check(read(tmp_path / "c.toml"))
    return run.follow(tmp_path, config, 7, lambda row: rounds.append(row["round"])), rounds


def told(number: int, what: str, value: Any) -> str:
    return "INFO :  @coterie " + json.dumps({"number": number, what: value})


START = told(0, "start", {"folder": "/runs/a", "round": 0, "rounds": 2, "parameters": 650})


def test_a_run_is_shown_from_its_log_each_line_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        told(1 + t, "round", {"round": t, "accuracy": 0.5, "sizes": [3], "skipped": False})
        for t in range(2)
    ]
    lines = [
        "WARNING: something",
        START,
        rows[0],
        rows[0],
        "@coterie {torn",
        rows[1],
        told(3, "done", {"rounds": 2}),
    ]
    summary, rounds = followed(lines, "finished:completed", tmp_path, monkeypatch)
    assert (summary, rounds) == ({"rounds": 2}, [0, 1])
    assert "2 rounds, in /runs/a" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "code", "words"),
    [
        (
            [START, told(1, "error", {"code": 5, "message": "quorum: too few"})],
            5,
            "quorum: too few",
        ),
        ([START, told(1, "error", {"code": 4, "message": "damaged"})], 4, "damaged"),
        ([START, told(1, "error", {"code": 70, "message": "odd"})], 7, "odd"),
        ([START, "ERROR: killed"], 7, "run 7: finished:failed, got 'ERROR: killed'"),
        ([START, "Installed d"], 7, "got no word of why, as when it is killed"),
        ([], 7, "got no word of why"),
    ],
)
def test_a_run_that_failed_elsewhere_has_its_exit_code(
    lines: list[str], code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CoterieError, match=words) as caught:
        followed(lines, "finished:failed", tmp_path, monkeypatch)
    assert caught.value.code == code


def test_a_server_that_falls_silent_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower's command prints a line of its own each time, which is no sign of life."""
    from coterie.deploy import run

    def silent(home: Path, number: int) -> str:
        raise RemoteError("flwr list: no answer")

    monkeypatch.setattr(run, "UNREACHABLE", 0.5)
    monkeypatch.setattr(run, "QUIET", 0.2)
    monkeypatch.setattr(run, "PAUSE", 0.1)
    begun = time.monotonic()
    with pytest.raises(RemoteError, match=r"no answer \(given up after 0.5 s\)"):
        followed(["Using SuperLink: coterie", START], silent, tmp_path, monkeypatch)
    assert time.monotonic() - begun < 30


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def left_behind(folder: Path) -> list[str]:
    """Processes that name this folder in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (
                str(folder).encode() in (process / "environ").read_bytes()
                and int(process.name) != os.getpid()
            ):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def test_a_federation_of_real_processes(folder: Path) -> None:
    """Three nodes, three rounds, TLS and authentication, and the models of the serial engine."""
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    line = [
        sys.executable,
        "-c",
        "from coterie.cli.main import main; main()",
        "deploy",
        "local",
        str(folder),
    ]
    done = subprocess.run(line, capture_output=True, text=True, timeout=420)
    logs = "".join(
        f"\n== {log.name}\n" + log.read_text()[-1500:] for log in (folder / "logs").glob("*.log")
    )
    assert done.returncode == 0, done.stderr + done.stdout + logs
    assert "round 3/3" in done.stdout
    assert not left_behind(folder)
    (run,) = (folder / "runs").iterdir()
    run_config(check(read(folder / "run.toml") | {"engine": {"name": "serial"}}), folder / "here")
    assert difference(run, folder / "here") <= 1e-6
    names = ("config.toml", "rounds.jsonl", "summary.json", "groups.csv", "models", "checkpoints")
    assert all((run / name).exists() for name in names)
    rows = [json.loads(row) for row in (run / "rounds.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [0, 1, 2]
    assert not any(row["refused"] for row in rows)
    mine, theirs = (
        json.loads((path / "summary.json").read_text()) for path in (run, folder / "here")
    )
    assert mine["accuracy"]["final"] == pytest.approx(theirs["accuracy"]["final"])
    assert invoke(["show", str(run)]) == 0


def difference(one: Path, other: Path) -> float:
    """The largest difference of any parameter of two runs' models."""
    from safetensors.torch import load_file

    files = sorted(file.name for file in (other / "models").iterdir())
    assert files == sorted(file.name for file in (one / "models").iterdir())
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (load_file(one / "models" / name), load_file(other / "models" / name)) for name in files
    ]
    return max(
        float(np.abs(a[name].numpy() - b[name].numpy()).max()) for a, b in pairs for name in b
    )
