"""The files of a sweep: its tables as Markdown, CSV and LaTeX, and its runs as CSV."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.files import csv_text, escape_cell, markdown_lines, refuse_unwritable
from coterie.measures.verdict import VERDICT
from coterie.runs.published import is_private
from coterie.sweep.clients import clients_csv, clients_markdown
from coterie.sweep.comparison import Row, SweepTable
from coterie.sweep.plan import SweepPlan
from coterie.sweep.table import COSTS, TextTable, text_tables, tuning_notes, tuning_table
from coterie.sweep.tuning import TUNING

TEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    # After `\\` LaTeX would read a bracket as the space between two rows.
    "[": "{[}",
    "]": "{]}",
    '"': r"\textquotedbl{}",
}


def write_tables(table: SweepTable, plan: SweepPlan, out: Path) -> list[Path]:
    """Write the tables of a sweep; returns their paths. Two sweeps that end at the same time
    write the same files."""
    texts = {
        "table.md": comparison_markdown(table),
        "table.csv": comparison_csv(table),
        "table.tex": latex(table) + tuning_latex(table),
        "scores.csv": scores_csv(table),
        "runs.csv": runs_csv(table, plan),
    }
    if table.clients:
        texts |= {"clients.md": clients_markdown(table), "clients.csv": clients_csv(table)}
    if table.verdict is not None:
        runs = [run.id for run in plan.runs if not is_private(run.tables)]
        record = {**table.verdict.record(), "runs": runs}
        texts[VERDICT] = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    else:
        # One of an earlier comparison in the same folder is of other methods or seeds.
        (out / VERDICT).unlink(missing_ok=True)
    if table.tuning:
        found = tuning_table(table)
        record = {
            "columns": found.columns,
            "rows": found.rows,
            "note": " ".join(tuning_notes(table)),
            "definitions": COSTS,
        }
        texts[TUNING] = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    return write_files(texts, out)


def write_files(texts: Mapping[str, str], out: Path) -> list[Path]:
    """Write files of a sweep's folder, each atomically; returns their paths."""
    with refuse_unwritable(out):
        for name, text in texts.items():
            # The process's number keeps the unfinished files of two sweeps apart.
            hidden = out / f".{name}.{os.getpid()}.tmp"
            hidden.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
            hidden.replace(out / name)
    return [out / name for name in texts]


# --- Markdown and LaTeX ---------------------------------------------------------------------------


def comparison_markdown(table: SweepTable) -> str:
    """The tables as Markdown, without those that have no rows."""
    return "\n".join(_markdown(one) for one in text_tables(table))


def _markdown(one: TextTable) -> str:
    lines = markdown_lines(one.columns, one.rows, _alignment(one.columns, one.texts))
    return "\n".join([*lines, "", *map(escape_cell, one.notes)]) + "\n"


def _alignment(names: Sequence[str], texts: int) -> str:
    """Texts are set left, and the numbers after them right."""
    return "l" * texts + "r" * (len(names) - texts)


def latex(table: SweepTable) -> str:
    """The first table as LaTeX, for the package ``booktabs``: ``mean ± sd`` and the difference with
    its interval in a cell each, the best mean in bold."""
    first = text_tables(table)[0]
    value = first.texts + 1  # the column of the mean, before sd, difference and interval
    names = list(first.columns)
    names[value : value + 4] = [f"{names[value]} ± sd", f"{names[value + 2]} ± 95 %"]
    bold = _best_mean(table)
    rows = []
    for row in first.rows:
        mean, sd, difference, half = row[value : value + 4]
        cells = [_with_deviation(mean, sd), _with_deviation(difference, half)]
        escaped = [escape_latex(text) for text in (*row[:value], *cells, *row[value + 4 :])]
        if mean == bold:
            escaped[value] = rf"\textbf{{{escaped[value]}}}"
        rows.append(" & ".join(escaped) + r" \\")
    said = ["needs \\usepackage{booktabs}", "bold: the best mean", *first.notes]
    return _tabular(names, rows, first.texts, said)


def tuning_latex(table: SweepTable) -> str:
    """The table of trials as LaTeX, below an empty line; nothing without ``--tune``."""
    if not table.tuning:
        return ""
    found = tuning_table(table)
    rows = [" & ".join(map(escape_latex, row)) + r" \\" for row in found.rows]
    return "\n" + _tabular(found.columns, rows, found.texts, found.notes)


