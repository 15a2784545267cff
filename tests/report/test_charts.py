"""The charts: what their specifications hold."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import vl_convert

from coterie.headline import Headline
from coterie.measures.client_table import ScoredClients
from coterie.report import RunView
from coterie.report.figures.accuracy import accuracy_chart, accuracy_section
from coterie.report.figures.clients import map_chart, mix_chart, rotated_to_axes
from coterie.report.figures.costs import cost_section
from coterie.report.figures.measured import agreement_chart, divergence_chart
from coterie.report.figures.members import member_chart
from coterie.report.figures.shifts import shift_chart
from coterie.report.figures.style import with_sides
from coterie.report.ranked_gains import gain_table, ranked_gains
from coterie.report.series import Series, series_of
from tests.report.pages import COURSE, both_methods, client_table, data_of, grouped, plain, rows


def test_plane_keeps_distances_of_points_in_a_plane():
    points = np.array([[0.0, 0, 0], [3, 0, 0], [0, 4, 0], [1, 1, 0]])
    flat = rotated_to_axes(points)
    for i in range(4):
        for j in range(4):
            assert np.hypot(*(flat[i] - flat[j])) == pytest.approx(
                np.linalg.norm(points[i] - points[j])
            )


def test_clients_that_were_not_measured_are_not_on_the_map():
    embedding = np.eye(3)[[0, 0, 0, 1, 1, 1]]
    embedding[2] = np.nan
    (data,) = map_chart(grouped(embedding=embedding))["datasets"].values()
    assert [row["client"] for row in data] == ["c0", "c1", "c3", "c4", "c5"]


def test_names_of_clients_that_are_close_stand_on_other_sides():
    close = [(0, 0), (1, 0), (0.5, 5), (10, 10), (10, 10), (10, 10), (10, 10), (10, 10)]
    rows = [{"x": x, "y": y, "client": "Wanshouxigong"} for x, y in close]
    sides = [row["side"] for row in with_sides(rows, 300)]
    assert sides[:3] == ["left", "right", "right"]
    # Five marks on each other have room for one name, and none beyond the right end.
    assert sides[3:] == ["left", "", "", "", ""]
    alone = with_sides([{"x": 3, "y": 3, "client": "Wanliu"}], 300)
    assert [row["side"] for row in alone] == ["right"]


def test_label_mix_counts_the_samples_of_a_group():
    (data,) = mix_chart(grouped())["datasets"].values()
    found = {(row["group"], row["label"]): row["samples"] for row in data}
    assert found == {
        ("group 0", "1"): 4,
        ("group 0", "2"): 8,
        ("group 1", "0"): 15,
        ("group 1", "1"): 5,
        ("group 1", "2"): 4,
    }


def test_accuracy_chart_marks_the_first_newcomer():
    late = grouped(joined=np.array([0, 0, 7, 0, 0, 9]))
    data = [
        row
        for rows in accuracy_chart(series_of([plain(), late]))["datasets"].values()
        for row in rows
    ]
    assert {"round": 8, "text": "first newcomers"} in data


def test_accuracy_chart_marks_the_best_prediction_without_a_model_that_beats_a_value():
    def marks(**known: float) -> list[float]:
        spec = accuracy_chart(series_of([replace(plain(), without_model=known)]))
        found = [row for rows in spec["datasets"].values() for row in rows]
        return [row["value"] for row in found if "value" in row]

    best = max(plain().accuracies)
    least = min(plain().accuracies)
    assert marks(constant=least / 2, persistence=(least + best) / 2) == [
        pytest.approx(50 * (least + best))
    ]
    assert marks(constant=least / 2) == []


@pytest.mark.parametrize("above", [0.02, -0.02])
def test_the_text_of_a_prediction_without_a_model_stands_on_no_curve(above):
    known = {"constant": plain().accuracies[-1] + above}
    spec = accuracy_chart(series_of([replace(plain(), without_model=known)]))
    found = [row for rows in spec["datasets"].values() for row in rows]
    (bottom,) = [row["bottom"] for row in found if "bottom" in row]
    last = [row["mean"] for row in found if "mean" in row][-1]
    assert not bottom <= last <= bottom + 6


def test_predictions_without_a_model_are_means_over_seeds():
    runs = [run for run in both_methods() if run.name == "fedavg"]
    known = [{"majority": 0.7}, {"majority": 0.9}]
    both = [replace(run, without_model=one) for run, one in zip(runs, known, strict=True)]
    [series] = series_of(both)
    assert series.without_model == {"majority": pytest.approx(0.8)}


@pytest.mark.parametrize(("groups", "width"), [(3, 640), (20, 640), (20, 320)])
def test_legends_of_files_fit_the_width(groups, width):
    from coterie.report.figures.gains import gain_chart
    from coterie.report.figures.style import LEGEND_LEFT, legend_columns, legend_widths

    member = np.arange(60) % groups
    clients = client_table(["c"] * 60, member, np.ones(60))
    many = Series("x", (RunView("x", rows(0.5), member, ["c"] * 60, client_table=clients),))
    spec = gain_chart(ranked_gains(many, many))
    (entry,) = legend_widths(spec)
    assert len(f"group {groups - 1}") * 7 < entry
    assert legend_columns(spec, width) * entry <= width - LEGEND_LEFT


@pytest.mark.parametrize("clients", [12, 30])
def test_all_names_stand_below_what_clients_gained(clients):
    from coterie.report.figures.gains import gain_chart

    names = [f"station {client}" for client in range(clients)]
    member = np.zeros(clients, np.int64)

    def run(name, seed):
        values = np.linspace(0.5, 0.6 + 0.1 * seed, clients)
        table = client_table(names, member, values)
        settings = {"seed": seed, "algorithm": {"name": name}}
        return RunView(name, rows(0.5), member, names, tables=settings, client_table=table)

    base, one = series_of([run(name, seed) for name in ("fedavg", "ifca") for seed in (0, 1)])
    ranked = ranked_gains(one, base)
    assert ranked.has_intervals
    drawn = vl_convert.vegalite_to_svg({**gain_chart(ranked), "width": 320})
    assert len(re.findall(r">station [0-9]+</text>", drawn)) == clients


def test_gains_are_means_over_seeds_with_intervals_and_marks():
    """A single seed of a client with two negative samples says nothing."""
    from coterie.report.figures.gains import gain_chart

    auroc = Headline("auroc", "higher", "", "AUROC")

    def run(name, seed, values):
        columns = {"auroc": np.array(values), "smallest_class": np.array([30, 2])}
        clients = ScoredClients(["va", "swiss"], np.array([0, 1]), np.array([60, 31]), columns)
        settings = {"seed": seed, "algorithm": {"name": name}}
        known = {"tables": settings, "client_table": clients, "headline": auroc}
        return RunView(
            name, [{"round": 0, "auroc": 0.5}], np.array([0, 1]), ["va", "swiss"], **known
        )

    theirs = [
        run("fedavg", 0, [0.5, 0.5]),
        run("fedavg", 1, [0.5, 0.5]),
        run("fedavg", 2, [0.5, 0.5]),
    ]
    ours = [run("ifca", 0, [0.6, 0.9]), run("ifca", 1, [0.7, 0.1]), run("ifca", 2, [0.8, 0.2])]
    base, one = series_of([*theirs, *ours])
    ranked = ranked_gains(one, base)
    assert [row["client"] for row in ranked.rows] == ["swiss*", "va"]
    assert [row["gain"] for row in ranked.rows] == pytest.approx([-0.1, 0.2])
    half = 4.302652729911275 * 0.1 / 3**0.5  # t of 0.975, two degrees of freedom
    assert ranked.rows[1]["half"] == pytest.approx(half, abs=1e-6)
    drawn = data_of(gain_chart(ranked), "client", "low", "high")
    # Pointing at an interval answers as pointing at its bar does.
    bars, _, whiskers = gain_chart(ranked)["layer"]
    assert whiskers["encoding"]["tooltip"] == bars["encoding"]["tooltip"]
    assert ("va", pytest.approx(0.2 - half, abs=1e-6), pytest.approx(0.2 + half, abs=1e-6)) in drawn
    columns, cells = gain_table(ranked)
    assert columns[-1] == "± 95 %"
    # Neither what is chance nor what rests on few has the colour of a loss or a gain.
    assert [row[4][1] for row in cells] == ["figure", "figure"]
    alone = ranked_gains(series_of(ours[:1])[0], series_of(theirs[:1])[0])
    assert [row["half"] for row in alone.rows] == [None, None]
    assert gain_table(alone)[0][-1] != "± 95 %"


def both(first: list[float], second: list[float], headline: Headline) -> list[Series]:
    """Two seeds of a baseline and of a method with groups, by their clients' figures."""
    found = []
    for name, values in (("fedavg", first), ("ifca", second)):
        for seed in (0, 1):
            clients = [f"station {client}" for client in range(len(values))]
            shifted = np.array(values) + 0.1 * seed * (name == "ifca")
            columns = {headline.name: shifted}
            if headline.name == "accuracy":
                columns = {"correct": 10 * shifted}
            sizes = np.full(len(values), 10)
            member = np.arange(len(values)) % 2
            table = ScoredClients(clients, member, sizes, columns)
            settings = {"seed": seed, "algorithm": {"name": name}}
            known = {"tables": settings, "client_table": table, "headline": headline}
            course = [{"round": 0, headline.name: 0.5}]
            found.append(RunView(name, course, member, clients, **known))
    return series_of(found)


