"""The commands, their options, and how they end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
import typer

from coterie.cli.main import app, invoke
from coterie.experiment import check
from coterie.runs.run import run_config


def options(command: click.Command) -> set[str]:
    return {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    } - {"--help"}


def test_commands_and_options_are_frozen() -> None:
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    data = root.commands.pop("data")
    study = root.commands.pop("study")
    for name in ("deploy", "server", "node"):  # tests/cli/test_deploy.py has their options
        assert root.commands.pop(name)
    assert isinstance(data, click.Group)
    assert isinstance(study, click.Group)
    assert options(root) == {"--version", "--install-completion", "--show-completion"}
    assert {
        name: options(command)
        for name, command in (root.commands | data.commands | study.commands).items()
    } == {
        "run": {
            *(
                "config",
                "--set",
                "--out",
                "--seed",
                "--engine",
                "--workers",
                "--ray-address",
                "--device",
            ),
            *("--data-root", "--debug"),
        },
        "resume": {
            *("run", "--rounds", "--data", "--trust"),
            *("--engine", "--workers", "--ray-address", "--device"),
            *("--data-root", "--debug"),
        },
        "show": {"run", "--debug"},
        "report": {
            *("runs", "--out", "--figures", "--pdf", "--data-root", "--trust"),
            *("--open", "--no-open", "--debug"),
        },
        "plot": {"runs", "--chart", "--out", "--data-root", "--trust", "--debug"},
        "compare": {
            *(
                "config",
                "--algorithms",
                "--seeds",
                "--grid",
                "--set",
                "--baseline",
                "--target",
                "--figure",
                "--jobs",
                "--attack",
                "--attackers",
                "--tune",
            ),
            *("--out", "--engine", "--workers", "--data-root", "--debug"),
        },
        "advise": {
            *(
                "data",
                "--client",
                "--label",
                "--features",
                "--methods",
                "--rounds",
                "--seeds",
                "--set",
                "--out",
            ),
            *("--engine", "--workers", "--data-root", "--debug"),
        },
        "scoreboard": {
            *("suite", "--methods", "--federations", "--seeds", "--tune", "--no-tune"),
            *("--merge", "--jobs", "--out", "--data-root", "--open", "--no-open", "--debug"),
        },
        "reproduce": {
            *(
                "papers",
                "--table",
                "--row",
                "--profile",
                "--seeds",
                "--out",
                "--data-root",
                "--list",
                "--debug",
            ),
        },
        "list": {"what"},
        "predict": {"run", "--data", "--out", "--data-root", "--trust", "--debug"},
        "export": {
            "run",
            "--out",
            "--client",
            "--onnx",
            "--data-root",
            "--older-checkpoint",
            "--trust",
            "--debug",
        },
        "watch": {"run", "--once", "--interval", "--debug"},
        "demo": {"--out", "--open", "--no-open", "--debug"},
        "inspect": {"config", "--set", "--data-root", "--debug"},
        "layers": {
            *("config", "--set", "--out", "--epochs", "--engine", "--workers", "--data-root"),
            *("--open", "--no-open", "--debug"),
        },
    }


def test_exit_codes_are_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for code in (
        "0 ok",
        "2 usage",
        "3 data",
        "4 run folder",
        "5 quorum",
        "8 runs of a sweep failed",
        "10 another process is writing to the run folder",
        "70 a bug",
        "130 and 143",
    ):
        assert code in text


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["run", "--help"], ["list", "nothing"]]
)
def test_help_does_not_wait_for_torch(arguments: list[str]) -> None:
    assert "torch" not in _loaded(*arguments, code=2 * ("nothing" in arguments))


def test_the_list_of_commands_does_not_wait_for_the_checks_of_a_configuration() -> None:
    assert "pydantic" not in _loaded("--help")


def test_who_reads_a_run_does_not_wait_for_torch(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    tables = {
        "data": {"source": "digits", "partition": {"kind": "iid", "clients": 4}},
        "model": {"name": "mclr"},
        "local": {"epochs": 1},
        "engine": {"name": "serial"},
        "train": {"rounds": 1, "clients_per_round": 2},
        "algorithm": {"name": "fedavg"},
    }
    run_config(check(tables), folder)
    assert "torch" not in _loaded("show", str(folder))
    assert "torch" not in _loaded("watch", "--once", str(folder))


def _loaded(*arguments: str, code: int = 0) -> list[str]:
    """The modules that a command has loaded which ends with this code."""
    script = (
        "import sys; from coterie.cli.main import invoke; code = invoke(sys.argv[1:]); "
        "print(*sys.modules, sep='\\n', file=sys.stderr); sys.exit(code)"
    )
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stderr.splitlines()


@pytest.mark.parametrize("arguments", [[], ["data"]])
def test_a_bare_command_shows_its_help(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out.startswith("Usage: coterie")
    assert "--help" in shown.out
    assert not shown.err


def test_a_reader_that_leaves_is_no_error() -> None:
    command = (
        f"{sys.executable} -m coterie.cli.main list algorithms | true; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_python_runs_the_package_as_the_command() -> None:
    command = [sys.executable, "-m", "coterie", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("coterie ")
