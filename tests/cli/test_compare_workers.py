"""How `coterie compare` divides the cores among runs side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.cli.compare import SweepOptions, planned
from coterie.cli.options import MachineOptions


@pytest.mark.parametrize(
    ("jobs", "threads", "named", "workers"),
    [(1, 1, None, None), (2, 1, None, 8), (2, 4, None, 2), (16, 4, None, 1), (2, 4, 3, 3)],
)
def test_cores_are_divided_by_jobs_and_by_threads(
    config: str,
    monkeypatch: pytest.MonkeyPatch,
    jobs: int,
    threads: int,
    named: int | None,
    workers: int | None,
) -> None:
    monkeypatch.setattr("coterie.sweep.runner.cores", lambda: 16)
    options = SweepOptions(assignments=["engine.name=pool", f"engine.threads={threads}"])
    plan = planned(Path(config), options, MachineOptions(workers=named), jobs)
    assert [run.tables["engine"].get("workers") for run in plan.runs] == [workers]
