"""The papers' tables: every line has a valid configuration, every printed value a line, and the
runs come to a page."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from coterie.cli.main import invoke
from coterie.errors import ConfigError, SweepError
from coterie.studies.reproduce import PAPERS, LineOptions
from coterie.studies.reproduce.command import (
    choose,
    open_reproduction,
    raise_failures,
    reproduce_tables,
    with_profile,
)
from coterie.studies.reproduce.computed import (
    FORMULAS,
    NEED_DATA,
    compute_line,
    fedavg_transfers,
    flexcfl_transfers,
    seconds_of,
)
from coterie.studies.reproduce.datasets import missing_data
from coterie.studies.reproduce.metrics import METRICS
from coterie.studies.reproduce.outcome import Outcome, outcome_row
from coterie.studies.reproduce.page import write_reproduction
from coterie.studies.reproduce.papers import Line
from coterie.studies.reproduce.reproduction import Reproduction
from coterie.studies.reproduce.tables import paper, printed
from coterie.sweep.grid import read_seeds
from tests.forks import command
from tests.runs.calls import sweeps_here

LINES = [line for name in PAPERS for table in paper(name).tables for line in table.lines]


def tiny(line: Line, rounds: int = 3) -> Line:
    """The same line on the digits, with a few clients and rounds."""
    changed = {
        "data": {"source": "digits", "partition": {"kind": "planted", "clients": 6, "groups": 2}},
        "model": {"name": "mclr"},
        "local": {"epochs": 1, "lr": 0.1},
        "train": {"rounds": rounds, "clients_per_round": 3, "evaluate_every": 1},
        "engine": {"name": "serial"},
        "checkpoint": {"seconds": 0},
    }

    def small(tables: dict[str, Any] | None) -> dict[str, Any] | None:
        if tables is None:
            return None
        options = {k: v for k, v in tables["algorithm"].items() if k not in ("groups", "alpha")}
        few = {k: 2 for k in ("groups", "alpha") if k in tables["algorithm"]}
        return {**changed, "algorithm": {**options, **few}}

    return replace(line, tables=small(line.tables), against=small(line.against))


# --- the lines ------------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PAPERS)
@pytest.mark.parametrize("profile", ["quick", "full"])
def test_every_line_is_valid(name: str, profile: Any) -> None:
    for line in (with_profile(line, profile) for line in LINES if line.paper == name):
        configs = line.configs(seed=1)
        assert len(configs) == (0 if line.compute else 2 if line.against else 1)
        assert (line.how == "value") == (line.against is None)
        for config in configs:
            assert config.seed == 1
            assert config.train.rounds == line.rounds <= line.full_rounds
            assert line.seconds > 0
        if line.compute:
            assert line.compute in {*FORMULAS, *NEED_DATA}
        else:
            assert line.metric in METRICS
        if line.metric == "rounds_to":
            assert 0 < line.target < 1


@pytest.mark.parametrize("name", PAPERS)
def test_notes_are_explained_and_names_are_unique(name: str) -> None:
    of = paper(name)
    used = {
        key for t in of.tables for key in (*t.notes, *(k for line in t.lines for k in line.notes))
    }
    used |= {key for t in of.tables for line in t.lines for key in line.shortcut.get("notes", ())}
    assert used <= set(of.notes)
    assert set(of.notes) <= used
    for table in of.tables:
        assert table.lines
        names = [line.name for line in table.lines]
        assert len(set(names)) == len(names)
        assert all(name.count("/") == 1 for name in names)


def values(record: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every number of the printed tables, by its place."""
    if isinstance(record, Mapping):
        for key, inner in record.items():
            if key not in ("setting", "groups_m", "columns", "title", "remark"):
                yield from values(inner, (*place, key))
    elif isinstance(record, list):
        for at, inner in enumerate(record):
            yield from values(inner, (*place, at))
    elif not isinstance(record, str):
        yield place


