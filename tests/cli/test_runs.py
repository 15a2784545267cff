"""Commands on one run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from coterie.cli.main import invoke
from tests.cli.conftest import errors

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
    assert invoke(["show", "r"]) == 4
    (line,) = errors(capsys)
    assert line.startswith("r/summary.json: missing")
    assert line.endswith("run `coterie resume r` to write it again")


def test_a_default_that_six_clients_do_not_allow_is_lowered_and_said(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", config, "--set", "train.rounds=1", "--set", "algorithm.name=fedgroup"]
    assert invoke([*arguments, "--out", "lowered"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line == (
        "algorithm.alpha is 2 instead of the default 20, because there are too few clients for a "
        "cold start with 20 clients per group"
    )
    assert "alpha = 2\n" in Path("lowered/config.toml").read_text()
    # IFCA begins with random models unless it is told to have a cold start.
    ifca = [*arguments, "--set", "algorithm.name=ifca"]
    assert invoke([*ifca, "--out", "random"]) == 0
    assert "by default" not in capsys.readouterr().out
    assert invoke([*ifca, "--set", "algorithm.init=cold_start", "--out", "cold"]) == 0
    assert "algorithm.alpha is 2" in capsys.readouterr().out
    assert invoke([*arguments, "--set", "algorithm.alpha=2", "--out", "set"]) == 0
    assert "by default" not in capsys.readouterr().out
    rows = [Path(run, "config.toml").read_text() for run in ("lowered", "set")]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    ("file", "content", "code"),
    [
        ("config.toml", "seed = = 1", 2),
        ("config.toml", "seed = 1", 4),
        ("summary.json", '{"accuracy": ', 4),
        ("summary.json", "{}", 4),
        ("summary.json", "[1]", 4),
        ("rounds.jsonl", '{"round": 0, "accuracy": "x"}\n', 4),
        ("partition.npz", "", 4),
        ("digests.json", "{}", 4),
    ],
)
def test_showing_a_damaged_run_is_one_line(
    file: str, content: str, code: int, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", config, "--set", "train.rounds=1", "--out", "r"]) == 0
    assert "1 round, in r" in capsys.readouterr().out
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
    assert "client 0: training failed in round 0: " in line
    assert line.endswith("two lines (RuntimeError in failing_net.py, line 10)")
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


def test_a_changed_configuration_is_not_resumed(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", config, "--out", "r"]) == 0
    file = Path("r/config.toml")
    file.write_text(file.read_text().replace("seed = 0", "seed = 1"))
    capsys.readouterr()
    assert invoke(["resume", "r"]) == 4
    (line,) = errors(capsys)
    assert "other values of seed" in line
