"""The table of a sweep: means over seeds, paired differences to a baseline, what it took to reach a
target."""

from __future__ import annotations

import csv
import math
import os
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any, Literal

from scipy import stats

from coterie.config.problems import Problem
from coterie.config.wording import describe, nearest
from coterie.errors import ConfigError
from coterie.measures.costs import rounds_to_target
from coterie.runs.files import damaged
from coterie.runs.store import RunFolder
from coterie.runs.summary import covered
from coterie.sweep.plan import Plan, Run
from coterie.sweep.runner import is_done
from coterie.terminal import amount, printable

CONFIDENCE = 0.95
Figure = Literal["last10_mean", "max", "final"]
FIGURES = {
    "last10_mean": "mean of the last ten evaluated rounds",
    "max": "best round",
    "final": "last evaluated round",
}
TEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{
        "±": r"$\pm$",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "[": "{[}",
        "]": "{]}",
        '"': r"\textquotedbl{}",
    },
}


@dataclass(frozen=True, slots=True)
class Measured:
    """What the table wants of one run.

    Args:
        accuracy: the figure compared, a fraction; ``None`` for a run in which nothing was
            evaluated.
        rounds: rounds to the target; ``None`` where it was not reached, or none was asked for.
        bytes: bytes down and up to the target, or of the whole run where none was asked for.
        seconds: of all rounds.
        scored: clients with a group at the end.
    """

    accuracy: float | None
    rounds: int | None
    bytes: int | None
    seconds: float
    scored: int | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of paired differences, and its confidence interval, ``None`` where there is but one
    pair.

    Args:
        mean: of ``a_i - b_i``.
        half: half the width of the interval, ``t_{0.975, n-1} s / sqrt(n)``.
        pairs: ``n``.
    """

    mean: float
    half: float | None
    pairs: int


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: an algorithm at a point of the grid, over all seeds.

    Args:
        algorithm: its name.
        values: of the grid, ``-`` for a key that is none of this algorithm's.
        done: runs that are there.
        planned: runs that should be.
        mean: accuracy, a fraction.
        sd: its standard deviation (``n - 1``).
        difference: to the baseline; ``None`` for the baseline itself.
        reached: runs that reached the target.
        rounds: mean over those.
        bytes: mean over those.
        seconds: mean over the runs.
        scored: clients that the accuracy counts, those with a group at the end, mean over the runs.
    """

    algorithm: str
    values: tuple[str, ...]
    done: int
    planned: int
    mean: float | None
    sd: float | None
    difference: Difference | None
    reached: int
    rounds: float | None
    bytes: float | None
    seconds: float | None
    scored: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The table of a sweep.

    Args:
        keys: of the grid.
        seeds: compared.
        baseline: the algorithm that others are compared with.
        target: an accuracy, or none.
        figure: which accuracy is compared.
        rows: in the order of the plan.
    """

    keys: tuple[str, ...]
    seeds: tuple[int, ...]
    baseline: str
    target: float | None
    figure: Figure
    rows: tuple[Row, ...]


def check_choices(plan: Plan, baseline: str | None, figure: str) -> str:
    """The baseline, by default the first algorithm.

    Raises:
        ConfigError: if it is none of the algorithms, or if there is no such figure.
    """
    for path, got, known in (
        ("--baseline", baseline, plan.algorithms),
        ("--figure", figure, tuple(FIGURES)),
    ):
        if got is not None and got not in known:
            raise ConfigError(
                Problem(
                    path, "unknown choice", got, describe(Literal[known]), nearest(got, known)
                ).line()
            )
    return baseline or plan.algorithms[0]


# --- from runs to rows ----------------------------------------------------------------------------


def tabulate(
    plan: Plan,
    out: Path,
    baseline: str,
    target: float | None = None,
    figure: Figure = "last10_mean",
) -> Comparison:
    """Make the table of the runs of a plan that are done.

    Args:
        plan: the sweep.
        out: its folder.
        baseline: one of its algorithms; a run is compared with the baseline's of the same seed and
            grid values.
        target: an accuracy, a fraction.
        figure: which accuracy of ``summary.json``.

    Raises:
        CheckpointError: if a file of a run is damaged.
    """
    found = {
        run.id: measure(out / run.id, target, figure) for run in plan.runs if is_done(run, out)
    }
    lines: dict[tuple[Any, ...], tuple[int, Row]] = {}
    for name in plan.algorithms:
        for at in range(len(plan.points)):
            ours, theirs = (
                [plan.cells[who, at, seed] for seed in plan.seeds] for who in (name, baseline)
            )
            difference = None if name == baseline else _difference(ours, theirs, found)
            lines.setdefault(
                _same(ours, theirs), (at, _row(ours, found, difference, target is not None))
            )
    rows = _told_apart(list(lines.values()), plan)
    return Comparison(plan.keys, plan.seeds, baseline, target, figure, rows)


def _same(ours: Sequence[Run], theirs: Sequence[Run]) -> tuple[Any, ...]:
    """Lines of the same runs, compared with the same runs, are one."""
    return (
        ours[0].algorithm,
        *(run.id for run in ours),
        *(run.id for run in theirs if ours[0].algorithm != run.algorithm),
    )


def _told_apart(lines: Sequence[tuple[int, Row]], plan: Plan) -> tuple[Row, ...]:
    """Rows of the same runs that are compared with different ones are shown with the values of the
    others."""
    shown = [(row.algorithm, row.values) for _, row in lines]
    return tuple(
        replace(row, values=plan.points[at])
        if shown.count((row.algorithm, row.values)) > 1
        else row
        for at, row in lines
    )


def _row(
    runs: Sequence[Run], found: Mapping[str, Measured], difference: Difference | None, target: bool
) -> Row:
    there = [found[run.id] for run in runs if run.id in found]
    accuracy = [one.accuracy for one in there if one.accuracy is not None]
    reached = [one for one in there if one.rounds is not None]
    moved = [one.bytes for one in (reached if target else there) if one.bytes is not None]
    return Row(
        runs[0].algorithm,
        tuple("-" if value is None else value for _, value in runs[0].point),
        len(there),
        len(runs),
        statistics.fmean(accuracy) if accuracy else None,
        statistics.stdev(accuracy) if len(accuracy) > 1 else None,
        difference,
        len(reached),
        statistics.fmean(one.rounds for one in reached if one.rounds) if reached else None,
        statistics.fmean(moved) if moved else None,
        statistics.fmean(one.seconds for one in there) if there else None,
        statistics.fmean(counts)
        if (counts := [one.scored for one in there if one.scored is not None])
        else None,
    )


def _difference(
    ours: Sequence[Run], theirs: Sequence[Run], found: Mapping[str, Measured]
) -> Difference | None:
    known = {name: one.accuracy for name, one in found.items() if one.accuracy is not None}
    both = [
        (a.id, b.id) for a, b in zip(ours, theirs, strict=True) if a.id in known and b.id in known
    ]
    return paired([known[a] - known[b] for a, b in both])


def paired(differences: Sequence[float]) -> Difference | None:
    """Mean of paired differences and the half-width of its 95 % interval, by Student's t; ``None``
    without pairs.

    Example:
        >>> found = paired([1.0, 2.0, 3.0])
        >>> found.mean, round(found.half, 4), paired([1.0]).half
        (2.0, 2.4841, None)
    """
    n = len(differences)
    if not n:
        return None
    if n == 1:
        return Difference(differences[0], None, 1)
    t = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1))
    return Difference(
        statistics.fmean(differences), t * statistics.stdev(differences) / math.sqrt(n), n
    )


def measure(path: Path, target: float | None, figure: Figure) -> Measured:
    """What the table wants of a run that is done.

    The target counts as reached in a round in which all clients that are ever placed have a group,
    as for ``max``.

    Raises:
        CheckpointError: if a file of the run is damaged.
    """
    folder = RunFolder.open(path)
    rows = folder.rows()
    try:
        summary: dict[str, Any] = folder.summary() or {}
        accuracy = summary["accuracy"][figure]
        accuracy = None if accuracy is None else float(accuracy)
        seconds = float(summary["seconds"]["total"])
        rounds = None if target is None else rounds_to_target(covered(rows), target)
        counted = rows if target is None else [] if rounds is None else rows[:rounds]
        moved = sum(
            int(row["transfers"][way]) for row in counted for way in ("down_bytes", "up_bytes")
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise damaged(path / "summary.json or rounds.jsonl", error) from None
    scored = rows[-1].get("clients_assigned") if rows else None
    return Measured(accuracy, rounds, moved if target is None or rounds else None, seconds, scored)


# --- what is shown --------------------------------------------------------------------------------


def columns(table: Comparison) -> list[str]:
    """The names of the columns."""
    to = "" if table.target is None else f" to {_number(100 * table.target)} %"
    rounds = [] if table.target is None else [f"rounds{to}"]
    head = ["algorithm", *table.keys, "runs", "accuracy, %", "sd", "difference", "± 95 %"]
    return [*head, *rounds, f"bytes{to}", "seconds"]


def cells(table: Comparison) -> list[list[str]]:
    """The table as text, a row a line."""
    return [_cells(row, table.target is not None) for row in table.rows]


def _cells(row: Row, target: bool) -> list[str]:
    d = row.difference
    some = f" ({row.reached} of {row.done})" if 0 < row.reached < row.done else ""
    rounds = (
        ["never" if row.done and not row.reached else _dash(row.rounds, ".1f") + some]
        if target
        else []
    )
    return [
        printable(row.algorithm),
        *(printable(value) for value in row.values),
        f"{row.done}" if row.done == row.planned else f"{row.done} of {row.planned}",
        _dash(row.mean, ".2f", 100),
        _dash(row.sd, ".2f", 100),
        _dash(None if d is None else d.mean, "+.2f", 100),
        _dash(None if d is None else d.half, ".2f", 100),
        *rounds,
        "-" if row.bytes is None else amount(row.bytes),
        _dash(row.seconds, ".1f"),
    ]


def _dash(value: float | None, form: str, factor: float = 1) -> str:
    if value is None:
        return "-"
    return format(factor * value, form)


def _number(value: float) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".")


def notes(table: Comparison) -> list[str]:
    """What the columns mean, in a sentence each."""
    many = len(table.seeds) > 1
    seeds = (
        f"mean and standard deviation over {len(table.seeds)} seeds"
        if many
        else f"of one seed ({table.seeds[0]})"
    )
    lines = [f"Accuracy: {FIGURES[table.figure]}, {seeds}."]
    if len({row.algorithm for row in table.rows}) > 1:
        less = "" if many else " With one seed there is no interval."
        baseline = printable(table.baseline)
        lines.append(
            f"Difference: of this accuracy to {baseline}, paired by seed, in points; ±: half its 95 % interval (Student's t).{less}"
        )
    counts = {row.scored for row in table.rows if row.scored is not None}
    if len(counts) > 1:
        each = ", ".join(
            f"{printable(row.algorithm)} {_dash(row.scored, '.0f')}" for row in table.rows
        )
        lines.append(
            "Not all rows score the same clients, since a client counts once it has a group; more rounds give every "
            f"client one. Clients scored at the end: {each}."
        )
    if table.target is not None:
        lines.append(
            "Rounds and bytes to the target: means over the runs that reached it; bytes down and up."
        )
    return [
        *lines,
        "Seconds: mean of a run's rounds, by the wall clock; they alone differ when a sweep is run again.",
    ]


def markdown(table: Comparison) -> str:
    """The table as Markdown."""
    head = columns(table)
    left = 1 + len(table.keys)
    rules = ["---" if at < left else "---:" for at in range(len(head))]
    lines = [[escape_markdown(name) for name in head], rules]
    lines += [[escape_markdown(cell) for cell in row] for row in cells(table)]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return body + "\n\n" + "\n".join(escape_markdown(note) for note in notes(table)) + "\n"


def escape_markdown(text: str) -> str:
    """Text in a cell of a Markdown table.

    Example:
        >>> print(escape_markdown("a|b <i> *c* my_mod:d"))
        a\\|b &lt;i> \\*c\\* my\\_mod:d
    """
    return re.sub(r"([\\|*_`\[\]])", r"\\\1", text).replace("&", "&amp;").replace("<", "&lt;")


def latex(table: Comparison) -> str:
    """The table as LaTeX, for ``booktabs``."""
    head = [escape_latex(name) for name in columns(table)]
    left = 1 + len(table.keys)
    lines = [" & ".join(escape_latex(cell) for cell in row) + r" \\" for row in cells(table)]
    begin = rf"\begin{{tabular}}{{{'l' * left}{'r' * (len(head) - left)}}}"
    said = [f"% {note}" for note in ["needs \\usepackage{booktabs}", *notes(table)]]
    body = [
        begin,
        r"\toprule",
        " & ".join(head) + r" \\",
        r"\midrule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join([*said, *body]) + "\n"


def escape_latex(text: str) -> str:
    """Text in a cell of a LaTeX table; a sign before a number becomes that of mathematics.

    Example:
        >>> print(escape_latex("a_b & 5 %"), escape_latex("-1.20"))
        a\\_b \\& 5 \\% $-$1.20
    """
    safe = "".join(TEX.get(letter, letter) for letter in text)
    return re.sub(r"(?<![^ ])([+-])(?=\d)", r"$\1$", safe)


def comma_separated(table: Comparison) -> str:
    """The table as CSV: fractions, bytes and seconds as numbers, nothing where there is none."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    figures = ("runs", "accuracy", "sd", "difference", "low", "high", "pairs")
    reached = (
        ("target", "reached", "rounds_to_target", "bytes_to_target")
        if table.target is not None
        else ("bytes",)
    )
    writer.writerow(["algorithm", *table.keys, *figures, *reached, "seconds"])
    for row in table.rows:
        d = row.difference or Difference(math.nan, None, 0)
        ends = [None, None] if d.half is None else [d.mean - d.half, d.mean + d.half]
        to = (
            [row.bytes]
            if table.target is None
            else [table.target, row.reached, row.rounds, row.bytes]
        )
        numbers = [
            row.done,
            row.mean,
            row.sd,
            d.mean if d.pairs else None,
            *ends,
            d.pairs or None,
            *to,
            row.seconds,
        ]
        writer.writerow([row.algorithm, *row.values, *numbers])
    return out.getvalue()


