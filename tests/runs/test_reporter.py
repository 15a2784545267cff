"""What a run prints while it goes on."""

from __future__ import annotations

from io import StringIO

import pytest

from coterie.runs.reporter import Reporter


def test_progress_is_about_twenty_lines_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Reporter(300) as reporter:
        for t in range(300):
            reporter({"round": t, "accuracy": 0.5, "sizes": [3, 4]})
    printed = capsys.readouterr().out.splitlines()
    assert 18 <= len(printed) <= 24
    assert printed[-1].startswith("round 300/300: accuracy 50.0 %, groups 3 + 4, 0.0 s left")


def lines_of(rounds: int, seconds: list[float]) -> list[str]:
    """The lines of a run of one model whose rounds take so long."""
    out = StringIO()
    with Reporter(rounds, file=out) as reporter:
        for done, total in enumerate(seconds):
            row = {"round": done, "accuracy": 0.5, "sizes": [1000], "seconds": {"total": total}}
            reporter(row)
    begun, *lines = out.getvalue().splitlines()
    assert begun.startswith(f"round 1/{rounds}: ")
    return lines


def test_a_run_says_that_its_first_round_has_begun() -> None:
    out = StringIO()
    with Reporter(20, start=4, file=out):
        assert out.getvalue().startswith("round 5/20: ")
    finished = StringIO()
    with Reporter(20, start=20, file=finished):
        assert not finished.getvalue()


def test_the_first_round_does_not_count_for_the_time_left() -> None:
    lines = lines_of(20, [60.0, 1.0, 1.0])
    assert [line.rsplit(", ", 1)[1] for line in lines[1:]] == ["18.0 s left", "17.0 s left"]
    assert "left" not in lines[0]


def test_the_only_round_leaves_no_time() -> None:
    assert lines_of(1, [60.0])[0].endswith("0.0 s left")


def test_one_model_is_not_shown_as_a_number_of_groups() -> None:
    (line,) = lines_of(20, [60.0])
    assert line == "round 1/20: accuracy 50.0 %, one model"


def test_the_terminal_says_that_grouping_will_not_help() -> None:
    line = "one group found: all clients share one model"
    out = StringIO()
    with Reporter(5, file=out) as reporter:
        reporter({"round": 0, "sizes": [4], "notes": {"groups_found": 1, "grouping": line}})
    assert out.getvalue().splitlines()[1] == f"round 1/5: {line}"
