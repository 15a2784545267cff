"""The page: complete in itself, escaped, and right about what it says."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from coterie.errors import ConfigError
from coterie.report import RunView, headline, write_figures, write_page
from coterie.report.charts.accuracy import accuracy_chart
from coterie.report.charts.clients import map_chart, mix_chart, rotated_to_axes
from coterie.report.charts.dendrogram import dendrogram
from coterie.report.charts.heat_map import heat_map
from coterie.report.charts.rounds import agreement_chart, divergence_chart, shift_chart
from coterie.report.tree import Tree
from coterie.report.view import (
    NewcomerPlacement,
    group_agreement,
    newcomer_placements,
    population_groups,
)

HOSTILE = "</script><img src=x onerror=alert(1)>"


def rows(*accuracies: float) -> list[dict]:
    return [
        {"round": t, "accuracy": a, "seconds": {"total": 0.5}} for t, a in enumerate(accuracies)
    ]


def plain(name: str = "FedAvg", final: float = 0.81) -> RunView:
    return RunView(name, rows(0.2, final), np.zeros(6, np.int64), [f"c{i}" for i in range(6)])


def grouped(name: str = "FedGroup", final: float = 0.931, **changes: object) -> RunView:
    planted = np.array([0, 0, 0, 1, 1, 1])
    fields: dict = {
        "groups": np.array([1, 1, 1, 0, 0, 1]),
        "names": [f"c{i}" for i in range(6)],
        "embedding": np.eye(3)[planted] + np.arange(18).reshape(6, 3) / 100,
        "histograms": np.array([[5, 1, 0]] * 3 + [[0, 2, 4]] * 3),
        "planted": planted,
        "joined": np.array([0, 0, 0, 0, 1, 1]),
        "newcomers": np.array([0, 0, 1, 0, 0, 1], bool),
    }
    return RunView(name, **{"rounds": rows(0.3, final), **fields, **changes})


class Scripts(HTMLParser):
    """Script elements, and every address that the page names in an attribute."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.scripts: list[tuple[dict, str]] = []
        self.addresses: list[str] = []
        self.policy = ""
        self.text = ""
        self.style = ""
        self._tag = ""
        self._inside: dict | None = None

    def handle_starttag(self, tag: str, attrs: list) -> None:
        named = dict(attrs)
        self.addresses += [v for k, v in attrs if k in ("src", "href")]
        if named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named["content"]
        self._tag = tag
        if tag == "script":
            self._inside = named
            self.scripts.append((named, ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = None if tag == "script" else self._inside
        self._tag = ""

    def handle_data(self, data: str) -> None:
        if self._inside is not None:
            self.scripts[-1] = (self._inside, self.scripts[-1][1] + data)
        elif self._tag == "style":
            self.style += data
        else:
            self.text += data


def parse(path) -> Scripts:
    parser = Scripts()
    parser.feed(path.read_text(encoding="utf-8"))
    return parser


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Scripts:
    names = [HOSTILE, *"abcde"]
    late = grouped(
        HOSTILE,
        names=names,
        newcomers=np.array([1, 0, 0, 0, 0, 1], bool),
        labels=[HOSTILE, "y", "z"],
    )
    path = write_page(
        tmp_path_factory.mktemp("report") / "deep" / "page.html", [plain(), late], HOSTILE
    )
    return parse(path)


def test_page_loads_nothing(page):
    assert [address for address in page.addresses if not address.startswith("#")] == ["data:,"]


def test_page_allows_its_own_scripts_only(page):
    runnable = [text for attrs, text in page.scripts if attrs.get("type") != "application/json"]
    hashes = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in runnable
    ]
    allowed = re.search(r"script-src ([^;]*)", page.policy)
    style = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    assert f"style-src 'sha256-{style}';" in page.policy
    assert "unsafe" not in page.policy
    assert "default-src 'none'" in page.policy
    assert allowed is not None
    assert allowed[1].split() == [f"'sha256-{h}'" for h in hashes]


def test_page_escapes_every_name(page):
    assert len(page.scripts) == 3
    assert page.text.count(HOSTILE) >= 3  # read back as text: title, heading, table


def test_page_has_the_charts(page):
    specs = json.loads(page.scripts[0][1])
    assert list(specs) == ["accuracy", "map-1", "mix-1"]
    assert "1 of 2" in page.text


def test_page_of_one_run_without_groups(tmp_path):
    path = write_page(tmp_path / "page.html", [plain()])
    assert list(json.loads(parse(path).scripts[0][1])) == ["accuracy"]


def test_page_of_nothing(tmp_path):
    assert "No round has been run yet" in parse(write_page(tmp_path / "page.html", [])).text


@pytest.mark.parametrize(
    ("with_groups", "words"),
    [(0.931, "gained 12.1 points"), (0.70, "lost 11.0 points"), (0.8102, "made no difference")],
)
def test_headline_says_what_grouping_did(with_groups, words):
    assert headline([plain(), grouped(final=with_groups)]).endswith(f"grouping {words}")


def test_headline_takes_the_best_of_each_kind():
    text = headline(
        [plain("weak", 0.5), plain("strong", 0.8), grouped("g1", 0.7), grouped("g2", 0.9)]
    )
    assert text == "g2 reached 90.0 %, strong 80.0 %: grouping gained 10.0 points"


def test_agreement_leaves_out_clients_without_a_group():
    groups = np.array([1, 1, -1, 0, 0, -1])
    assert group_agreement(grouped(groups=groups)) == 1.0
    assert group_agreement(grouped(planted=None)) is None
    assert group_agreement(grouped(groups=np.full(6, -1))) is None


def test_newcomers_are_right_where_their_population_lives():
    view = grouped()
    assert population_groups(view) == {0: 1, 1: 0}
    assert [(p.client, p.round, p.group, p.right) for p in newcomer_placements(view)] == [
        ("c2", 0, 1, True),
        ("c5", 1, 1, False),
    ]


def test_newcomer_without_a_group_is_not_right():
    placed = newcomer_placements(grouped(groups=np.array([1, 1, -1, 0, 0, 1]), joined=None))
    assert placed[0] == NewcomerPlacement("c2", None, None, population=0, right=False)


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
    data = [row for rows in accuracy_chart([plain(), late])["datasets"].values() for row in rows]
    assert {"round": 8, "text": "first newcomers"} in data


def test_a_field_with_another_number_of_clients_is_refused():
    with pytest.raises(ConfigError, match="planted: one entry per client, got 2; expected 6"):
        grouped(planted=np.array([0, 1]))


def numbered(*accuracies: float) -> RunView:
    """A run with groups of which everything that the page shows by round is known."""
    groups = np.array([0, 0, 0, 1, 1, -1])
    moves = [[client, int(group)] for client, group in enumerate(groups)]
    course = [
        {
            **row,
            "moves": [] if row["round"] else moves,
            "sizes": [3, 2],
            "newcomers": 5 if not row["round"] else 0,
            "agreement": {"ari": 0.5, "nmi": 0.5},
            "theory": {"divergence": 0.3, "divergence_one": 0.7},
            "transfers": {"down_bytes": 8, "up_bytes": 8},
            "shift": [{"shift": "swap_all", "pairs": [[0, 1]]}],
            "changed": 2,
        }
        for row in rows(*accuracies)
    ]
    return grouped(rounds=course, groups=groups)


def test_charts_and_tables_count_rounds_from_one():
    from coterie.report.sections import sections

    every = [numbered(0.2, 0.5, 0.6), plain()]
    shown = sections(every)
    charts = {chart["id"]: chart for section in shown for chart in section.get("charts", ())}
    by_round = {"accuracy", "bytes", "agreement", "members-0", "shift-0", "theory-0"}
    assert by_round <= set(charts)
    for name in by_round:
        columns, cells = charts[name]["table"]
        rounds = [int(row[columns.index("round")]) for row in cells]
        assert (min(rounds), max(rounds)) == (1, 3), name
        for field in ("round", "from", "to"):
            drawn = [number for (number,) in data_of(charts[name]["spec"], field)]
            assert not drawn or 1 <= min(drawn) <= max(drawn) <= 3, name
    late = next(section for section in shown if section["title"] == "Where newcomers were placed")
    assert [row[1] for row in late["rows"]] == ["1", "2"]


def test_the_page_names_one_difference_and_which_accuracy_it_is_of(tmp_path):
    from coterie.report.sections import sections

    every = [plain(final=0.7056), grouped(final=0.9332)]  # 70.6 and 93.3, 22.76 apart
    assert headline(every).endswith("grouping gained 22.8 points")
    table = next(section for section in sections(every) if section["title"] == "The runs")
    assert table["columns"][:3] == ["run", "final", "final against FedAvg"]
    assert table["rows"][1][2] == ("+22.8", "figure")
    assert "last evaluated round" in table["note"]
    assert "mean of the last ten" in table["note"]
    page = parse(write_page(tmp_path / "page.html", every))
    assert "Accuracies are those after the last evaluated round." in page.text


def test_the_page_says_which_clients_count_and_in_which_group():
    from coterie.report.sections import sections

    accuracy, table = sections([numbered(0.2, 0.5)])[:2]
    assert "A client that had one earlier and has none now does not count." in accuracy["note"]
    assert "a client counts in its last group" in table["note"]


@pytest.mark.parametrize(("groups", "width"), [(3, 640), (20, 640), (20, 320)])
def test_legends_of_files_fit_the_width(groups, width):
    from coterie.report.charts.gains import gain_chart
    from coterie.report.charts.style import LEGEND_LEFT, legend_columns, legend_widths

    many = RunView("x", rows(0.5), np.arange(60) % groups, ["c"] * 60, client_accuracy=np.ones(60))
    spec = gain_chart(many, many)
    (entry,) = legend_widths(spec)
    assert len(f"group {groups - 1}") * 7 < entry
    assert legend_columns(spec, width) * entry <= width - LEGEND_LEFT


def test_charts_draw():
    import vl_convert

    for spec in (accuracy_chart([plain(), grouped()]), map_chart(grouped()), mix_chart(grouped())):
        assert "<svg" in vl_convert.vegalite_to_svg({**spec, "width": 300})


def test_newcomers_do_not_answer_before_they_come():
    from coterie.cli.demo import Arrivals
    from coterie.core.keys import Key

    asked = []

    class Recorder:
        def run(self, work, ids, models, which, *, key):
            asked.append(ids.tolist())
            return ["reply"]

        def close(self):
            asked.append("closed")

    late = Arrivals(Recorder(), np.array([0, 3, 0]))
    ids = np.arange(3)
    for round in (2, 3):
        assert late.run(None, ids, None, ids, key=Key(0).at(round)) == ["reply"]
    assert late.run(None, np.array([1]), None, np.array([1]), key=Key(0).at(2)) == []
    late.close()
    assert asked == [[0, 2], [0, 1, 2], "closed"]


def test_demo_finds_the_planted_groups_and_says_so(tmp_path):
    import io

    from rich.console import Console

    from coterie.cli.demo import run_demo

    said = io.StringIO()
    path = run_demo(tmp_path, Console(file=said, width=200))
    assert path.parent == tmp_path
    assert "grouping gained" in parse(path).text
    assert "adjusted Rand index 1.00; 10 of 10 newcomers" in said.getvalue()
    assert said.getvalue().rstrip().endswith(f"page: {path.resolve()}")


# --- a run's course, its tree, its folder ---------------------------------------------------------


def shifted(round: int, events: list[dict], **counts: int) -> dict:
    zero = dict.fromkeys(("changed", "missed", "drifted", "migrations", "same_group"), 0)
    return {
        "round": round,
        "accuracy": None if round == 1 else 0.5,
        "shift": events,
        **zero,
        **counts,
    }


COURSE = [
    shifted(0, [{"shift": "awaited", "clients": [5]}]),
    shifted(
        1,
        [{"shift": "swap_all", "pairs": [[0, 1], [2, 3]]}],
        changed=4,
        drifted=3,
        migrations=2,
        same_group=1,
    ),
    shifted(2, [{"shift": "arrivals", "clients": [5]}]),
    shifted(3, [{"shift": "swap_all", "pairs": [[0, 1]]}], changed=2, missed=2),
]


def tree(n: int = 6, seed: int = 0) -> dict:
    import torch
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import pdist, squareform

    points = np.random.default_rng(seed).normal(size=(n, 2)) + 9 * (np.arange(n) % 2)[:, None]
    near = pdist(points)
    return {
        "tree": torch.from_numpy(linkage(near, "average")),
        "proximity": torch.from_numpy(squareform(near)).float(),
        "leaves": torch.arange(n).flip(0),
        "threshold": torch.tensor([4.0]),
    }


def data_of(spec: dict, *fields: str) -> list[tuple]:
    rows = [row for rows in spec["datasets"].values() for row in rows]
    return [tuple(row[f] for f in fields) for row in rows if set(fields) <= set(row)]


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
    assert sorted(data_of(spec, "round", "agreement")) == [(2, -0.2), (2, 0.5)]
    assert agreement_chart([plain(), grouped()]) is None


def test_the_legend_of_dashes_is_visible():
    import vl_convert

    course = [{"round": t, "agreement": {"ari": 0.5, "nmi": 0.5}} for t in range(2)]
    runs = [grouped("a", rounds=course), grouped("b", rounds=course)]
    spec = vl_convert.vegalite_to_vega({**agreement_chart(runs), "width": 300})
    dashes = next(legend for legend in spec["legends"] if "strokeDash" in legend)
    drawn = dashes.get("encode", {}).get("symbols", {}).get("update", {})
    assert drawn.get("stroke", {}).get("value") != "transparent"


def test_divergence_chart_compares_with_one_group():
    theory = {"divergence": 0.3, "divergence_one": 0.7, "bound": 2.0, "bound_one": 3.0}
    run = grouped(rounds=[{"round": 0, "accuracy": 0.5, "theory": theory}])
    assert sorted(data_of(divergence_chart(run), "round", "divergence")) == [(1, 0.3), (1, 0.7)]
    assert divergence_chart(grouped()) is None


def test_a_tree_that_cannot_be_drawn_is_not_drawn():
    import torch

    whole = tree()
    assert Tree.of(whole).threshold == 4
    for name, value in (
        ("tree", torch.zeros(2, 4)),
        ("tree", torch.full((5, 4), float("nan"))),
        ("leaves", torch.zeros(0, dtype=torch.int64)),
    ):
        assert Tree.of({**whole, name: value}) is None
    assert Tree.of({**whole, "threshold": torch.tensor([float("inf")])}).threshold is None
    assert Tree.of({**whole, "proximity": torch.zeros(5, 5)}).proximity is None
    assert Tree.of({}) is None


def test_dendrogram_colours_a_merge_by_its_group_and_names_the_leaves():
    groups = np.array([1, 0, 1, 0, 1, 0])
    names = [HOSTILE, *"bcdef"]
    found = Tree.of(tree())
    spec = dendrogram(found, groups, names)
    assert set(data_of(spec, "group", "merge")) >= {("several", 4)}
    assert [
        merge for group, merge in set(data_of(spec, "group", "merge")) if group == "several"
    ] == [4]
    ends = sorted(data_of(spec, "x", "client", "group"))
    assert [client for _, client, _ in ends] == [names[i] for i in found.order]
    assert sorted(found.order) == list(range(6))
    assert {(client, group) for _, client, group in ends} == {
        (n, f"group {g}") for n, g in zip(names, groups, strict=True)
    }


@pytest.mark.parametrize(("n", "cells"), [(6, 6), (150, 100)])
def test_heat_map_shows_the_matrix_in_the_order_of_the_tree(n, cells):
    found = Tree.of(tree(n))
    rows = found.rows
    groups = np.arange(n) % 2
    names = [str(i) for i in range(n)]
    spec = heat_map(found.proximity, rows, groups, names)
    shown = {(a, b): d for a, b, d in data_of(spec, "a", "b", "distance")}
    assert len(shown) == cells * cells
    if n == cells:
        assert shown[0, 1] == pytest.approx(found.proximity[rows[0], rows[1]], rel=1e-5)
        assert [who for _, who in sorted(set(data_of(spec, "at", "who")))] == [
            names[i] for i in rows
        ]
    else:
        assert all(np.isfinite(list(shown.values())))


def test_page_of_a_full_run_has_every_chart(tmp_path):
    theory = {"divergence": 0.3, "divergence_one": 0.7, "bound": None, "bound_one": None}
    course = [{**row, "agreement": {"ari": 1.0, "nmi": 1.0}, "theory": theory} for row in COURSE]
    run = grouped(rounds=course, tree=Tree.of(tree()))
    page = parse(write_page(tmp_path / "page.html", [run]))
    expected = [
        "accuracy",
        "agreement",
        "map-0",
        "mix-0",
        "shift-0",
        "theory-0",
        "tree-0",
        "near-0",
    ]
    assert set(json.loads(page.scripts[0][1])) == set(expected)
    paths = write_figures(tmp_path / "png", [run])
    assert [path.name for path in paths] == [f"{name}.png" for name in expected]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_more_rows_than_altair_takes_by_itself_are_drawn():
    runs = [RunView(str(i), rows(*[0.5] * 400), np.zeros(1, int), "a") for i in range(15)]
    assert len(data_of(accuracy_chart(runs), "round")) == 6000


def test_a_long_curve_is_thinned_and_keeps_its_end():
    course = [{"round": t, "accuracy": t / 10_000} for t in range(5001)]
    shown = sorted(
        data_of(accuracy_chart([RunView("x", course, np.zeros(1, int), "a")]), "round", "mean")
    )
    assert 400 <= len(shown) <= 500
    assert shown[-1] == (5001, pytest.approx(50.0))


def test_a_run_folder_becomes_a_page(tmp_path, monkeypatch, capsys):
    from pathlib import Path

    from coterie.cli.main import invoke
    from coterie.report.load import view_of

    monkeypatch.chdir(tmp_path)
    planted = '[data]\nsource = "digits"\n[data.partition]\nkind = "planted"\nclients = 8\ngroups = 2\nhow = "swap"\n'
    method = '[model]\nname = "mclr"\n[local]\nepochs = 1\n[algorithm]\nname = "fedgroup"\ngroups = 2\nalpha = 2\n'
    rest = '[train]\nrounds = 4\nclients_per_round = 8\n[engine]\nname = "serial"\n[checkpoint]\nseconds = 0\n'
    late = '[[shift]]\nkind = "arrivals"\nround = 2\ncount = 1\n[[shift]]\nkind = "swap_all"\np = 1.0\nstart = 3\n'
    Path("c.toml").write_text(planted + method + rest + late)
    assert invoke(["run", "c.toml", "--out", "r"]) == 0
    assert "groups    2 found, of 8 clients: " in (said := capsys.readouterr().out)
    assert "agreement adjusted Rand index" in said
    view = view_of("r")
    assert view.newcomer_ids.tolist() == [int(i) for i in arrived(view)]
    assert view.joined[view.newcomer_ids].tolist() == [2]
    assert sorted(view.planted.tolist()) == [0] * 4 + [1] * 4
    assert invoke(["report", "r", "--figures", "png"]) == 0
    assert "page: " in capsys.readouterr().out
    page = parse(Path("r/report.html"))
    every = {"accuracy", "bytes", "time", "agreement", "members-0", "map-0", "mix-0", "shift-0"}
    assert set(json.loads(page.scripts[0][1])) == every
    assert "fedgroup on digits (planted), mclr, seed 0." in page.text
    assert {p.stem for p in Path("png").iterdir()} == every
    assert invoke(["report", "r", "r", "--out", "both.html"]) == 0
    assert invoke(["report", "nowhere"]) == 2
    Path("r/rounds.jsonl").write_text('{"round": 0, "accuracy": 1}\n{"round": 1, "shift": 3}\n')
    assert invoke(["report", "r"]) == 4


def arrived(view) -> list[int]:
    return [
        c
        for row in view.rounds
        for event in row["shift"]
        if event["shift"] == "arrivals"
        for c in event["clients"]
    ]


# --- several seeds, and who wins ------------------------------------------------------------------


def seeded(name: str, seed: int, final: float, groups: list[int], each: list[float]) -> RunView:
    moves = [[i, g] for i, g in enumerate(groups)]
    course = [
        {**row, "moves": moves if not at else [], "sizes": [3, 3]}
        for at, row in enumerate(rows(0.2, final))
    ]
    tables = {"seed": seed, "algorithm": {"name": name}}
    return RunView(
        name,
        course,
        np.array(groups),
        list("abcdef"),
        tables=tables,
        client_accuracy=np.array(each),
    )


def both_methods() -> list[RunView]:
    found = []
    for seed, off in ((0, 0.0), (1, 0.02)):
        found.append(seeded("fedavg", seed, 0.7 + off, [0] * 6, [0.7] * 6))
        found.append(
            seeded("fedgroup", seed, 0.8 + off, [0, 0, 0, 1, 1, 1], [0.9, 0.9, 0.9, 0.8, 0.7, 0.5])
        )
    return found


def test_runs_that_differ_in_their_seeds_are_one_series_with_a_band():
    from coterie.report.series import series_of

    found = series_of(both_methods())
    assert [(one.name, len(one.runs)) for one in found] == [("fedavg", 2), ("fedgroup", 2)]
    last = found[1].curve()[-1]
    assert [round(value, 6) for value in (last.mean, last.low, last.high)] == [0.81, 0.8, 0.82]
    spec = accuracy_chart(both_methods())
    assert ("fedgroup", 80.0, 82.0) in {
        (run, round(a, 6), round(b, 6)) for run, a, b in data_of(spec, "run", "low", "high")
    }


def test_the_headline_tells_the_uncertainty_over_seeds_and_the_lead_who_won():
    from coterie.report.titles import gain_sentence

    assert headline(both_methods()) == (
        "fedgroup reached 81.0 %, fedavg 71.0 %: grouping gained 10.0 points (± 0.0, 2 seeds)"
    )
    assert (
        gain_sentence(both_methods())
        == "Under fedgroup 8 of 12 clients over 2 seeds won and 2 lost against fedavg."
    )


def test_runs_that_scored_different_clients_are_compared_over_all():
    from coterie.report.sections import sections

    def scored(name: str, member: list[int], accuracy: float, whole: float) -> RunView:
        known = sum(g >= 0 for g in member)
        row = {"round": 0, "accuracy": accuracy, "accuracy_all": whole, "clients_assigned": known}
        return RunView(name, [row], np.array(member), "abc")

    found = [scored("fedavg", [0, 0, 0], 0.5, 0.5), scored("fedgroup", [0, 1, -1], 0.9, 0.6)]
    assert headline(found) == (
        "fedgroup reached 60.0 %, fedavg 50.0 % over all clients, with a group or without: grouping gained 10.0 points"
    )
    others = RunView("other", [{"round": 0, "accuracy": 0.5}], np.zeros(3, int), "xyz")
    assert headline([others, found[1]]).endswith("not comparable, the clients or the seeds differ")
    table = next(section for section in sections(found) if section["title"] == "The runs")
    assert "over all" in table["note"]
    assert table["rows"][1][2] == ("+10.0", "figure")


def test_a_page_that_cannot_be_written_is_refused_in_a_line(tmp_path):
    from coterie.errors import ConfigError

    with pytest.raises(ConfigError, match="--out: cannot be written"):
        write_page(tmp_path, [plain()])


def test_clients_are_compared_only_over_the_same_data():
    from dataclasses import replace

    from coterie.report.comparison import summarise_gains
    from coterie.report.series import series_of

    base, ours = series_of(both_methods())
    found = summarise_gains(ours, base)
    assert (found.won, found.lost, found.same) == (8, 2, 2)
    assert found.mean == pytest.approx(0.25 / 3)
    assert found.worst_tenth == pytest.approx(-0.2)
    other = replace(ours, runs=tuple(replace(run, data_id="other data") for run in ours.runs))
    assert summarise_gains(other, base) is None


def test_the_page_of_a_sweep_says_who_won_and_who_lost(tmp_path):
    page = parse(write_page(tmp_path / "page.html", both_methods()))
    assert {"gain-1", "before-after-1", "members-1"} <= set(json.loads(page.scripts[0][1]))
    assert "8 of 12 clients won, 2 lost, 2 stayed as they were" in page.text
    assert "+10.0 ± 0.0" in page.text


def test_members_are_shown_one_by_one_or_by_their_number():
    from coterie.report.charts.members import Stay, member_chart, stays_of

    run = both_methods()[1]
    assert stays_of(run)[0] == Stay(client=0, group=0, start=0, stop=2)
    assert sorted(data_of(member_chart(run), "client", "group"))[0] == ("a", "group 0")
    unknown = [{key: value for key, value in row.items() if key != "moves"} for row in run.rounds]
    sizes = member_chart(RunView("x", unknown, run.groups, run.names))
    assert ("group 1", 3) in data_of(sizes, "group", "clients")
    assert stays_of(RunView("x", unknown, run.groups, run.names)) is None
    assert member_chart(plain()) is None


def test_folders_of_a_sweep_become_one_page(tmp_path, capsys):
    from coterie.cli.main import invoke
    from coterie.config import check
    from coterie.report.load import run_folders, views_of
    from coterie.runs.run import run_config

    planted = {"kind": "planted", "clients": 8, "groups": 2, "how": "swap"}
    method = {"fedavg": {"name": "fedavg"}, "ifca": {"name": "ifca", "groups": 2}}
    for at, (name, seed) in enumerate((name, seed) for seed in (0, 1) for name in method):
        tables = {
            "seed": seed,
            "data": {"source": "digits", "partition": planted},
            "model": {"name": "mclr"},
            "local": {"epochs": 1},
            "train": {"rounds": 2, "clients_per_round": 8},
            "algorithm": method[name],
            "engine": {"name": "serial"},
        }
        run_config(check(tables), tmp_path / "sweep" / f"{at}")
    assert [
        folder.name for folder in run_folders([tmp_path / "sweep", tmp_path / "sweep" / "1"])
    ] == list("0123")
    views = views_of([tmp_path / "sweep"])
    assert [view.histograms is None for view in views] == [False, False, True, True]
    assert views[1].embedding is not None
    assert views[0].data_id == views[1].data_id != views[2].data_id
    assert invoke(["report", str(tmp_path / "sweep")]) == 0
    page = parse(tmp_path / "sweep" / "report.html")
    assert "fedavg on digits (planted), mclr, seeds 0, 1" in page.text
    assert "Configuration and versions" in page.text
    assert (
        invoke(
            [
                "plot",
                str(tmp_path / "sweep"),
                "--chart",
                "time",
                "--out",
                str(tmp_path / "time.svg"),
            ]
        )
        == 0
    )
    assert "<svg" in (tmp_path / "time.svg").read_text()
    assert invoke(["report", str(tmp_path)]) == 2
    assert "no run" in capsys.readouterr().err
