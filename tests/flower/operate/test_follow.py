"""Following a run that goes on elsewhere, from its log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coterie.config.toml_text import read
from coterie.errors import CoterieError, RemoteError
from coterie.experiment import check
from coterie.runs.folder.store import RunFolder
from tests.flower.conftest import CONFIG
from tests.refusals import refuses


def followed(
    lines: list[str],
    status: str | Callable[[Path, int], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    out: Path | None = None,
) -> tuple[dict[str, Any], list[int]]:
    """Follow a run whose log holds these lines; returns the summary and the rounds reported."""
    from coterie.flower.operate import submit

    (tmp_path / "log").write_text("".join(f"{line}\n" for line in lines))
    script = tmp_path / "flwr"
    script.write_text(f"#!/bin/sh\ncat {tmp_path / 'log'}\n")
    script.chmod(0o755)
    (tmp_path / "c.toml").write_text(CONFIG)
    monkeypatch.setattr(submit, "find_command", lambda name: str(script))
    monkeypatch.setattr(
        submit, "run_status", status if callable(status) else lambda home, number: status
    )
    rounds: list[int] = []
    config = check(read(tmp_path / "c.toml"))
    summary = submit.follow(tmp_path, config, 7, lambda row: rounds.append(row["round"]), out)
    return summary, rounds


def event(number: int, what: str, value: Any) -> str:
    return "INFO :  @coterie " + json.dumps({"number": number, what: value})


START = event(0, "start", {"folder": "/runs/a", "round": 0, "rounds": 2, "parameters": 650})


def test_a_run_is_shown_from_its_log_each_line_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        event(1 + t, "round", {"round": t, "accuracy": 0.5, "sizes": [3], "skipped": False})
        for t in range(2)
    ]
    lines = [
        "WARNING: something",
        START,
        rows[0],
        rows[0],
        "@coterie {torn",
        rows[1],
        event(3, "done", {"rounds": 2}),
    ]
    summary, rounds = followed(lines, "finished:completed", tmp_path, monkeypatch)
    assert (summary, rounds) == ({"rounds": 2}, [0, 1])
    assert "2 rounds, in /runs/a" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [
        ([START, event(1, "error", {"code": 5, "message": "quorum: few"})], 5, "quorum: few"),
        ([START, event(1, "error", {"code": 4, "message": "damaged"})], 4, "damaged"),
        ([START, event(1, "error", {"code": 70, "message": "odd"})], 7, "odd"),
        ([START, "ERROR: killed"], 7, "ERROR: killed"),
        # After the last round, too, where only the results are missing.
        ([START, "Installed d"], 7, "--resume"),
        ([], 7, "run 7"),
    ],
)
def test_a_run_that_failed_elsewhere_has_its_exit_code(
    lines: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It also has the words of the other machine, and says what to do."""
    with pytest.raises(CoterieError) as caught:
        followed(lines, "finished:failed", tmp_path, monkeypatch)
    assert caught.value.code == code
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("finished:failed", "failed without an error message, as after a restart of the server"),
        ("finished:stopped", "stopped"),
        ("", "no status"),
    ],
)
def test_a_run_that_ended_without_a_word_is_described_in_plain_english(
    status: str, said: str, tmp_path: Path
) -> None:
    from coterie.flower.operate import submit

    assert submit.Events(tmp_path, 7, status=status).how() == said


def test_a_complete_run_whose_last_lines_were_lost_is_not_said_to_have_been_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refuses(RemoteError, "failed", "run 7") as caught:
        followed([START, "Installed d"], "finished:completed", tmp_path, monkeypatch)
    assert "complete, but" in str(caught.value)
    assert "killed" not in str(caught.value)


def test_a_complete_run_whose_last_lines_were_lost_has_its_summary_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.toml").write_text(CONFIG)
    config = check(read(tmp_path / "c.toml"))
    run = RunFolder.create(tmp_path / "run", config.resolved())
    run.results.write_summary({"rounds": 3})
    summary, _ = followed([START], "finished:completed", tmp_path, monkeypatch, run.path)
    assert summary == {"rounds": 3}
    # One of an earlier end says nothing of a run that failed now.
    with refuses(RemoteError, "failed", "run 7"):
        followed([START], "finished:failed", tmp_path, monkeypatch, run.path)


def test_a_server_that_falls_silent_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Flower's command prints a line of its own each time, which is no sign of life."""
    from coterie.flower.operate import submit

    def silent(home: Path, number: int) -> str:
        raise RemoteError("unreachable", "flwr list", "no answer")

    monkeypatch.setattr(submit, "UNREACHABLE", 0.5)
    monkeypatch.setattr(submit, "QUIET", 0.2)
    monkeypatch.setattr(submit, "PAUSE", 0.1)
    with refuses(RemoteError, "unreachable", "flwr list"):
        followed(["Using SuperLink: coterie", START], silent, tmp_path, monkeypatch)
    # Said once, and not at every look.
    said = capsys.readouterr().out
    assert said.count("the SuperLink is not responding; retrying") == 1
    # A restart is what makes a server silent, and it ends the run.
    assert "--resume" in said


def test_a_server_that_is_slow_to_answer_is_not_given_up(tmp_path: Path) -> None:
    from coterie.flower.operate import submit

    events = submit.Events(tmp_path, 1)
    asked = []

    def slow(home: Path, number: int) -> str:
        asked.append(number)
        if len(asked) < 3:
            raise RemoteError("flwr list: no answer in 60 s")
        return "running"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submit, "run_status", slow)
        # As if the first command alone had taken two minutes.
        events.heard -= 120.0
        for _ in range(3):
            events._ask_status()
    assert events.status == "running"
    assert events.unanswered == 0
