"""How a command fails: its exit code, and one line for each mistake."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coterie.cli.main import invoke
from coterie.crashes import exit_code
from coterie.terminal import warn
from tests.cli.conftest import errors


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


def test_what_a_message_quotes_moves_no_cursor(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["show", "r\x1b[2J\u202e"]) == 2
    warn("a\x1b[2J")
    seen = capsys.readouterr().err
    assert "\x1b" not in seen
    assert "\u202e" not in seen
    assert seen.endswith("warning: a\\x1b[2J\n")


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
        (["run", "nowhere.toml"], 2, "nowhere.toml: there is no such file"),
        (["run", "."], 2, "Is a directory"),
        (
            ["run", "c.toml", "--set", "data.source=mnist", "--set", "data.partition.clients=4"],
            3,
            "no data folder",
        ),
        (["show", "nowhere"], 2, "run: not a run folder, got 'nowhere'"),
        (["resume", "c.toml"], 2, "run: not a run folder"),
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


def test_a_bug_is_saved_to_a_file(
    config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # No function of a test: it would be code of the user's.
    monkeypatch.setattr("coterie.experiment.load_config", int)
    for number in (1, 2):
        assert invoke(["run", config]) == 70
        (line,) = errors(capsys)
        assert "got TypeError" in line
        assert f"the traceback is in coterie-crash-{number}.txt" in line
        assert "TypeError" in Path(f"coterie-crash-{number}.txt").read_text()
    assert invoke(["run", config, "--debug"]) == 70
    assert "Traceback" in capsys.readouterr().err


THEIR_RULE = """
import coterie as ct

def mine():
    def assign(groups, round):
        return round.cohort.no_such_thing

    return ct.Method(assign=assign)
"""


def test_a_mistake_in_the_users_own_code_is_told_as_such(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    (tmp_path / "their_rule.py").write_text(THEIR_RULE)
    assert invoke(["run", config, "--set", "algorithm.name=their_rule:mine"]) == 2
    (line,) = errors(capsys)
    assert f"{tmp_path / 'their_rule.py'}, line 6, in assign: your code failed" in line
    assert "report" not in line
    assert "no_such_thing" in Path("coterie-crash-1.txt").read_text()


def test_every_error_has_its_code() -> None:
    from coterie.errors import CheckpointError, ConfigError, DataError, QuorumError

    codes = [
        exit_code(kind("x"))
        for kind in (ConfigError, DataError, CheckpointError, QuorumError, ValueError)
    ]
    assert codes == [2, 3, 4, 5, 70]


def test_an_unknown_command_has_one_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["rum"]) == 2
    (line,) = errors(capsys)
    assert line.count("Did you mean") == 1
    assert line.endswith("`coterie --help` lists them.")
