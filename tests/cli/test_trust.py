"""A stranger's run folder runs nothing before the user trusts the code that it names."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from coterie.cli.main import invoke
from coterie.errors import ConfigError
from coterie.runs.folder.store import RunFolder
from tests.cli.conftest import errors
from tests.refusals import refuses

EVIL = """
from pathlib import Path
Path({mark!r}).write_text("the stranger's code ran")

from coterie import fedavg as algorithm
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(64, 10)
    def forward(self, x):
        return self.line(x.flatten(1))
"""
COMMANDS = (
    ["resume", "s"],
    ["export", "s", "--out", "e"],
    ["report", "s", "--out", "page.html"],
    ["plot", "s", "--chart", "accuracy", "--out", "chart.svg"],
)


@pytest.fixture
def fresh_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has trusted nothing yet, in a process that has imported nothing of this test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "evil_code", raising=False)


def strange(kind: str, name: str, **options: str) -> RunFolder:
    """The finished run ``r`` as a stranger hands it over, with another algorithm or network."""
    ours = RunFolder.open("r")
    checkpoint = ours.checkpoints.latest()
    assert checkpoint is not None
    tables = ours.resolved
    tables[kind] = {"name": name, **options}
    tables["folder"] = os.path.abspath("s")
    folder = RunFolder.create(
        "s", tables, {"partition.npz": (ours.path / "partition.npz").read_bytes()}
    )
    (folder.path / "evil_code.py").write_text(EVIL.format(mark=os.path.abspath("mark")))
    for row in ours.rows():
        folder.append_round(row)
    folder.checkpoints.save(checkpoint)
    return folder


@pytest.mark.usefixtures("fresh_user")
@pytest.mark.parametrize(
    ("kind", "name"), [("algorithm", "evil_code:algorithm"), ("model", "evil_code:Net")]
)
def test_code_of_a_strangers_folder_is_named_and_not_run(
    kind: str, name: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", config, "--out", "r"]) == 0
    strange(kind, name)
    capsys.readouterr()
    for words in COMMANDS:
        assert invoke(words) == 2
        (line,) = errors(capsys)
        assert line.startswith(
            f"s: its configuration runs code that is not part of Coterie ({kind}."
        )
        assert f"'{name}' in " in line
        assert "s/evil_code.py)" in line
        assert "add --trust" in line
        assert not Path("mark").exists()
    # These two run no code at all.
    for words in (["show", "s"], ["watch", "s", "--once"]):
        assert invoke(words) == 0
        assert not Path("mark").exists()
    assert invoke([*COMMANDS[1], "--trust"]) == 0
    assert Path("mark").exists()


@pytest.mark.usefixtures("fresh_user")
def test_trust_is_remembered_for_this_code_and_this_folder(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", config, "--out", "r"]) == 0
    folder = strange("model", "evil_code:Net")
    assert invoke([*COMMANDS[1], "--trust"]) == 0
    assert invoke(COMMANDS[1]) == 0
    os.rename("s", "moved")
    capsys.readouterr()
    assert invoke(["export", "moved"]) == 2
    os.rename("moved", "s")
    assert invoke(COMMANDS[1]) == 0
    with (folder.path / "evil_code.py").open("a") as file:
        file.write("\nprint('more')\n")
    assert invoke(COMMANDS[1]) == 2
    assert not [path for path in folder.path.iterdir() if "trust" in path.name]


@pytest.mark.usefixtures("fresh_user")
def test_a_helper_that_changes_after_it_was_trusted_is_refused(
    config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert invoke(["run", config, "--out", "r"]) == 0
    folder = strange("model", "evil_code:Net")
    code = folder.path / "evil_code.py"
    code.write_text("import evil_helper\n" + code.read_text())
    helper = folder.path / "evil_helper.py"
    helper.write_text("")
    for name in ("evil_code", "evil_helper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert invoke([*COMMANDS[1], "--trust"]) == 0
    assert invoke(COMMANDS[1]) == 0
    helper.write_text("print('another helper')\n")
    capsys.readouterr()
    assert invoke(COMMANDS[1]) == 2
    (line,) = errors(capsys)
    assert "s/evil_helper.py" in line
    assert "add --trust" in line


@pytest.mark.usefixtures("fresh_user")
def test_os_system_is_a_name_like_any_other(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", config, "--out", "r"]) == 0
    strange("algorithm", "os:system", command="touch mark")
    capsys.readouterr()
    for words in COMMANDS:
        assert invoke(words) == 2
        assert "algorithm.name = 'os:system' in " in errors(capsys)[0]
        assert not Path("mark").exists()


@pytest.mark.usefixtures("fresh_user")
def test_a_ray_cluster_of_a_stranger_is_code_too(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", config, "--out", "r"]) == 0
    file = Path("r/config.toml")
    text = file.read_text().replace('name = "serial"', 'name = "ray"\naddress = "evil:6379"')
    file.write_text(text)
    capsys.readouterr()
    assert invoke(["resume", "r"]) == 2
    assert "engine.address = 'evil:6379'" in errors(capsys)[-1]


@pytest.mark.usefixtures("fresh_user")
def test_a_folder_of_ones_own_configuration_is_trusted(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = str(tmp_path / "mark")
    Path("evil_code.py").write_text(EVIL.format(mark=mark))
    assert invoke(["run", config, "--set", "model.name=evil_code:Net", "--out", "r"]) == 0
    assert invoke(["resume", "r"]) == 0
    assert invoke(["report", "r"]) == 0
    assert invoke(["export", "r"]) == 0


@pytest.mark.usefixtures("fresh_user")
def test_ones_own_code_that_has_changed_is_named(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = tmp_path / "evil_code.py"
    code.write_text(EVIL.format(mark=str(tmp_path / "mark")))
    assert invoke(["run", config, "--set", "model.name=evil_code:Net", "--out", "r"]) == 0
    before = code.read_text()
    code.write_text(f"{before}# changed\n")
    for words in (["resume", "r"], ["report", "r"], ["export", "r"]):
        capsys.readouterr()
        assert invoke(words) == 2
        with refuses(ConfigError, "differs", "r") as caught:
            RunFolder.open("r").config()
        assert caught.value.problems[0].got == str(code)
    # Restored, all is as it was.
    code.write_text(before)
    assert invoke(["report", "r"]) == 0
    code.write_text(f"{before}# changed\n")
    assert invoke(["resume", "r", "--rounds", "4", "--trust"]) == 0
    # From then on, its rounds are those of no single code.
    code.write_text(before)
    capsys.readouterr()
    assert invoke(["report", "r"]) == 0
    assert str(code) in capsys.readouterr().err
