"""The sections of one series: its groups, its clients, and what happened to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coterie.report.chart_tables import (
    client_table,
    distance_table,
    divergence_table,
    member_table,
    merge_table,
    mix_table,
    shift_table,
)
from coterie.report.charts.clients import map_chart, mix_chart, population_letter
from coterie.report.charts.dendrogram import dendrogram
from coterie.report.charts.heat_map import heat_map
from coterie.report.charts.members import member_chart
from coterie.report.charts.rounds import divergence_chart, shift_chart
from coterie.report.section import Chart, Section
from coterie.report.series import Series
from coterie.report.view import (
    NewcomerPlacement,
    RunView,
    displayed_round,
    newcomer_placements,
)

MOST_NAMED = 30  # clients whose names stand above the chart
MEMBER_NOTE = (
    "The group of each client after each round. Ticks above mark rounds in which clients joined, "
    "moved to another group, or had their data changed."
)
MIX_NOTE = (
    "The labels of the training samples in each group at the end. Where the mixes are alike, the "
    "groups differ in something other than labels."
)
SHIFT_NOTE = (
    "How many clients had their data changed in each round, and how many of them the method "
    "noticed. Ticks above mark the shifts. Rounds count from 1 on this page, from 0 in a "
    "configuration."
)
DIVERGENCE_NOTE = (
    "The mean distance of a client's gradient from that of its group (FedGroup, definition 2). The "
    "smaller it is, the better the group's model suits its clients."
)
TREE_NOTE = (
    "Two branches meet at the height of the distance between them. Colour is the group. A grey "
    "branch holds clients of several groups."
)
DISTANCE_NOTE = (
    "Distances between clients, in the order of the tree above. The strips show their groups."
)
MOST_NEWCOMERS = 100  # that are listed; the rest is in the run's files


def details(series: Series, number: int) -> list[Section]:
    """The sections of the first run of a series; ``number`` makes the names of its charts differ
    from those of other series."""
    # One run stands for the series: groups of different seeds have nothing to do with each other.
    run = series.first
    found: list[Section] = []
    # Of one group there is nothing to tell apart.
    if run.group_count > 1:
        found += [*_members(run, number), *_map(run, number), *_mix(run, number)]
    found += [*_shifts(run, number), *_divergence(run, number)]
    if run.group_count > 1:
        found += [*_tree(run, number), *_newcomers(run)]
    return found


def _section(title: str, note: str, chart: Chart) -> Section:
    return {"title": title, "note": note, "charts": [chart]}


def _members(run: RunView, number: int) -> list[Section]:
    spec = member_chart(run)
    if spec is None:
        return []
    chart: Chart = {"id": f"members-{number}", "spec": spec, "table": member_table(run)}
    return [_section("Who is in which group", MEMBER_NOTE + _members_at_end(run), chart)]


def _members_at_end(run: RunView) -> str:
    """The clients of each group by name; nothing for many clients, or where they have none."""
    numbered = all(str(name) == str(i) for i, name in enumerate(run.names))
    if numbered or run.clients > MOST_NAMED:
        return ""
    _, rows = client_table(run)
    groups = "; ".join(f"{group}: {names}" for group, _, names in rows)
    return f" At the end: {groups}."


def _map(run: RunView, number: int) -> list[Section]:
    if run.embedding is None:
        return []
    note = f"Each mark is a client, placed by {run.placed_by}. Near clients are alike."
    note += " Colour is the group."
    if run.planted is not None:
        note += " Shape is the planted population."
    if len(run.newcomer_ids):
        note += " Hollow marks are newcomers."
    chart: Chart = {"id": f"map-{number}", "spec": map_chart(run), "table": client_table(run)}
    return [_section("Who is alike", note, chart)]


def _mix(run: RunView, number: int) -> list[Section]:
    if run.histograms is None:
        return []
    chart: Chart = {"id": f"mix-{number}", "spec": mix_chart(run), "table": mix_table(run)}
    return [_section("Label mix of the groups", MIX_NOTE, chart)]


def _shifts(run: RunView, number: int) -> list[Section]:
    spec = shift_chart(run)
    if spec is None:
        return []
    chart: Chart = {"id": f"shift-{number}", "spec": spec, "table": shift_table(run)}
    return [_section("What changed, and what was noticed", SHIFT_NOTE, chart)]


def _divergence(run: RunView, number: int) -> list[Section]:
    spec = divergence_chart(run)
    if spec is None:
        return []
    note = DIVERGENCE_NOTE + _bounds(run)
    chart: Chart = {"id": f"theory-{number}", "spec": spec, "table": divergence_table(run)}
    return [_section("How far gradients lie apart", note, chart)]


def _bounds(run: RunView) -> str:
    # Theory may be measured in some rounds only.
    measured = [row["theory"] for row in run.rounds if row.get("theory")]
    last: Mapping[str, Any] = measured[-1]
    if last.get("bound") is None or last.get("bound_one") is None:
        return ""
    grouped = f"{last['bound']:.4g} with these groups"
    alone = f"{last['bound_one']:.4g} as one group"
    return f" The bound on the loss after the last round is {grouped}, {alone}."


def _tree(run: RunView, number: int) -> list[Section]:
    tree = run.tree
    # A tree of more clients than the run has is of another run.
    if tree is None or len(run.groups) <= tree.leaves.max():
        return []
    merges: Chart = {
        "id": f"tree-{number}",
        "spec": dendrogram(tree, run.groups, run.names),
        "table": merge_table(tree),
    }
    found = [_section("How clients were merged", TREE_NOTE, merges)]
    if tree.proximity is None:
        return found
    names = [str(run.names[i]) for i in tree.leaves]
    distances: Chart = {
        "id": f"near-{number}",
        "spec": heat_map(tree.proximity, tree.rows, run.groups[tree.leaves], names),
        "table": distance_table(tree, run.groups),
    }
    near = _section("Who is near whom", DISTANCE_NOTE, distances)
    return [*found, {**near, "square": True}]


def _newcomers(run: RunView) -> list[Section]:
    placements = newcomer_placements(run)
    if not placements:
        return []
    return [
        {
            "title": "Where newcomers were placed",
            "note": _newcomer_note(placements),
            "columns": [
                "client",
                "joined in round",
                "population",
                "placed in",
                "with its population",
            ],
            "rows": [_newcomer_row(placed) for placed in placements[:MOST_NEWCOMERS]],
        }
    ]


def _newcomer_note(placements: Sequence[NewcomerPlacement]) -> str:
    known = [placed.right for placed in placements if placed.right is not None]
    note = f"{len(placements)} clients came late."
    if known:
        right = f"{sum(known)} of {len(known)}"
        note = f"{right} were placed with the clients of their own population."
    if len(placements) > MOST_NEWCOMERS:
        note += f" The first {MOST_NEWCOMERS} are listed."
    return note


def _newcomer_row(placed: NewcomerPlacement) -> list[Any]:
    joined = "-"
    if placed.round is not None:
        joined = str(displayed_round(placed.round))
    population = "-"
    if placed.population is not None:
        population = population_letter(placed.population)
    group = "no group"
    if placed.group is not None:
        group = f"group {placed.group}"
    verdict: Any = "-"
    if placed.right is not None:
        verdict = ("yes", "good") if placed.right else ("no", "bad")
    return [placed.client, joined, population, (group, "figure"), verdict]