def test_every_printed_value_has_a_line_or_a_reason() -> None:
    covered = {line.place for line in LINES}
    for name in PAPERS:
        for place in values(printed()[name], (name,)):
            key = next(part for part in reversed(place) if isinstance(part, str))
            spot = (
                f"{place[1]}.{'.'.join(p for p in place[2:] if isinstance(p, str) and p != 'rows')}"
            )
            excused = any(fnmatchcase(spot, f"{reason}*") for reason in paper(name).left_out)
            matched = key in ("classes", "classes_per_device")
            assert place in covered or key.endswith("_std") or matched or excused, place


def test_fedclust_has_a_number_of_clusters_and_its_sweep_has_nothing_in_print() -> None:
    lines = {f"{line.table} {line.name}": line for line in LINES if line.paper == "fedclust"}
    row = lines["1a fedclust/fmnist"]
    assert row.configs(seed=0)[0].algorithm.options["groups"] == 30
    assert "fedclust" in row.notes
    sweep = [line for line in lines.values() if line.table == "sweep"]
    assert len(sweep) == 24
    assert {line.printed for line in sweep} == {None}
    config = lines["sweep ward-by-share/5"].configs(seed=0)[0]
    assert config.algorithm.options["groups"] == 5
    assert config.algorithm.options["linkage"] == "ward"
    assert config.data.partition.options["test"] == "proportional"


def test_fedclusts_table_has_both_scorings_of_a_run_and_both_readings_of_a_test_set() -> None:
    found = {
        line.table: line
        for line in LINES
        if line.paper == "fedclust" and line.name == "pacfl/fmnist"
    }
    assert list(found) == ["1a", "1b", "1c", "1d"]
    assert {line.printed for line in found.values()} == {85.30}
    metrics = [line.metric for line in found.values()]
    assert metrics == ["mean_local", "mean_last_local", "mean_local", "mean_last_local"]
    configs = {table: line.configs(seed=0)[0] for table, line in found.items()}
    assert all(config.evaluate.local for config in configs.values())
    assert configs["1a"].resolved() == configs["1b"].resolved()
    assert configs["1c"].resolved() == configs["1d"].resolved()
    tests = [config.data.partition.options["test"] for config in configs.values()]
    assert tests == ["labels_present", "labels_present", "proportional", "proportional"]


def test_rfedavgs_sweeps_compare_what_the_paper_does_not_print() -> None:
    lines = {f"{line.table} {line.name}": line for line in LINES if line.paper == "rfedavg"}
    one_class = [line for line in lines if line.startswith("clusters 1-class/")]
    # One cluster is FedAvg.
    assert lines["clusters 1-class/1"].configs(seed=0)[1].algorithm.name == "fedavg"
    assert one_class == [f"clusters 1-class/{n}" for n in range(1, 11)]
    for n in range(2, 11):
        of_ccs, of_kmeans = lines[f"clusters 1-class/{n}"].configs(seed=0)
        assert of_ccs.algorithm.name == "rfedavg"
        assert of_kmeans.algorithm.options.get("clusters", 10) == n
        assert of_kmeans.data.partition.options["classes_per_client"] == 1
    ours, fedavg = lines["budget lr-0.005/25-rounds"].configs(seed=0)
    assert (ours.local.lr, fedavg.local.lr) == (0.005, 0.005)
    assert ours.data.partition.options["classes_per_client"] == 2
    assert lines["budget lr-0.005/25-rounds"].until == 25
    slow = lines["convergence 10-classes/optimal"]
    assert (slow.metric, slow.target, slow.rounds) == ("rounds_to", 0.95, 20)
    sweeps = [line for line in lines.values() if line.table != "fig2"]
    assert {line.printed for line in sweeps} == {None}


def test_every_panel_of_rfedavgs_figure_has_the_papers_four_curves() -> None:
    panels: dict[str, set[str]] = {}
    for line in LINES:
        if (line.paper, line.table) == ("rfedavg", "fig2"):
            row = line.name.split("/")[0]
            panels.setdefault(row, set()).update((line.method, line.against_method))
    assert list(panels) == ["10-classes", "5-classes", "2-classes", "1-class"]
    for methods in panels.values():
        assert methods == {"rfedavg", "kmeans", "optimal", "fedavg"}