def test_no_interval_reaches_beyond_what_a_client_can_gain():
    base, one = both([0.9, 0.1], [0.8, 0.9], Headline())
    for row in ranked_gains(one, base).rows:
        # With one degree of freedom the half is 63 points.
        assert row["half"] > 60
        assert -row["before"] <= row["low"] < row["gain"] < row["high"] <= 100 - row["before"]


def test_names_at_the_edge_of_a_scatter_are_all_there():
    from coterie.report.figures.gains import scatter_chart

    auroc = Headline("auroc", "higher", "", "AUROC")
    base, one = both([0.918, 0.927, 0.756, 0.740], [0.816, 0.812, 0.665, 0.561], auroc)
    spec = scatter_chart(ranked_gains(one, base))
    marks = data_of(spec, "before", "after", "side")
    assert len(marks) == 4
    assert all(side for *_, side in marks)
    # No mark lies on the frame, and names have the colour of the page's text.
    [_, points, *names] = spec["layer"]
    low, high = points["encoding"]["y"]["scale"]["domain"]
    assert all(low < value < high for *both, _ in marks for value in both)
    assert not any("color" in layer["encoding"] for layer in names)


def test_lines_of_up_to_thirty_clients_have_their_names():
    for clients, named in ((30, True), (31, False)):
        moves = [[client, client % 2] for client in range(clients)]
        row = {"round": 0, "accuracy": 0.5, "moves": moves, "sizes": [clients // 2] * 2}
        names = [f"hospital {client}'\"" for client in range(clients)]
        groups = np.arange(clients) % 2
        spec = member_chart(RunView("x", [row], groups, names))
        assert spec is not None
        drawn = vl_convert.vegalite_to_svg({**spec, "width": 600})
        assert len(re.findall(r">hospital [0-9]+[^<]*</text>", drawn)) == clients * named


def test_the_mean_over_clients_comes_before_all_samples_on_the_same_axis():
    course = [{**row, "accuracy_mean": row["accuracy"] - 0.1} for row in rows(0.6, 0.8)]
    run = RunView("x", course, np.zeros(2, int), ["a", "b"])
    (section,) = accuracy_section(series_of([run]))
    assert [chart["id"] for chart in section["charts"]] == ["client-mean", "accuracy"]
    drawn = [data_of(chart["spec"], "round", "mean") for chart in section["charts"]]
    assert drawn == [[(1, 50.0), (2, pytest.approx(70.0))], [(1, 60.0), (2, 80.0)]]
    axes = re.findall(r"'domain': \[[^]]*\]", str(section["charts"]))
    assert len(set(axes)) == 1
    (section,) = accuracy_section(series_of([plain()]))
    assert [chart["id"] for chart in section["charts"]] == ["accuracy"]


def test_charts_draw():
    for spec in (
        accuracy_chart(series_of([plain(), grouped()])),
        map_chart(grouped()),
        mix_chart(grouped()),
    ):
        assert "<svg" in vl_convert.vegalite_to_svg({**spec, "width": 300})


def test_shift_chart_stacks_what_was_noticed_and_marks_the_schedule():
    spec = shift_chart(grouped(rounds=COURSE))
    bars = data_of(spec, "round", "what", "low", "high")
    assert bars == [
        (1, "data changed", 0, 0),
        (2, "data changed", 0, 4),
        (2, "noticed: moved to another group", 0, 2),
        (2, "noticed: stayed", 2, 3),
        (3, "data changed", 0, 0),
        (4, "data changed", 0, 2),
        (4, "missed", 0, 2),
    ]
    assert sorted(data_of(spec, "round", "event", "clients")) == [
        (2, "swap all", 4),
        (3, "arrivals", 1),
        (4, "swap all", 2),
    ]
    assert shift_chart(grouped()) is None


def test_agreement_chart_shows_rounds_in_which_it_is_known():
    course = [{"round": 0, "agreement": None}, {"round": 1, "agreement": {"ari": -0.2, "nmi": 0.5}}]
    spec = agreement_chart([plain(), grouped(rounds=course)])
    assert sorted(data_of(spec, "round", "agreement")) == [(2, -0.2)]
    # A run that agrees fully is not hidden by the frame.
    assert spec["encoding"]["y"]["scale"]["domain"][1] > 1
    assert agreement_chart([plain(), grouped()]) is None


def test_lines_of_equal_agreement_do_not_hide_each_other():
    course = [{"round": t, "agreement": {"ari": 1.0, "nmi": 1.0}} for t in range(2)]
    runs = [grouped(name, rounds=course) for name in "abc"]
    svg = vl_convert.vegalite_to_svg({**agreement_chart(runs), "width": 300})
    lines = re.findall(r'aria-roledescription="line mark"[^>]*stroke-width="([\d.]+)"', svg)
    widths = [float(width) for width in lines]
    # Later ones are drawn above earlier ones: each has to be narrower.
    assert len(widths) == 3
    assert widths == sorted(set(widths), reverse=True)


def test_divergence_chart_compares_with_one_group():
    theory = {"divergence": 0.3, "divergence_one": 0.7, "bound": 2.0, "bound_one": 3.0}
    run = grouped(rounds=[{"round": 0, "accuracy": 0.5, "theory": theory}])
    assert sorted(data_of(divergence_chart(run), "round", "divergence")) == [(1, 0.3), (1, 0.7)]
    assert divergence_chart(grouped()) is None


def test_more_rows_than_altair_takes_by_itself_are_drawn():
    runs = [RunView(str(i), rows(*[0.5] * 400), np.zeros(1, int), "a") for i in range(15)]
    assert len(data_of(accuracy_chart(series_of(runs)), "round")) == 6000


def test_a_long_curve_is_thinned_and_keeps_its_end():
    course = [{"round": t, "accuracy": t / 10_000} for t in range(5001)]
    shown = sorted(
        data_of(
            accuracy_chart(series_of([RunView("x", course, np.zeros(1, int), "a")])),
            "round",
            "mean",
        )
    )
    assert 400 <= len(shown) <= 500
    assert shown[-1] == (5001, pytest.approx(50.0))


def test_members_are_shown_one_by_one_or_by_their_number():
    from coterie.report.figures.members import member_chart
    from coterie.report.view import Stay, stays_of

    run = both_methods()[1]
    assert stays_of(run)[0] == Stay(client=0, group=0, start=0, stop=2)
    assert sorted(data_of(member_chart(run), "client", "group"))[0] == ("a", "group 0")
    unknown = [{key: value for key, value in row.items() if key != "moves"} for row in run.rounds]
    sizes = member_chart(RunView("x", unknown, run.groups, run.names))
    assert ("group 1", 3) in data_of(sizes, "group", "clients")
    assert stays_of(RunView("x", unknown, run.groups, run.names)) is None
    assert member_chart(plain()) is None


def test_seconds_of_start_up_are_apart_from_those_of_a_round():
    parts = {"training": 1.0, "grouping": 0.5, "aggregation": 0.0, "evaluation": 0.25, "total": 2.0}
    course = [
        {"round": t, "accuracy": 0.5, "seconds": {**parts, "start_up": start_up}}
        for t, start_up in enumerate([3.0, 0.0])
    ]
    [section] = cost_section(series_of([grouped(rounds=course), plain()]))
    [chart] = section["charts"]
    assert sum(seconds for _, seconds in data_of(chart["spec"], "part", "seconds")) == 2.0
    columns, [row] = chart["table"]
    assert dict(zip(columns, row, strict=True))["start-up of a run, s"] == "3.0"