def _tabular(names: Sequence[str], rows: Sequence[str], texts: int, said: Sequence[str]) -> str:
    lines = [
        *(f"% {note}" for note in said),
        rf"\begin{{tabular}}{{{_alignment(names, texts)}}}",
        r"\toprule",
        " & ".join(escape_latex(name) for name in names) + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _best_mean(table: SweepTable) -> str:
    """The best mean of several rows as it is written; empty where there is nothing to compare."""
    known = [row.mean for row in table.rows if row.mean is not None]
    if len(known) < 2:
        return ""
    return table.headline.digits(table.headline.best(known))


def _with_deviation(value: str, deviation: str) -> str:
    """``value ± deviation``, where there is one."""
    return value if deviation == "-" else f"{value} ± {deviation}"


def escape_latex(text: str) -> str:
    """Text for a cell of a LaTeX table; a sign before a number is set as mathematics."""
    # Letter by letter, so that what one replacement puts in is not replaced again.
    safe = "".join(TEX.get(letter, letter) for letter in text)
    return re.sub(r"(?<![^ ])([+-])(?=\d)", r"$\1$", safe)


# --- CSV ------------------------------------------------------------------------------------------
# Empty cells, not dashes, where nothing is known: a column stays one of numbers.


def comparison_csv(table: SweepTable) -> str:
    """The first table as CSV: fractions, bytes and seconds as numbers."""
    return _csv([_record(row, table) for row in table.rows])


def _record(row: Row, table: SweepTable) -> dict[str, Any]:
    found: dict[str, Any] = {
        "algorithm": row.algorithm,
        **dict(zip(table.keys, row.values, strict=True)),
        "runs": row.done,
        table.headline.name: row.mean,
        "sd": row.sd,
        **dict.fromkeys(("difference", "low", "high", "pairs")),
    }
    paired = row.difference
    if paired is not None:
        found |= {"difference": paired.mean, "pairs": paired.pairs}
    if paired is not None and paired.half is not None:
        # Both ends, not half the width: a plot needs no arithmetic.
        found |= {"low": paired.mean - paired.half, "high": paired.mean + paired.half}
    if table.tuning:
        tuned = table.tuning.get(row.algorithm)
        found |= {
            "trials": tuned and tuned.trials,
            "validation": tuned and tuned.value,
            "trials_seconds": tuned and tuned.seconds,
            "trials_steps": tuned and tuned.steps,
            "steps": row.steps,
        }
    seconds = {"seconds": row.seconds, "start_up": row.start_up}
    if table.target is None:
        return {**found, "bytes": row.bytes, **seconds}
    reached = {"target": table.target, "reached": row.reached, "rounds_to_target": row.rounds}
    return {**found, **reached, "bytes_to_target": row.bytes, **seconds}


def runs_csv(table: SweepTable, plan: SweepPlan) -> str:
    """Every run as a line of CSV, with the name of its folder; a number of a private run."""
    records = []
    # All of the plan, also those that are not done: a table with holes says that it has them.
    for number, run in enumerate(plan.runs, 1):
        one = table.measured.get(run.id)
        # The id follows from the configuration, its seed included, which would be found by trying.
        private = is_private(run.tables)
        found: dict[str, Any] = {
            "run": number if private else run.id,
            "algorithm": run.algorithm,
            "seed": None if private else run.seed,
            **dict(run.point),
            "done": int(one is not None),
            table.headline.name: one and one.value,
        }
        if table.target is None:
            found["bytes"] = one and one.bytes
        else:
            found |= {"rounds_to_target": one and one.rounds, "bytes_to_target": one and one.bytes}
        seconds = {"seconds": one and one.seconds, "start_up": one and one.start_up}
        records.append({**found, **seconds})
    return _csv(records)


def scores_csv(table: SweepTable) -> str:
    """The second table as CSV, fractions as numbers."""
    head = ["algorithm", *table.keys, "scored"]
    head += [table.headline.name, "mean", "worst_tenth", "spread", "jain"]
    rows = [
        [
            row.algorithm,
            *row.values,
            one.way.name,
            *(one.value, one.mean, one.worst_tenth, one.spread, one.jain),
        ]
        for row in table.rows
        for one in row.scores
    ]
    return csv_text(head, rows, end="\n")


def _csv(records: Sequence[Mapping[str, Any]]) -> str:
    rows = [list(record.values()) for record in records]
    return csv_text(list(records[0]), rows, end="\n")