def test_fedgsp_sweeps_the_number_of_groups_in_accuracies_and_distances() -> None:
    tables = {"sweep", "distance"}
    lines = {x.name: x for x in LINES if x.paper == "fedgsp" and x.table in tables}
    numbers = ["10", "20", "30", "52", "98", "147"]
    for number in numbers:
        for row, icg in (("naive", False), ("naive-icg", True)):
            (config,) = lines[f"{row}/{number}"].configs(seed=0)
            assert config.algorithm.options["groups"] == int(number)
            assert config.algorithm.options.get("icg", False) is icg
            assert config.train.rounds == 100
        for row in ("label-vs-random", "share-vs-clients"):
            assert lines[f"{row}/{number}"].arguments["groups"] == int(number)
    assert {line.printed for line in lines.values()} == {None}


def test_a_value_is_the_printed_one_and_a_dash_has_no_line() -> None:
    found = {(line.paper, line.table, line.name): line for line in LINES}
    assert found["flexcfl", "3", "femnist-mlp/rac"].printed == 69.4
    assert found["flexcfl", "4b", "mnist-cnn/fesem"].printed == 89.6
    assert found["fedclust", "1a", "pacfl/cifar10"].printed_std == 0.24
    assert found["rfedavg", "fig2", "5-classes/vs-optimal"].printed == -0.5
    assert ("flexcfl", "3", "synthetic-mclr/rac") not in found
    # The paper draws this curve and prints no value.
    assert found["rfedavg", "fig2", "2-classes/vs-optimal"].printed is None
    assert "P11" in found["flexcfl", "4b", "femnist-mclr/flexcfl-eta"].notes


def test_settings_are_those_of_the_papers() -> None:
    line = next(
        x
        for x in LINES
        if (x.paper, x.table, x.name) == ("flexcfl", "4a", "femnist-mclr/flexcfl-eta")
    )
    (config,) = line.configs(0)
    assert (config.local.epochs, config.local.lr, config.local.l2, config.train.rounds) == (
        10,
        0.003,
        0.001,
        300,
    )
    assert (config.algorithm.name, config.algorithm.groups, config.algorithm.eta_g) == (
        "flexcfl",
        5,
        5.0,
    )
    assert config.shifts()[0]["kind"] == "swap_all"
    line = next(
        x for x in LINES if (x.paper, x.table, x.name) == ("rfedavg", "fig2", "1-class/vs-kmeans")
    )
    assert [c.algorithm.name for c in line.configs(0)] == ["rfedavg", "rfedavg_kmeans"]
    line = next(
        x for x in LINES if (x.paper, x.table, x.name) == ("flexcfl", "3", "mnist-mclr/ifca-c1")
    )
    assert line.configs(0)[0].algorithm.weigh == "first_client"


def test_the_quick_profile_is_announced_as_at_most_twelve_minutes(tmp_path: Path) -> None:
    made = Reproduction(choose([], "quick"), [0], tmp_path)
    computing = sum(seconds_of(line) for line in made.lines)
    # SVHN has to be downloaded first, so the announcement is without its line.
    runs = [one for one in made.all_runs if one.config.data.source != "svhn"]
    assert sum(one.seconds for one in runs) + computing <= 12 * 60
    assert {line.paper for line in made.lines if not line.compute} == set(PAPERS)


@pytest.mark.parametrize("name", ["fedgroup", "flexcfl"])
def test_the_lines_of_femnist_have_seeds_near_the_printed_number_of_samples(name: str) -> None:
    lines = [line for line in LINES if line.paper == name]
    femnist = [line for line in lines if line.name.startswith("femnist")]
    assert {line.seeds for line in femnist} == {(2, 15, 25)}
    assert {line.seeds for line in lines if line not in femnist} == {()}
    # As many as the full profile has, so that no line has fewer runs than others.
    assert len(femnist[0].seeds) == paper(name).seeds


def test_a_line_runs_with_the_seeds_that_it_names(tmp_path: Path) -> None:
    chosen = choose(["flexcfl"], "full", "3", ["mnist-mclr/fedavg", "femnist-mclr/fedavg"])
    made = Reproduction(chosen, [0, 1], tmp_path)
    assert made.seeds_of == [[0, 1], [2, 15]]
    assert [[one.config.seed for (one,) in needs] for needs in made.needs] == [[0, 1], [2, 15]]