def runs_separated(
    plan: Plan, out: Path, target: float | None = None, figure: Figure = "last10_mean"
) -> str:
    """Every run as a line of CSV, with its folder."""
    lines = StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(
        ["run", "algorithm", "seed", *plan.keys, "done", "accuracy"]
        + ([] if target is None else ["rounds_to_target"])
        + ["bytes" if target is None else "bytes_to_target", "seconds"]
    )
    for run in plan.runs:
        done = is_done(run, out)
        one = (
            measure(out / run.id, target, figure) if done else Measured(None, None, None, math.nan)
        )
        rounds = [] if target is None else [one.rounds]
        figures = (
            [one.accuracy, *rounds, one.bytes, one.seconds] if done else [None] * (3 + len(rounds))
        )
        writer.writerow(
            [run.id, run.algorithm, run.seed, *(v for _, v in run.point), int(done), *figures]
        )
    return lines.getvalue()


def write_tables(table: Comparison, plan: Plan, out: Path) -> list[Path]:
    """Write ``table.md``, ``table.csv``, ``table.tex`` and ``runs.csv``; returns their paths.

    Two sweeps that end at the same time write the same, each file in one step.
    """
    texts = {
        "table.md": markdown(table),
        "table.csv": comma_separated(table),
        "table.tex": latex(table),
        "runs.csv": runs_separated(plan, out, table.target, table.figure),
    }
    for name, text in texts.items():
        hidden = out / f".{name}.{os.getpid()}.tmp"
        hidden.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
        hidden.replace(out / name)
    return [out / name for name in texts]
