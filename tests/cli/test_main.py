"""The command line: options, exit codes, one line per error."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from coterie.cli.errors import code_of
from coterie.cli.main import app, invoke

CONFIG = """
[data]
source = "digits"
[data.partition]
kind = "iid"
clients = 6
[model]
name = "mclr"
[local]
epochs = 1
[train]
rounds = 3
clients_per_round = 3
[algorithm]
name = "fedavg"
[engine]
name = "serial"
"""


FAILING = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(64, 10)
    def forward(self, x):
        if self.training:
            raise RuntimeError("two\\nlines")
        return self.line(x.flatten(1))
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    (tmp_path / "c.toml").write_text(CONFIG)
    yield "c.toml"
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def errors(capsys: pytest.CaptureFixture[str]) -> list[str]:
    found = capsys.readouterr().err.splitlines()
    assert all(line.startswith("error: ") for line in found)
    return [line.removeprefix("error: ") for line in found]


# --- the face -------------------------------------------------------------------------------------


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
    assert root.commands.pop("deploy")  # tests/deploy/test_folder.py has its options
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
            "run",
            "--engine",
            "--workers",
            "--ray-address",
            "--device",
            "--data-root",
            "--debug",
        },
        "show": {"run", "--debug"},
        "report": {"runs", "--out", "--figures", "--data-root", "--open", "--no-open", "--debug"},
        "plot": {"runs", "--chart", "--out", "--data-root", "--debug"},
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
        "export": {"run", "--out", "--onnx", "--data-root", "--debug"},
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
        "4 checkpoint",
        "5 quorum",
        "8 runs of a sweep failed",
        "70 a bug",
        "130 and 143",
    ):
        assert code in text


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["run", "--help"], ["list", "nothing"]]
)
def test_help_does_not_wait_for_torch(arguments: list[str]) -> None:
    script = "import sys; from coterie.cli.main import invoke; invoke(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", script, *arguments], capture_output=True, check=False
        ).returncode
        == 0
    )


@pytest.mark.parametrize(
    ("what", "names"),
    [
        (
            "algorithms",
            ["fedavg", "fedgroup", "groups=3", "an integer >= 1", "one of 'edc', 'madc'"],
        ),
        ("models", ["mclr", "lenet5", "hidden=128"]),
        ("datasets", ["digits", "cifar10", "pixels="]),
        ("shifts", ["swap_all", "incremental"]),
        ("partitions", ["dirichlet", "beta=0.1", "a number > 0"]),
    ],
)
def test_list(what: str, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["list", what]) == 0
    text = capsys.readouterr().out
    for name in names:
        assert name in text


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["run"],
        ["run", "a", "b"],
        ["run", "c.toml", "--sed", "1"],
        ["list", "all"],
        ["run", "x", "--seed", "y"],
    ],
)
def test_usage_errors_are_one_line(
    arguments: list[str], config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(arguments) == 2
    assert len(errors(capsys)) == 1


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


# --- runs -----------------------------------------------------------------------------------------


def test_run_show_resume(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", config, "--seed", "4", "--set", "train.rounds=4", "--out", "r"]) == 0
    text = capsys.readouterr().out
    assert "fedavg on digits: 6 clients, mclr (650 parameters), 4 rounds, in r" in text
    assert "round 4/4: accuracy" in text
    summary = json.loads(Path("r/summary.json").read_text())
    assert (summary["seed"], summary["rounds"]) == (4, 4)
    for arguments in (["show", "r"], ["resume", "r"]):
        assert invoke(arguments) == 0
        text = capsys.readouterr().out
        assert all(line == line.rstrip() and len(line) > 8 for line in text.splitlines())
        assert "fedavg on digits, mclr, seed 4" in text
        assert "4 of them" not in text
    Path("r/summary.json").unlink()
    assert invoke(["show", "r"]) == 0


@pytest.mark.parametrize(
    ("file", "content", "code"),
    [
        ("config.toml", "seed = = 1", 2),
        ("config.toml", "seed = 1", 4),
        ("summary.json", '{"accuracy": ', 4),
        ("summary.json", "{}", 4),
        ("summary.json", "[1]", 4),
        ("rounds.jsonl", '{"round": 0, "accuracy": "x"}\n', 4),
        ("partition.npz", "", 3),
    ],
)
def test_showing_a_damaged_run_is_one_line(
    file: str, content: str, code: int, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", config, "--set", "train.rounds=1", "--out", "r"]) == 0
    assert "1 round, in r" in capsys.readouterr().out
    if file != "summary.json":
        Path("r/summary.json").unlink()
    Path("r", file).write_text(content)
    assert invoke(["show", "r"]) == code
    (line,) = errors(capsys)
    assert line.startswith("r/")
    assert file in line
    assert not list(Path().glob("coterie-crash-*"))


def test_a_client_that_fails_is_one_line(
    config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("failing_net.py").write_text(FAILING)
    monkeypatch.setattr("sys.path", [*sys.path])
    assert invoke(["run", config, "--set", "model.name=failing_net:Net", "--out", "r"]) == 2
    (line,) = errors(capsys)
    assert "model.name: client" in line
    assert line.endswith("two lines")
    assert not list(Path().glob("coterie-crash-*"))


def test_the_default_folder_and_one_in_use(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert invoke(["run", config, "--set", "train.rounds=1"]) == 0
    assert sorted(os.listdir("runs")) == ["fedavg-digits-0-1", "fedavg-digits-0-2"]
    capsys.readouterr()
    assert invoke(["run", config, "--out", "runs/fedavg-digits-0-1"]) == 2
    assert "coterie resume runs/fedavg-digits-0-1" in errors(capsys)[0]


def test_a_data_root_is_kept_for_resume(config: str) -> None:
    assert invoke(["run", config, "--out", "r", "--data-root", "here"]) == 0
    assert f'root = "{Path.cwd() / "here"}"' in Path("r/config.toml").read_text()


def test_inspect(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["data", "inspect", config]) == 0
    text = capsys.readouterr().out
    assert "digits, iid: 6 clients, 10 classes" in text
    assert re.search(r"train +6 +1,61\d", text)
    assert "█" in text


# --- errors ---------------------------------------------------------------------------------------


def test_all_errors_of_a_configuration_at_once(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        invoke(["run", config, "--set", "local.lr=-1", "--set", "model.nam=x", "--workers", "0"])
        == 2
    )
    assert [line.split(": ")[:2] for line in errors(capsys)] == [
        [config, "model.nam"],
        [config, "local.lr"],
        [config, "engine.workers"],
    ]
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "nowhere.toml"], 2, "nowhere.toml: cannot be read"),
        (["run", "."], 2, "Is a directory"),
        (
            ["run", "c.toml", "--set", "data.source=mnist", "--set", "data.partition.clients=4"],
            3,
            "no data folder",
        ),
        (["show", "nowhere"], 2, "run: no run, got 'nowhere'"),
        (["resume", "c.toml"], 2, "run: no run"),
        (["run", "c.toml", "--out", "c.toml/x"], 2, "out: cannot be written"),
    ],
)
def test_expected_errors(
    arguments: list[str],
    code: int,
    words: str,
    config: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    assert invoke(arguments) == code
    assert any(words in line for line in errors(capsys))


def test_a_changed_configuration_is_not_resumed(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", config, "--out", "r"]) == 0
    file = Path("r/config.toml")
    file.write_text(file.read_text().replace("seed = 0", "seed = 1"))
    capsys.readouterr()
    assert invoke(["resume", "r"]) == 4
    (line,) = errors(capsys)
    assert "got other values of seed" in line


def test_a_bug_is_saved_to_a_file(
    config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a\nb")

    monkeypatch.setattr("coterie.config.load", broken)
    for number in (1, 2):
        assert invoke(["run", config]) == 70
        (line,) = errors(capsys)
        assert f"got ZeroDivisionError (a); the traceback is in coterie-crash-{number}.txt" in line
        assert "in broken" in Path(f"coterie-crash-{number}.txt").read_text()
    assert invoke(["run", config, "--debug"]) == 70
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_the_state(config: str, number: int, code: int, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "coterie.cli.main",
        "run",
        config,
        "--out",
        "r",
        "--set",
        "train.rounds=100000",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("round 1/"):
            break
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    stopped = re.search(
        r"error: stopped after (\d+) of 100000 rounds; `coterie resume r` goes on", err
    )
    assert stopped
    assert os.listdir("r/checkpoints") == [f"round-{int(stopped[1]):06d}"]


def test_an_interrupt_is_130(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("coterie.config.load", interrupted)
    assert invoke(["run", config]) == 130


# --- errors ---------------------------------------------------------------------------------------


def test_every_error_has_its_code() -> None:
    from coterie.errors import CheckpointError, ConfigError, DataError, QuorumError

    codes = [
        code_of(kind("x"))
        for kind in (ConfigError, DataError, CheckpointError, QuorumError, ValueError)
    ]
    assert codes == [2, 3, 4, 5, 70]


def test_an_unknown_command_is_told_of_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["rum"]) == 2
    (line,) = errors(capsys)
    assert line.count("Did you mean") == 1
    assert line.endswith("`coterie --help` lists them.")