def test_seeds_of_the_command_line_are_those_of_all_lines(tmp_path: Path) -> None:
    rows = ["mnist-mclr/fedavg", "femnist-mclr/fedavg"]
    options = LineOptions("3", rows, "full", seeds="7,9")
    made, _ = open_reproduction(["flexcfl"], options, tmp_path)
    assert made.seeds_of == [[7, 9], [7, 9]]
    made, _ = open_reproduction(["flexcfl"], replace(options, seeds=None), tmp_path)
    assert made.seeds_of == [[0, 1, 2], [2, 15, 25]]


@pytest.mark.parametrize("name", PAPERS)
def test_the_quick_profile_has_a_line_of_every_table_and_figure(name: str) -> None:
    quick = choose([name], "quick")
    assert {line.table for line in quick} == {table.name for table in paper(name).tables}


def test_lines_are_chosen_by_table_and_row() -> None:
    assert {line.table for line in choose(["flexcfl"], "full", "4")} == {"4a", "4b", "4c", "4d"}
    (line,) = choose(["flexcfl"], "quick", "4b", ["mnist-mclr/flexcfl"])
    assert (line.rounds, line.full_rounds) == (100, 300)
    for wrong in ({"papers": ["fedgrup"]}, {"table": "9"}, {"rows": ["mnist"]}):
        with pytest.raises(ConfigError) as caught:
            choose(**{"papers": ["flexcfl"], "profile": "full", **wrong})  # type: ignore[arg-type]
        assert caught.value.problems[0].code == "unknown-choice"
    for text in ("", "a", "0-", "-1", "2-1", "0-99999"):
        with pytest.raises(ConfigError) as caught:
            read_seeds(text)
        assert caught.value.problems[0].path == "--seeds"


# --- formulas -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [x for x in LINES if x.compute and x.compute not in NEED_DATA and x.printed is not None],
    ids=lambda x: f"{x.paper} {x.table} {x.name}",
)
def test_computed_lines_give_what_is_printed(line: Line) -> None:
    found = compute_line(line)
    assert not found.problem
    within = {"ifca_mig": 0.06, "parameters": 0, "time_saved": 0.5, "traffic_saved": 0.5}.get(
        line.compute, 0.05
    )
    assert found.difference == pytest.approx(
        0, abs=within + (line.printed or 0) * 1e-4 * (within > 0)
    )


def cut(reading: str, against: str, classes_per_client: int) -> float:
    """What ICG cuts off the distance of planted groups of the digits."""
    line = next(x for x in LINES if (x.table, x.name) == ("distance", "label-vs-random/10"))
    partition = {"kind": "classes", "clients": 20, "classes_per_client": classes_per_client}
    data = {"source": "digits", "partition": partition}
    rest = {"train": {"rounds": 1, "clients_per_round": 5}, "algorithm": {"name": "fedavg"}}
    tables = {"data": data, "model": {"name": "mclr"}, **rest}
    arguments = {"groups": 4, "against": against, "reading": reading, "normalize": True}
    found = compute_line(replace(line, tables=tables, arguments=arguments))
    assert not found.problem
    return found.values[0]


@pytest.mark.parametrize("reading", ["label", "vector", "share"])
def test_grouping_cuts_the_distance_of_clients_more_than_that_of_random_groups(
    reading: str,
) -> None:
    of_clients = cut(reading, "clients", classes_per_client=2)
    of_random_groups = cut(reading, "random", classes_per_client=2)
    assert 0 < of_random_groups < of_clients < 100


def test_the_rise_of_a_loss_is_the_last_one_less_the_least() -> None:
    line = next(x for x in LINES if x.metric == "loss_rise")
    rows = [{"test_loss": loss, "accuracy": 0.5} for loss in (2.0, 0.5, None, 0.75)]
    assert METRICS["loss_rise"](rows, {}, line) == 0.25
    assert METRICS["loss_rise"]([{"accuracy": 0.5}], {}, line) is None


