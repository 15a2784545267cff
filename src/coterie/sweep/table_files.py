"""The files of a sweep: its table as Markdown, CSV and LaTeX, and its runs as CSV."""

from __future__ import annotations

import os
from pathlib import Path

from coterie.files import csv_text, refuse_unwritable
from coterie.sweep.comparison import Row, SweepTable
from coterie.sweep.measured import Figure, measure
from coterie.sweep.plan import SweepPlan, SweepRun
from coterie.sweep.run_once import is_done
from coterie.sweep.scores_table import scores_csv, scores_markdown
from coterie.sweep.table import comparison_markdown, latex

Value = str | float | None


def comparison_csv(table: SweepTable) -> str:
    """The table as CSV: fractions, bytes and seconds as numbers, empty where nothing is known."""
    head = ["algorithm", *table.keys]
    head += ["runs", table.headline.name, "sd", "difference", "low", "high", "pairs"]
    if table.target is None:
        head.append("bytes")
    else:
        head += ["target", "reached", "rounds_to_target", "bytes_to_target"]
    rows = [_csv_row(row, table.target) for row in table.rows]
    return csv_text([*head, "seconds"], rows, end="\n")


def _csv_row(row: Row, target: float | None) -> list[Value]:
    # Empty cells, not dashes, where nothing is known: a column stays one of numbers.
    values: list[Value] = [row.algorithm, *row.values, row.done, row.mean, row.sd]
    values += _difference_values(row)
    if target is not None:
        values += [target, row.reached, row.rounds]
    return [*values, row.bytes, row.seconds]


def _difference_values(row: Row) -> list[Value]:
    found = row.difference
    if found is None:
        return [None, None, None, None]
    if found.half is None:
        return [found.mean, None, None, found.pairs]
    # Both ends, not half the width: a plot needs no arithmetic.
    return [found.mean, found.mean - found.half, found.mean + found.half, found.pairs]


def runs_csv(
    plan: SweepPlan,
    out: Path,
    target: float | None = None,
    figure: Figure = "last10_mean",
    column: str = "accuracy",
) -> str:
    """Every run as a line of CSV, with the name of its folder."""
    head = ["run", "algorithm", "seed", *plan.keys, "done", column]
    if target is None:
        head.append("bytes")
    else:
        head += ["rounds_to_target", "bytes_to_target"]
    rows = []
    # All of the plan, also those that are not done: a table with holes says that it has them.
    for run in plan.runs:
        values = [value for _, value in run.point]
        figures = _run_figures(run, out, target, figure)
        rows.append([run.id, run.algorithm, run.seed, *values, *figures])
    return csv_text([*head, "seconds"], rows, end="\n")


def _run_figures(run: SweepRun, out: Path, target: float | None, figure: Figure) -> list[Value]:
    rounds: list[Value] = []
    if not is_done(run, out):
        if target is not None:
            rounds = [None]
        return [0, None, *rounds, None, None]
    found = measure(out / run.id, target, figure)
    if target is not None:
        rounds = [found.rounds]
    return [1, found.value, *rounds, found.bytes, found.seconds]


def write_tables(table: SweepTable, plan: SweepPlan, out: Path) -> list[Path]:
    """Write ``table.md``, ``table.csv``, ``table.tex``, ``scores.csv`` and ``runs.csv``; returns their
    paths.

    Each file appears in one step: two sweeps that end at the same time write the same files.
    """
    texts = {
        "table.md": comparison_markdown(table) + scores_markdown(table),
        "table.csv": comparison_csv(table),
        "table.tex": latex(table),
        "scores.csv": scores_csv(table),
        "runs.csv": runs_csv(plan, out, table.target, table.figure, table.headline.name),
    }
    with refuse_unwritable(out):
        for name, text in texts.items():
            # The process's number keeps the unfinished files of two sweeps apart.
            hidden = out / f".{name}.{os.getpid()}.tmp"
            hidden.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
            hidden.replace(out / name)
    return [out / name for name in texts]
