"""The course of the benchmark over commits, and whether a change is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import history
from benchmarks.compare import changes, slower


def made(ratio: float, commit: str = "abc1234", model: str = "mlp") -> dict[str, Any]:
    figures = {model: {"ratio": ratio, "coterie": 0.1, "processor": 0.2}}
    return history.record(figures, history.machine()) | {"commit": commit, "date": "2026-11-24"}


def test_records_are_kept_beside_each_other_and_shown_line_by_line(tmp_path: Path) -> None:
    for ratio in (8.0, 8.5):
        history.keep(made(ratio), tmp_path)
    history.keep(made(3.1, "def5678", "lenet5"), tmp_path)
    kept = history.records(tmp_path)
    assert [one["commit"] for one in kept] == ["abc1234", "abc1234", "def5678"]
    lines = history.page(kept).splitlines()[-5:]
    assert lines[0].endswith("| mlp | lenet5 |")
    assert lines[2].endswith("| 8.0 |  |")
    assert lines[4].endswith("|  | 3.1 |")


def test_the_committed_page_is_that_of_the_records() -> None:
    assert history.PAGE.read_text(encoding="utf-8") == history.page(history.records())


@pytest.mark.parametrize(
    ("times", "busy", "seen"),
    [((1.06, 1.07, 1.2), (1.06, 1.1, 1.06), True), ((1.3, 1.2, 1.3), (1.0, 1.01, 0.99), False)],
)
def test_a_change_of_six_percent_is_seen_and_other_programs_are_not(
    times: tuple[float, ...], busy: tuple[float, ...], seen: bool
) -> None:
    base = {"mlp": {"coterie": 2.0, "processor": 4.0}}
    pairs = [
        (base, {"mlp": {"coterie": 2 * t, "processor": 4 * b}})
        for t, b in zip(times, busy, strict=True)
    ]
    assert slower(changes(pairs, "mlp"), 5.0) is seen
