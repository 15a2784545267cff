"""Start-up is measured apart from the rounds in which it happens."""

from __future__ import annotations

import ast
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import coterie
from coterie.algorithms.fedavg import fedavg
from coterie.core.groups import Groups
from coterie.core.startup import start_up_seconds, starting_up, work_clock
from tests.simulations import play

# Packages whose functions run inside rounds, and libraries that are slow to import.
IN_ROUNDS = (
    *("algorithms", "clients", "core", "engines", "local", "math", "measures", "methods"),
    *("objectives", "privacy", "rules", "runs", "tasks"),
)
SLOW = ("scipy", "sklearn", "numba", "networkx")


class Clock:
    """Time that passes only when it is told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(time, "perf_counter", made)
    return made


def test_the_clock_of_work_stands_still_and_overlaps_count_once(clock: Clock) -> None:
    begun, before = work_clock(), start_up_seconds()
    clock.now += 1
    with starting_up():
        clock.now += 2
        with starting_up():
            clock.now += 4
        assert work_clock() - begun == 1
        assert start_up_seconds() - before == 6
    clock.now += 8
    assert work_clock() - begun == 9
    assert start_up_seconds() - before == 6


def test_start_up_of_two_threads_at_once_counts_once(clock: Clock) -> None:
    before = start_up_seconds()
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with starting_up():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with starting_up():
        clock.now += 1
        thread.start()
        assert entered.wait(10)
        clock.now += 2
    clock.now += 4
    leave.set()
    thread.join()
    assert start_up_seconds() - before == 7


def test_a_row_has_start_up_apart_from_grouping_and_from_the_total(clock: Clock) -> None:
    method = fedavg()

    def assign(groups: Groups, round: Any) -> Any:
        clock.now += 1
        if not round.number:
            with starting_up():
                clock.now += 32
        return method.assign(groups, round)

    rows = [result.row for result in play(replace(method, assign=assign), rounds=2)]
    first, second = (row["seconds"] for row in rows)
    assert (first["start_up"], first["grouping"], first["total"]) == (32, 1, 1)
    assert (second["start_up"], second["grouping"], second["total"]) == (0, 1, 1)


def test_slow_libraries_that_rounds_import_late_count_as_start_up() -> None:
    found = [f"{file.name}:{node.lineno}" for file in sources() for node in not_counted(file)]
    assert not found


def sources() -> list[Path]:
    root = Path(coterie.__file__).parent
    return [file for package in IN_ROUNDS for file in sorted((root / package).rglob("*.py"))]


def not_counted(file: Path) -> list[ast.stmt]:
    """Imports of slow libraries in functions that are not inside ``starting_up``."""
    found: list[ast.stmt] = []

    def visit(node: ast.AST, late: bool) -> None:
        if isinstance(node, ast.With) and "starting_up" in ast.dump(node.items[0]):
            return
        late = late or isinstance(node, ast.FunctionDef)
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        if late and any(name.partition(".")[0] in SLOW for name in names):
            assert isinstance(node, ast.stmt)
            found.append(node)
        for child in ast.iter_child_nodes(node):
            visit(child, late)

    visit(ast.parse(file.read_text(encoding="utf-8")), late=False)
    return found
