"""What the page of some runs shows, from top to bottom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tomli_w

from coterie.config.identity import differing
from coterie.report import charts, courses, members, numbers, spending, winners
from coterie.report.series import (
    Balance,
    Series,
    balance,
    baseline_of,
    difference,
    everybody,
    gains,
    pairs,
    series_of,
)
from coterie.report.trees import Tree, dendrogram, heat_map
from coterie.report.view import RunView, agreement, displayed, placements
from coterie.runs.summary import covered
from coterie.terminal import amount, duration, percent, sizes

ACCURACY_NOTE = (
    "The share of test samples that are classified correctly, each client's by the model that serves it. A round counts "
    "the clients that have a group in that round. A client that had one earlier and has none now does not count."
)
BAND_NOTE = " Lines are means over the seeds, bands reach from the lowest to the highest."
TABLE_NOTE = (
    "Final is the accuracy after the last evaluated round, best the highest of a run. Groups are those at the end: a "
    "client counts in its last group, whatever groups it had before."
)
DIFFERENCE_NOTE = (
    " The difference to {} is that of the final accuracies in percentage points, over the same clients, taken before "
    "rounding. The table of `coterie compare` may show another accuracy, by default the mean of the last ten rounds."
)
INTERVAL_NOTE = " Behind ± stands half of its 95 % interval over the seeds."
SPREAD_NOTE = (
    " With several seeds: means, and the standard deviation of the final accuracy; groups, bytes and time are those of "
    "the first seed."
)
PART_NOTE = " Final and best are of the clients that had a group; where a run left some without, the difference is over all."
SHORT_NOTE = " Some runs are not at their end: {}."
GAIN_NOTE = (
    "Accuracy of each client on its own test samples at the end, under both methods, over the same data. A client is "
    "one mark; with few test samples its accuracy moves in large steps."
)
BYTES_NOTE = (
    "Accuracy by what all clients have received and sent until then, and what a round's time goes into, on the machine "
    "that did the run."
)
MEMBER_NOTE = "Who is in which group after each round; ticks above mark rounds in which clients came, moved or changed."
MIX_NOTE = (
    "Which labels the training samples of each group's clients carry. Where the mixes are alike, the groups differ in "
    "something else than their labels."
)
AGREEMENT_NOTE = "How well the groups found agree with those that were planted, by round; 0 is what chance gives."
SHIFT_NOTE = "Clients by round: whose data changed, and what the method made of it. Ticks tell when a shift came."
THEORY_NOTE = (
    "Mean distance of a client's gradient from that of its group (FedGroup, definition 2): the smaller, the better the "
    "group's model suits its clients."
)
TREE_NOTE = (
    "Two clients meet at the height of their distance; colour is the group, grey joins several."
)
NEAR_NOTE = (
    "Distances between clients, in the order of the tree above; the strips tell the group of each."
)
CONFIG_NOTE = "With every default filled in; `coterie run` takes it as it is."
DETAILED = 6  # series with groups that are shown in detail, the best ones
Section = dict[str, Any]


def sections(runs: Sequence[RunView]) -> list[Section]:
    """The sections of the page of some runs; runs that differ in their seeds alone are shown as
    one."""
    series = series_of(runs)
    base = baseline_of(series)
    every = []
    if any(run.accuracies for run in runs):
        note = ACCURACY_NOTE + (BAND_NOTE if any(len(one.runs) > 1 for one in series) else "")
        chart = _chart("accuracy", charts.accuracy_chart(runs), numbers.accuracy(series))
        every.append({"title": "Accuracy by round", "note": note, "charts": [chart]})
    every += [_table(series, base), *_winners(series, base), *_costs(series)]
    firsts = [one.first for one in series]
    agreed = courses.agreement_chart(firsts)
    title = "Agreement with the planted groups"
    every += _charted("agreement", title, AGREEMENT_NOTE, agreed, lambda: numbers.agreed(firsts))
    chosen = sorted(
        (one for one in series if one.grouped), key=lambda one: -np.nan_to_num(one.final, nan=-1)
    )
    chosen = chosen[:DETAILED]
    for at, one in enumerate(series):
        if one in chosen or not one.grouped:
            every += [{**section, "part": one.name} for section in _of_one(one, at)]
    return [*every, *_configuration(series)]


def _chart(
    id: str, spec: Any, table: numbers.Table | None = None, title: str | None = None
) -> dict[str, Any]:
    named = {} if title is None else {"title": title}
    return {"id": id, "spec": spec, **named, **({} if table is None else {"table": table})}


def _charted(id: str, title: str, note: str, spec: Any, table: Any = None) -> list[Section]:
    if spec is None:
        return []
    return [
        {
            "title": title,
            "note": note,
            "charts": [_chart(id, spec, None if table is None else table())],
        }
    ]


# --- over all runs --------------------------------------------------------------------------------


def _table(series: Sequence[Series], base: Series | None) -> Section:
    note = TABLE_NOTE
    columns = ["run", "final", "best", "rounds", "clients per group", "agreement", "bytes", "time"]
    many = any(len(one.runs) > 1 for one in series)
    compared = base is not None and len(series) > 1
    if many:
        columns.insert(1, "seeds")
        note += SPREAD_NOTE
    if compared and base is not None:
        columns.insert(3 if many else 2, f"final against {base.name}")
        note += DIFFERENCE_NOTE.format(base.name)
        note += INTERVAL_NOTE if many else ""
        note += (
            PART_NOTE if any(everybody(a, b) for one in series for a, b in pairs(one, base)) else ""
        )
    short = [
        f"{one.name} (seed {run.seed}, {done})"
        for one in series
        for run in one.runs
        if (done := _short(run))
    ]
    note += (
        SHORT_NOTE.format(", ".join(short[:12]) + (" and more" if len(short) > 12 else ""))
        if short
        else ""
    )
    rows = [_row(one, many, base if compared else None) for one in series]
    return {"title": "The runs", "note": note, "columns": columns, "rows": rows}


def _row(one: Series, many: bool, base: Series | None) -> list[Any]:
    run = one.first
    score = agreement(run) if run.count > 1 else None
    seconds = [row["seconds"]["total"] for row in run.rounds if "seconds" in row]
    moved = spending.bytes_moved(run)
    best = [
        max([row["accuracy"] for row in covered(each.rounds)] or each.accuracies)
        for each in one.runs
        if each.accuracies
    ]
    counts = np.bincount(run.groups[run.groups >= 0])
    row: list[Any] = [
        one.name,
        (_mean(one), "figure"),
        (percent(float(np.mean(best))) if best else "-", "figure"),
        str(len(run.rounds)),
        sizes([int(n) for n in counts if n]),
        f"{score:.2f}" if score is not None else "-",
        (amount(moved[-1]) if moved else "-", "figure"),
        (duration(sum(seconds)) if seconds else "-", "figure"),
    ]
    if many:
        row.insert(1, str(len(one.runs)))
    if base is not None:
        row.insert(3 if many else 2, (_against(one, base), "figure"))
    return row


def _short(run: RunView) -> str:
    """How far a run is that has not done all its rounds; empty for one that has."""
    planned = run.tables.get("train", {}).get("rounds")
    if planned is None or len(run.rounds) >= planned:
        return ""
    return f"{len(run.rounds)} of {planned} rounds"


def _mean(one: Series) -> str:
    known = [run.final for run in one.runs if run.accuracies]
    if not known:
        return "-"
    return percent(one.final) + (
        f" ± {100 * float(np.std(known, ddof=1)):.1f}" if len(known) > 1 else ""
    )


def _against(one: Series, base: Series) -> str:
    found = None if one is base else difference(one, base)
    if found is None:
        return "-"
    return f"{100 * found.mean:+.1f}" + ("" if found.half is None else f" ± {100 * found.half:.1f}")


def _winners(series: Sequence[Series], base: Series | None) -> list[Section]:
    """Each series with groups against the baseline, client by client."""
    found: list[Section] = []
    for at, one in enumerate(series):
        weighed = None if base is None or one is base or not one.grouped else balance(one, base)
        if weighed is None or base is None:
            continue
        ours, theirs = next((a, b) for a, b in pairs(one, base) if gains(a, b) is not None)
        many = f" The charts are of seed {ours.seed}." if len(one.runs) > 1 else ""
        ranks = winners.table(winners.ranked(ours, theirs))
        both = "Before and after (moved by up to a point, so that many show); above the dashed line a client won"
        drawn = [
            _chart(
                f"gain-{at}", winners.gain_chart(ours, theirs), ranks, "What each client gained"
            ),
            _chart(f"before-after-{at}", winners.scatter_chart(ours, theirs), None, both),
        ]
        title = f"Who wins, who loses: {one.name} against {base.name}"
        found.append(
            {
                "title": title,
                "note": _weighed(weighed) + GAIN_NOTE + many,
                "charts": drawn,
                "wide": True,
            }
        )
    return found[:DETAILED]


def _weighed(found: Balance) -> str:
    said = f"{found.won:,} of {found.all:,} clients won, {found.lost:,} lost, {found.same:,} stayed as they were; "
    tenth = f"that of the tenth that lost most {100 * found.worst:+.1f}. "
    return f"{said}the mean gain is {100 * found.mean:+.1f} points, {tenth}"


def _costs(series: Sequence[Series]) -> list[Section]:
    moved = spending.bytes_chart(series)
    spent = spending.time_chart(series)
    drawn = []
    if moved is not None:
        drawn.append(_chart("bytes", moved, numbers.moved(series), "Accuracy by bytes"))
    if spent is not None:
        drawn.append(_chart("time", spent, numbers.times(series), "Seconds of a round"))
    if drawn:
        return [{"title": "What it costs", "note": BYTES_NOTE, "charts": drawn, "wide": True}]
    return []


def _configuration(series: Sequence[Series]) -> list[Section]:
    """The configurations in full, what they differ in, and the versions of the software."""
    known = [one for one in series if one.first.tables]
    if not known:
        return []
    first = known[0].first.tables
    keys = list(
        dict.fromkeys(
            key for one in known[1:] for key in differing(first, one.first.tables) if key != "seed"
        )
    )
    said = (
        f" They differ in {', '.join(keys[:12])}{' and more' if len(keys) > 12 else ''}."
        if keys
        else ""
    )
    runs = [run for one in known for run in one.runs]
    versions = list(
        dict.fromkeys(", ".join(f"{k} {v}" for k, v in run.versions.items()) for run in runs)
    )
    done = [v for v in versions if v]
    texts = [
        (f"{one.name} (seed {one.first.seed})", tomli_w.dumps(one.first.tables))
        for one in known[:20]
    ]
    note = CONFIG_NOTE + said + (f" Done with {'; '.join(done)}." if done else "")
    return [{"title": "Configuration and versions", "note": note, "texts": texts}]


# --- of one series --------------------------------------------------------------------------------


def _of_one(one: Series, at: int) -> list[Section]:
    run = one.first
    found: list[Section] = []
    if run.count > 1:
        found += _charted(
            f"members-{at}",
            "Who is in which group",
            MEMBER_NOTE,
            members.member_chart(run),
            lambda: numbers.members(run),
        )
        found += _map_and_mix(run, at)
    found += _charted(
        f"shift-{at}",
        "What changed, and what was noticed",
        SHIFT_NOTE,
        courses.shift_chart(run),
        lambda: numbers.shifts(run),
    )
    names = {"divergence": "with these groups", "divergence_one": "as one group"}
    found += _charted(
        f"theory-{at}",
        "How far gradients lie apart",
        _theory_note(run),
        courses.divergence_chart(run),
        lambda: numbers.measured([run], "theory", names, ".4g"),
    )
    found += _merged(run, at) if run.count > 1 else []
    if run.count > 1 and len(run.late):
        return [*found, _late(run)]
    return found


def _map_and_mix(run: RunView, at: int) -> list[Section]:
    found: list[Section] = []
    if run.embedding is not None:
        found += _charted(
            f"map-{at}",
            "Who is alike",
            _map_note(run),
            charts.map_chart(run),
            lambda: numbers.inhabitants(run),
        )
    if run.histograms is not None:
        found += _charted(
            f"mix-{at}",
            "Label mix of the groups",
            MIX_NOTE,
            charts.mix_chart(run),
            lambda: numbers.mix(run),
        )
    return found


def _merged(run: RunView, at: int) -> list[Section]:
    tree = Tree.of(run.memory)
    if tree is None or len(run.groups) <= tree.leaves.max():
        return []
    drawn = dendrogram(tree, run.groups, run.names)
    found = _charted(
        f"tree-{at}", "How clients were merged", TREE_NOTE, drawn, lambda: numbers.merges(tree)
    )
    if tree.proximity is not None:
        names = [str(run.names[i]) for i in tree.leaves]
        near = heat_map(tree.proximity, tree.rows, run.groups[tree.leaves], names)
        every = _charted(
            f"near-{at}",
            "Who is near whom",
            NEAR_NOTE,
            near,
            lambda: numbers.nearness(tree, run.groups),
        )
        found += [{**section, "square": True} for section in every]
    return found


def _theory_note(run: RunView) -> str:
    last: Mapping[str, Any] = next(
        (row["theory"] for row in reversed(run.rounds) if row.get("theory")), {}
    )
    if last.get("bound") is None or last.get("bound_one") is None:
        return THEORY_NOTE
    bounds = f"{last['bound']:.4g} with these groups, {last['bound_one']:.4g} as one group"
    return f"{THEORY_NOTE} The bound on the loss after the last round: {bounds}."


def _map_note(run: RunView) -> str:
    note = f"Each mark is a client, placed by {run.placed_by}: near is alike. Colour is its group"
    note += ", shape its planted population." if run.planted is not None else "."
    return note + (" Hollow marks are newcomers." if len(run.late) else "")


def _late(run: RunView) -> Section:
    placed = placements(run)
    columns = ["client", "joined in round", "population", "placed in", "with its own"]
    rows = [
        [p["client"], _joined(p["round"]), _population(p["planted"]), *_place(p)]
        for p in placed[:100]
    ]
    return {
        "title": "Where newcomers were placed",
        "note": _late_note(placed),
        "columns": columns,
        "rows": rows,
    }


def _joined(round: int | None) -> str:
    if round is None:
        return "-"
    return str(displayed(round))


def _population(number: int | None) -> str:
    if number is None:
        return "-"
    return chr(ord("A") + number % 26)


def _place(placed: Mapping[str, Any]) -> tuple[Any, Any]:
    """Where a newcomer went, and whether that is right."""
    group = placed["group"]
    right = placed["right"]
    verdict = "-" if right is None else ("yes", "good") if right else ("no", "bad")
    return ("no group" if group is None else f"group {group}", "figure"), verdict


def _late_note(placed: Sequence[dict[str, Any]]) -> str:
    known = [p for p in placed if p["right"] is not None]
    more = " The first 100 are listed." if len(placed) > 100 else ""
    if not known:
        return f"{len(placed)} clients came late.{more}"
    return f"{sum(p['right'] for p in known)} of {len(known)} were placed with the clients of their own population.{more}"


def facts(runs: Sequence[RunView]) -> list[tuple[str, str]]:
    """Figures under the headline: name and value."""
    if not runs:
        return []
    found = [
        ("clients", f"{runs[0].clients:,}"),
        ("rounds", str(max(len(run.rounds) for run in runs))),
    ]
    series = series_of(runs)
    best = max(
        (one for one in series if one.grouped),
        key=lambda one: np.nan_to_num(one.final, nan=-1),
        default=None,
    )
    if best is None:
        return found
    run = best.first
    found.append((f"groups that {best.name} found", str(run.count)))
    score = agreement(run)
    if score is not None:
        named = "agreement of {}'s groups with the planted ones (adjusted Rand index, 1 = the same)"
        found.append((named.format(best.name), f"{score:.2f}"))
    known = [p["right"] for p in placements(run) if p["right"] is not None]
    if known:
        found.append(
            (f"newcomers that {best.name} placed with their own", f"{sum(known)} of {len(known)}")
        )
    return found