def test_transfers_are_those_of_the_ledger(tmp_path: Path) -> None:
    """The formula of Fig. 6 against what a run's ledger counts, once all clients were met."""
    line = tiny(
        next(x for x in LINES if (x.table, x.name) == ("fig6", "mnist-mclr/flexcfl-ledger")),
        rounds=4,
    )
    made = Reproduction([line], [0], tmp_path / "runs")
    carry(made)
    N = 6
    K = 3
    T = 4
    m = 2
    alpha = 2
    (found,) = made.outcomes()
    assert found.mean == flexcfl_transfers(N, K, T, m, alpha) / fedavg_transfers(N, K, T)


# --- runs -----------------------------------------------------------------------------------------


def carry(made: Reproduction) -> list[str]:
    """Carry out what is left; returns the algorithms that ran."""
    ran: list[str] = []

    def before(number: int, one: Any) -> Any:
        ran.append(one.config.algorithm.name)
        return lambda: None

    made.run(made.runs_left(), before=before)
    return ran


@pytest.fixture
def two_lines() -> list[Line]:
    lines = choose(["flexcfl"], "quick", "3", ["mnist-mclr/fedavg", "mnist-mclr/ifca-c1"])
    return [tiny(line) for line in lines]


def test_runs_are_done_once_and_come_to_a_page(two_lines: list[Line], tmp_path: Path) -> None:
    made = Reproduction(two_lines, [0, 1], tmp_path / "runs")
    assert carry(made) == ["fedavg", "coterie.studies.reproduce.faults:ifca"] * 2
    assert carry(Reproduction(two_lines, [0, 1], tmp_path / "runs")) == []
    outcomes = made.outcomes()
    for found in outcomes:
        assert len(found.values) == 2
        assert found.spread is not None
        summaries = [json.loads((f / "summary.json").read_text()) for (f,) in found.folders]
        assert found.values == tuple(100 * s["accuracy"]["max"] for s in summaries)
    text, html = write_reproduction(tmp_path, outcomes, "quick", [0, 1])
    shown = text.read_text(encoding="utf-8")
    row = next(line for line in shown.splitlines() if line.startswith("| mnist-mclr/fedavg"))
    gap = outcomes[0].difference
    assert "89.4" in row
    assert f"{gap:+.1f}" in row
    assert "3 of 300" in row
    assert "**C1**" in shown
    written = html.read_text(encoding="utf-8")
    assert "mnist-mclr/ifca-c1" in written
    assert "<script src" not in written
    # Texts are set left, with their heading, and figures right.
    assert '<th scope="col" class="text">notes</th>' in written
    assert '<td class="text">C7</td>' in written
    assert '<td class="figure">89.4</td>' in written
    data = json.loads((tmp_path / "reproduce.json").read_text())
    assert [line["line"] for line in data["lines"]] == ["mnist-mclr/fedavg", "mnist-mclr/ifca-c1"]
    for line, outcome in zip(data["lines"], outcomes, strict=True):
        assert line["values"] == list(outcome.values)
        assert line["seeds"] == [0, 1]
        assert len(line["last10"]) == 2


def test_a_difference_is_taken_seed_by_seed(tmp_path: Path) -> None:
    lines = [
        tiny(line)
        for line in choose(["rfedavg"], "quick", "fig2", ["1-class/vs-fedavg", "1-class/vs-kmeans"])
    ]
    made = Reproduction(lines, [0], tmp_path / "runs")
    assert sorted(carry(made)) == ["fedavg", "rfedavg", "rfedavg_kmeans"]
    by_name = {
        json.loads((f / "summary.json").read_text())["algorithm"]: f
        for f in (tmp_path / "runs").iterdir()
        if f.is_dir()
    }
    last = {
        k: json.loads((f / "summary.json").read_text())["accuracy"]["last10_mean"]
        for k, f in by_name.items()
    }
    found = {o.line.name: o.mean for o in made.outcomes()}
    assert found["1-class/vs-fedavg"] == pytest.approx(100 * (last["rfedavg"] - last["fedavg"]))
    assert found["1-class/vs-kmeans"] == pytest.approx(
        100 * (last["rfedavg"] - last["rfedavg_kmeans"])
    )


