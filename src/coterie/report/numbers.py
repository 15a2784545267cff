"""The charts of a page as tables, for who reads no charts: columns and rows of text, never many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coterie.report.colours import NONE, group_name
from coterie.report.members import marks
from coterie.report.series import Series, thinned
from coterie.report.spending import PARTS, bytes_moved, split
from coterie.report.trees import Tree
from coterie.report.view import RunView, displayed
from coterie.terminal import amount, percent

Table = tuple[list[str], list[list[Any]]]
ROWS = 12
WIDE = 12
NAMES = 12


def accuracy(series: Sequence[Series]) -> Table:
    """Accuracy of each series in a dozen rounds; with several seeds, the lowest and highest beside
    the mean."""
    curves = [{int(at["round"]): at for at in one.curve()} for one in series]
    rounds = thinned(sorted({t for curve in curves for t in curve}), ROWS)
    rows = [
        [
            str(displayed(t)),
            *(
                _range(curve.get(t), len(one.runs) > 1)
                for curve, one in zip(curves, series, strict=True)
            ),
        ]
        for t in rounds
    ]
    return ["round", *(one.name for one in series)], rows


def _range(at: dict[str, float] | None, many: bool) -> str:
    if at is None:
        return "-"
    return percent(at["mean"]) + (
        f" ({100 * at['low']:.1f} to {100 * at['high']:.1f})" if many else ""
    )


def moved(series: Sequence[Series]) -> Table:
    """Bytes and accuracy at a quarter, at half and at the end of each series."""
    rows = []
    for one in series:
        every = bytes_moved(one.first)
        curve = {int(at["round"]): at["mean"] for at in one.curve()}
        if every is None or not curve:
            continue
        for part in (0.25, 0.5, 1.0):
            last = max(int(row["round"]) for row in one.first.rounds)
            t = min(curve, key=lambda r: abs(r - part * last))
            at = next(i for i, row in enumerate(one.first.rounds) if int(row["round"]) == t)
            rows.append([one.name, str(displayed(t)), amount(every[at]), percent(curve[t])])
    return ["run", "round", "bytes moved", "accuracy"], rows


def times(series: Sequence[Series]) -> Table:
    """Mean seconds of a round by part."""
    rows = [
        [one.name, *(f"{parts[p]:.4f}" for p in PARTS)]
        for one in series
        if (parts := split(one)) is not None
    ]
    return ["run", *(f"{part}, s" for part in PARTS)], rows


def members(run: RunView) -> Table:
    """Sizes of the groups in a dozen rounds, and what happened until the next one."""
    rows = [row for row in run.rounds if "sizes" in row]
    kept = thinned(list(range(len(rows))), ROWS)
    wide = min(WIDE, max(len(row["sizes"]) for row in rows))
    found = []
    for before, at in zip([-1, *kept], kept, strict=False):
        sizes = [*rows[at]["sizes"], *[0] * wide][:wide]
        happened: dict[str, int] = {}
        for mark in marks(rows[before + 1 : at + 1]):
            happened[mark["what"]] = happened.get(mark["what"], 0) + mark["clients"]
        said = ", ".join(f"{n} {what}" for what, n in happened.items())
        found.append(
            [
                str(displayed(rows[at]["round"])),
                *map(str, sizes),
                str(run.clients - sum(rows[at]["sizes"])),
                said or "-",
            ]
        )
    return [
        "round",
        *(group_name(g) for g in range(wide)),
        group_name(NONE),
        "since the row above",
    ], found


def inhabitants(run: RunView) -> Table:
    """The clients of each group, the first of them by name."""
    rows = []
    for g in np.unique(run.groups):
        inside = np.flatnonzero(run.groups == g)
        names = ", ".join(str(run.names[i]) for i in inside[:NAMES])
        rows.append(
            [
                group_name(int(g)),
                f"{len(inside):,}",
                names + (", ..." if len(inside) > NAMES else ""),
            ]
        )
    return ["group", "clients", "who"], rows


def mix(run: RunView) -> Table:
    """The labels that fill most of each group."""
    assert run.histograms is not None
    names = [str(name) for name in run.labels] or [str(c) for c in range(run.histograms.shape[1])]
    rows = []
    for g in np.unique(run.groups):
        total = run.histograms[run.groups == g].sum(axis=0)
        order = np.argsort(-total, kind="stable")[:WIDE]
        said = ", ".join(
            f"{names[c]} {100 * total[c] / max(1, total.sum()):.0f} %" for c in order if total[c]
        )
        rows.append([group_name(int(g)), f"{int(total.sum()):,}", said])
    return ["group", "samples", "largest labels"], rows


def shifts(run: RunView) -> Table:
    """The rounds in which data changed, and what the method made of it."""
    met = [row for row in run.rounds if row.get("changed") or row.get("migrations")]
    keys = ("changed", "migrations", "same_group", "missed")
    rows = [
        [str(displayed(row["round"])), *(str(row.get(key) or 0) for key in keys)]
        for row in thinned_rows(met)
    ]
    return ["round", "data changed", "moved to another group", "stayed", "missed"], rows


def thinned_rows(rows: Sequence[Any]) -> list[Any]:
    """A dozen of some rows."""
    return [rows[at] for at in thinned(list(range(len(rows))), ROWS)]


def measured(runs: Sequence[RunView], field: str, names: dict[str, str], form: str) -> Table:
    """What a measure of several parts was in a dozen rounds."""
    rows = [
        [
            run.name,
            str(displayed(row["round"])),
            *("-" if row[field].get(n) is None else format(row[field][n], form) for n in names),
        ]
        for run in runs
        for row in thinned_rows([row for row in run.rounds if row.get(field)])
    ]
    return ["run", "round", *names.values()], rows


def agreed(runs: Sequence[RunView]) -> Table:
    """Agreement with the planted groups in a dozen rounds."""
    return measured(
        runs, "agreement", {"ari": "adjusted Rand index", "nmi": "mutual information"}, ".2f"
    )


def merges(tree: Tree) -> Table:
    """The last merges of a tree, from the highest."""
    last = tree.links[::-1][:ROWS]
    return ["distance at the merge", "clients under it"], [
        [f"{height:.4g}", f"{int(n)}"] for *_, height, n in last
    ]


def nearness(tree: Tree, groups: np.ndarray) -> Table:
    """Mean distance between the clients of two groups."""
    assert tree.proximity is not None
    own = groups[tree.leaves]
    known = [int(g) for g in np.unique(own)][:WIDE]

    def mean(a: int, b: int) -> str:
        assert tree.proximity is not None
        block = tree.proximity[np.ix_(own == a, own == b)]
        block = block[~np.eye(len(block), dtype=bool)] if a == b else block
        if block.size:
            return f"{block.mean():.4g}"
        return "-"

    return ["mean distance", *map(group_name, known)], [
        [group_name(a), *(mean(a, b) for b in known)] for a in known
    ]