def test_a_line_may_be_read_off_the_first_rounds_of_a_run(tmp_path: Path) -> None:
    (line,) = choose(["rfedavg"], "full", "budget", ["lr-0.01/25-rounds"])
    whole = replace(tiny(line, rounds=4), until=0)
    begun = replace(whole, until=3)
    assert with_profile(replace(line, until=100), "quick").until == 25
    made = Reproduction([whole, begun], [0], tmp_path / "runs")
    # Both lines are read off the same two runs.
    assert sorted(carry(made)) == ["fedavg", "rfedavg"]
    last, early = made.outcomes()
    accuracy: dict[str, list[float]] = {}
    for folder in last.folders[0]:
        rows = [json.loads(row) for row in (folder / "rounds.jsonl").read_text().splitlines()]
        name = json.loads((folder / "summary.json").read_text())["algorithm"]
        accuracy[name] = [100 * row["accuracy"] for row in rows]
    gains = np.subtract(accuracy["rfedavg"], accuracy["fedavg"])
    assert last.mean == pytest.approx(gains.mean())
    assert early.mean == pytest.approx(gains[:3].mean())
    assert (last.rounds, early.rounds) == (4, 3)


@pytest.mark.parametrize(
    "line",
    [x for x in LINES if x.metric and x.table in ("1", "fig3")],
    ids=lambda x: f"{x.paper} {x.table} {x.name}",
)
def test_every_metric_reads_a_row(line: Line) -> None:
    row = {
        "round": 0,
        "accuracy": 0.9,
        "accuracy_mean": 0.8,
        "clients_assigned": 4,
        "discrepancy": 1.0,
        "test_loss": 0.3,
    }
    rows = [
        {**row, "cpd": {"label": 0.1}, "transfers": {"flexcfl": 8}},
        {**row, "round": 1, "cpd": {"label": None}},
    ]
    summary = {"accuracy": {"max": 0.9, "last10_mean": 0.9}}
    assert METRICS[line.metric](rows, summary, line) is not None


def test_the_end_of_a_run_is_its_last_ten_rounds_however_many_are_evaluated() -> None:
    line = next(line for line in LINES if line.metric == "end")
    every_fifth = [
        {"round": n, "accuracy": n / 100 if (n + 1) % 5 == 0 else None} for n in range(30)
    ]
    # Rounds 24 and 29, of 20 to 29.
    assert METRICS["end"](every_fifth, {}, line) == pytest.approx((24 + 29) / 2)
    assert METRICS["end"](every_fifth[:3], {}, line) is None


def test_a_failed_run_stops_no_other(two_lines: list[Line], tmp_path: Path) -> None:
    broken = {**(two_lines[0].tables or {}), "quorum": {"min_replies": 2}}
    broken["data"] = {
        "source": "file",
        "path": str(tmp_path / "none.npz"),
        "partition": {"kind": "iid", "clients": 4},
    }
    made = Reproduction(
        [replace(two_lines[0], tables=broken), two_lines[1]], [0], tmp_path / "runs"
    )
    carry(made)
    with pytest.raises(SweepError) as caught:
        raise_failures(made)
    assert "none.npz" in str(caught.value)
    assert "1 of 2" in str(caught.value)
    first, second = made.outcomes()
    assert "none.npz" in first.problem
    assert not first.values
    assert second.values


def test_missing_data_are_named_and_stop_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    out = tmp_path / "out"
    reproduce_tables(["fedclust", "fedgsp"], LineOptions(row=["fedclust/svhn", "saving/*"]), out)
    text = capsys.readouterr().out
    assert "left out: needs the data svhn (svhn/{train,test}.parquet under --data-root" in text
    assert "2 of 2 runs are left out because their data are missing" in text
    text = (out / "reproduce.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| fedclust/svhn"))
    assert "ufldl-stanford/svhn" in row
    assert "docs/reproduce.md" in row
    assert (
        next(line for line in text.splitlines() if line.startswith("| saving/time")).count("93.0")
        == 1
    )


@pytest.mark.parametrize(
    ("arguments", "dataset"),
    [
        (["rfedavg"], "mnist"),
        (["fedclust", "--row", "fedclust/svhn"], "svhn"),
        # Lines without a run, whose formula needs data.
        (["fedgsp", "--table", "distance"], "femnist"),
    ],
)
@pytest.mark.parametrize("root", ["", "none", "empty"])
def test_a_command_whose_data_are_all_missing_fails_with_one_line(
    arguments: list[str],
    dataset: str,
    root: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / root) if root else "")
    out = tmp_path / "out"
    assert invoke(["reproduce", *arguments, "--out", str(out)]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    got = {"": "(no folder)", "none": "none', which is not a folder", "empty": "' without them"}
    assert line.startswith("error: reproduce: the data of all lines are missing (")
    assert got[root] in line
    assert f"; expected a folder with {dataset}, by --data-root or COTERIE_DATA" in line
    # A page would say only that nothing is run yet.
    assert not out.exists()


# --- the command ----------------------------------------------------------------------------------


def made_up(root: Path) -> Path:
    """A folder with made-up images in MNIST's place."""
    rng = np.random.default_rng(0)
    for stem, count in (("train", 11_000), ("test", 1_000)):
        labels = np.arange(count) % 10
        blobs = {}
        for label in range(10):
            pixels = np.zeros((28, 28), np.uint8)
            pixels[2 * label : 2 * label + 6, 4:24] = 200 + rng.integers(0, 50)
            file = io.BytesIO()
            Image.fromarray(pixels).save(file, "PNG")
            blobs[label] = file.getvalue()
        (root / "mnist").mkdir(parents=True, exist_ok=True)
        table = pa.table({"image": [blobs[int(label)] for label in labels], "label": labels})
        pq.write_table(table, root / "mnist" / f"{stem}.parquet")
    return root


def test_the_command_runs_a_line_and_goes_on_after_a_signal(tmp_path: Path) -> None:
    root = made_up(tmp_path / "data")
    out = tmp_path / "out"
    arguments = [
        "reproduce",
        "flexcfl",
        "--table",
        "4b",
        "--row",
        "mnist-mclr/fedavg",
        "--out",
        str(out),
    ]
    arguments += ["--data-root", str(root)]
    process = command(*arguments)
    while process.poll() is None and not [
        r for r in out.glob("runs/*/rounds.jsonl") if r.stat().st_size > 5_000
    ]:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.ended()[0] == 143
    (rows,) = out.glob("runs/*/rounds.jsonl")
    done = rows.read_bytes().count(b"\n")
    assert 0 < done < 100
    assert "not run yet" in (out / "reproduce.md").read_text(encoding="utf-8")
    with sweeps_here():
        assert invoke(arguments) == 0
    assert [json.loads(line)["round"] for line in rows.read_text().splitlines()] == list(range(100))
    # What is done needs its data no more.
    shutil.rmtree(root)
    assert invoke(arguments) == 0
    row = next(
        x
        for x in (out / "reproduce.md").read_text(encoding="utf-8").splitlines()
        if "| 89.2 |" in x
    )
    assert re.search(r"\| 89\.2 \| [\d.]+ \| [+-][\d.]+ \| [\d.]+ \| 100 of 300 \|", row)


def test_a_list_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert (
        invoke(
            [
                "reproduce",
                "flexcfl",
                "--list",
                "--out",
                str(out),
                "--profile",
                "full",
                "--table",
                "4",
            ]
        )
        == 0
    )
    text = capsys.readouterr().out
    assert "flexcfl 4a mnist-mclr/fedavg" in text
    assert "about" in text
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["fedgrup"], "paper: unknown choice, got 'fedgrup'"),
        (["--profile", "slow"], "--profile: unknown choice, got 'slow'"),
        (["--table", "9"], "--table: unknown choice, got '9'"),
        (["rfedavg", "--row", "x"], "--row: unknown choice, got 'x'"),
        (["--seeds", "x"], "--seeds: not seeds, got 'x'"),
    ],
)
def test_what_is_unknown_is_one_line(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["reproduce", *arguments]) == 2
    (text,) = capsys.readouterr().err.splitlines()
    assert text.startswith(f"error: {line}")
    assert "; expected" in text


def test_cells_of_a_line_without_a_value() -> None:
    line = replace(LINES[0], printed=None)
    assert outcome_row(Outcome(line, problem="a|b"))[1:6] == ["-"] * 5
    assert (
        missing_data(choose(["fedgroup"], "full", "3", ["synthetic-mclr/ifca"])[0].configs(0)[0])
        == ""
    )
