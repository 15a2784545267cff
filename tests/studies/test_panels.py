"""The panels of the papers' figures: which runs they show, under which names, with which values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coterie.runs.folder.store import RunFolder
from coterie.studies.reproduce import PAPERS
from coterie.studies.reproduce.computed import FORMULAS
from coterie.studies.reproduce.outcome import DistanceMap, Outcome
from coterie.studies.reproduce.panels import (
    CURVES,
    BarPanel,
    CurvePanel,
    DistancePanel,
    GridPanel,
    ScatterPanel,
    panels_of,
    short_names,
)
from coterie.studies.reproduce.papers import Drawings, PaperTable
from coterie.studies.reproduce.tables import paper

ROUNDS = 3
TABLES = [(of, table) for of in PAPERS for table in paper(of).tables]
DRAWN = [(of, table) for of, table in TABLES if table.drawings.curves]
BARS = [(of, table) for of, table in TABLES if table.drawings.bars]


def table(of: str, name: str) -> PaperTable:
    return next(one for one in paper(of).tables if one.name == name)


def rows_of(method: str, seed: int) -> list[dict[str, Any]]:
    """Rows that say which method and seed they are of, and which value."""
    base = sum(map(ord, method)) % 97 + seed
    return [
        {
            "round": round,
            "accuracy": (base + round) / 1000,
            "loss": base + round + 0.1,
            "test_loss": base + round + 0.2,
            "discrepancy": base + round + 0.3,
            "cpd": {"label": base + round + 0.4},
        }
        for round in range(ROUNDS)
    ]


def written(folder: Path, method: str, seed: int) -> Path:
    run = folder / f"{method} {seed}"
    if not run.exists():
        stored = RunFolder.create(run, {"seed": seed})
        for row in rows_of(method, seed):
            stored.append_round(row)
    return run


def outcomes_of(of: PaperTable, folder: Path, seeds: int = 2) -> list[Outcome]:
    """Results of all lines of a table, each with the runs that it needs."""
    found = []
    for number, line in enumerate(of.lines):
        names = [line.method]
        if line.against is not None:
            names.append(line.against_method)
        runs: tuple[tuple[Path, ...], ...] = ()
        if not line.compute:
            # Runs of other rows are other runs.
            row = line.name.split("/")[0]
            (folder / row).mkdir(exist_ok=True)
            runs = tuple(
                tuple(written(folder / row, name, seed) for name in names) for seed in range(seeds)
            )
        found.append(Outcome(line, (float(number),), folders=runs))
    return found


def labels(panel: CurvePanel) -> list[str]:
    return [one.label for one in panel.series]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("of", "drawn"), DRAWN, ids=lambda x: getattr(x, "name", x))
def test_every_curve_is_the_value_of_its_own_method(
    of: str, drawn: PaperTable, tmp_path: Path
) -> None:
    panels = [
        panel
        for panel in panels_of(drawn, outcomes_of(drawn, tmp_path))
        if isinstance(panel, CurvePanel)
    ]
    rows = {line.name.split("/")[0] for line in drawn.lines if not line.compute}
    places = 1 if drawn.drawings.together else len(rows)
    assert len(panels) == places * len(drawn.drawings.curves)
    methods = {name for line in drawn.lines for name in (line.method, line.against_method) if name}
    short = dict(zip(short_names(sorted(methods)), sorted(methods), strict=True))
    for panel in panels:
        curve = next(one for one in CURVES.values() if one.title == panel.axis)
        assert len(set(labels(panel))) == len(labels(panel)) >= 1
        for series in panel.series:
            # A panel of one method shows its whole name.
            method = short.get(series.label, series.label)
            assert method in methods
            for point in series.points:
                values = [curve.value(rows_of(method, seed)[point.round]) for seed in range(2)]
                known = [value for value in values if value is not None]
                assert (point.low, point.high) == (min(known), max(known))
                assert point.mean == pytest.approx(sum(known) / 2)
            assert [point.round for point in series.points] == list(range(ROUNDS))


@pytest.mark.parametrize(("of", "drawn"), BARS, ids=lambda x: getattr(x, "name", x))
def test_every_bar_is_the_value_of_its_own_line(of: str, drawn: PaperTable, tmp_path: Path) -> None:
    outcomes = outcomes_of(drawn, tmp_path)
    found = {outcome.line.name: outcome for outcome in outcomes}
    shown = []
    for panel in panels_of(drawn, outcomes):
        if not isinstance(panel, BarPanel):
            continue
        # A label is a row or a column, and the value says of which line.
        names = [
            outcome.line.name
            for outcome in outcomes
            for bar in panel.bars
            if outcome.mean == bar.ours
        ]
        assert len(names) == len(panel.bars)
        for bar, name in zip(panel.bars, names, strict=True):
            assert bar.label in (name, *name.split("/"))
            assert bar.printed == found[name].line.printed
        shown += names
    assert sorted(shown) == sorted(found)


def test_every_drawing_is_of_a_kind_that_a_test_here_checks() -> None:
    others = {
        (of, table.name)
        for of, table in TABLES
        if replace(table.drawings, curves=(), together=False, bars=False) != Drawings()
    }
    assert others == {("fedgroup", "fig5"), ("fedgsp", "fig4"), ("fedclust", "fig1")}


@pytest.mark.parametrize("row", ["10-classes", "5-classes", "2-classes", "1-class"])
def test_the_panels_of_rfedavg_name_the_papers_four_methods(row: str, tmp_path: Path) -> None:
    fig2 = table("rfedavg", "fig2")
    by_title = {panel.title: panel for panel in panels_of(fig2, outcomes_of(fig2, tmp_path))}
    panel = by_title[f"{row}: accuracy, %"]
    assert isinstance(panel, CurvePanel)
    assert labels(panel) == ["rfedavg", "kmeans", "fedavg", "optimal"]


def test_the_bars_of_rfedavgs_sweep_are_its_numbers_of_clusters(tmp_path: Path) -> None:
    clusters = table("rfedavg", "clusters")
    outcomes = outcomes_of(clusters, tmp_path)
    one_class, two_classes = panels_of(clusters, outcomes)
    assert isinstance(one_class, BarPanel)
    assert isinstance(two_classes, BarPanel)
    assert [bar.label for bar in one_class.bars] == [str(n) for n in range(1, 11)]
    assert [bar.label for bar in two_classes.bars] == ["1", "3", "10"]
    of_one_class = [one.mean for one in outcomes if one.line.name.startswith("1-class/")]
    assert [bar.ours for bar in one_class.bars] == of_one_class


def test_the_ablation_of_fedgsp_shows_four_methods_in_three_panels(tmp_path: Path) -> None:
    fig3 = table("fedgsp", "fig3")
    panels = panels_of(fig3, outcomes_of(fig3, tmp_path))
    assert [panel.title for panel in panels] == [
        CURVES["cpd"].title,
        CURVES["accuracy"].title,
        CURVES["test_loss"].title,
    ]
    for panel in panels:
        assert isinstance(panel, CurvePanel)
        assert sorted(labels(panel)) == ["fedavg", "fedgsp", "naive", "naive-icg"]


def test_methods_that_are_rows_share_a_panel(tmp_path: Path) -> None:
    table1 = table("fedgsp", "1")
    first = panels_of(table1, outcomes_of(table1, tmp_path))[0]
    assert isinstance(first, CurvePanel)
    assert len(labels(first)) == 9
    assert {"fedavg", "fedyogi", "fedgsp"} <= set(labels(first))


def test_a_grid_has_a_cell_for_each_pair_of_options(tmp_path: Path) -> None:
    fig4 = table("fedgsp", "fig4")
    outcomes = outcomes_of(fig4, tmp_path)
    panels = panels_of(fig4, outcomes)
    axis = ": test loss, nats"
    assert [panel.title for panel in panels] == [f"linear{axis}", f"log{axis}", f"exp{axis}"]
    log = panels[1]
    assert isinstance(log, GridPanel)
    values = {outcome.line.name: outcome.mean for outcome in outcomes}
    assert set(log.cells) == {
        (alpha, beta, values[f"log/a{alpha}-b{beta}"])
        for alpha, beta in ((1, 10), (2, 5), (2, 10), (2, 20), (4, 10))
    }


def test_shares_of_groups_are_drawn_once_with_accuracy_computation_and_communication(
    tmp_path: Path,
) -> None:
    fig5 = table("fedgsp", "fig5")
    outcomes = outcomes_of(fig5, tmp_path)
    curves, *bars = panels_of(fig5, outcomes)
    kappas = [f"kappa={kappa}" for kappa in ("0.1", "0.2", "0.3", "0.5", "1")]
    assert isinstance(curves, CurvePanel)
    assert labels(curves) == kappas
    assert [panel.title for panel in bars] == [
        "best accuracy, %",
        "computation until 80 %, s",
        "communication until 80 %, s",
    ]
    values = {outcome.line.name: outcome.mean for outcome in outcomes}
    for panel, row in zip(bars, ("accuracy", "computation", "communication"), strict=True):
        assert isinstance(panel, BarPanel)
        shown = {bar.label: bar.ours for bar in panel.bars}
        assert shown == {kappa: values[f"{row}/{kappa}"] for kappa in kappas}


def test_costs_of_fedgsp_and_fedavg_stand_side_by_side_in_one_unit(tmp_path: Path) -> None:
    fig6 = table("fedgsp", "fig6")
    panels = panels_of(fig6, outcomes_of(fig6, tmp_path))
    methods = ["fedgsp", "fedavg", "fedgsp-measured", "fedavg-measured"]
    found = {
        panel.axis: [bar.label for bar in panel.bars]
        for panel in panels
        if isinstance(panel, BarPanel)
    }
    assert found == {
        "computation, s": methods,
        "communication, s": methods,
        "traffic, GB": methods,
        "saved by FedGSP, %": ["time", "traffic"],
    }


def test_a_legend_names_the_paper_only_where_it_prints_a_value(tmp_path: Path) -> None:
    for name, whose in (("fig5", ["ours"]), ("fig6", ["ours", "paper"])):
        drawn = table("fedgsp", name)
        (tmp_path / name).mkdir()
        panels = panels_of(drawn, outcomes_of(drawn, tmp_path / name))
        bars = next(panel for panel in panels if isinstance(panel, BarPanel))
        assert bars.spec()["encoding"]["color"]["scale"]["domain"] == whose


def test_bars_have_our_values_and_the_printed_ones(tmp_path: Path) -> None:
    fig6 = table("flexcfl", "fig6")
    outcomes = outcomes_of(fig6, tmp_path)
    panels = [one for one in panels_of(fig6, outcomes) if isinstance(one, BarPanel)]
    transfers = next(
        one for one in panels if one.title == "mnist-mclr: transfers, relative to FedAvg"
    )
    bars = {bar.label: bar for bar in transfers.bars}
    assert {"ifca-transfers", "fesem-transfers", "ifca-mig-transfers"} <= set(bars)
    assert bars["flexcfl-transfers"].printed == 1.26
    for outcome in outcomes:
        row, column = outcome.line.name.split("/")
        if row == "mnist-mclr" and outcome.line.unit == "ratio":
            assert bars[column].ours == outcome.mean


def test_a_curve_of_an_inter_group_rate_is_labelled_with_it(tmp_path: Path) -> None:
    for name in ("fig3d", "fig5"):
        drawn = table("flexcfl", name)
        (panel,) = panels_of(drawn, outcomes_of(drawn, tmp_path))
        assert isinstance(panel, CurvePanel)
        rates = [line.name.split("/")[1] for line in drawn.lines]
        assert labels(panel) == [f"eta_g={rate}" for rate in rates]


def test_ifca_and_fesem_move_what_the_formulas_say() -> None:
    lines = {line.name: line for line in table("flexcfl", "fig6").lines}
    ifca = lines["mnist-mclr/ifca-transfers"]
    fesem = lines["mnist-mclr/fesem-transfers"]
    # Three models down and one up, where FedAvg has one down and one up.
    assert FORMULAS[ifca.compute](ifca, None) == 2.0
    assert FORMULAS[fesem.compute](fesem, None) == 1.0


def test_a_scatter_has_the_points_of_its_own_line() -> None:
    fig5 = table("fedgroup", "fig5")
    outcomes = [
        Outcome(line, (0.9,), points=((number, 1.0), (number, 2.0)))
        for number, line in enumerate(fig5.lines)
    ]
    panels = [one for one in panels_of(fig5, outcomes) if isinstance(one, ScatterPanel)]
    assert [panel.title for panel in panels] == ["mnist-mclr", "femnist-mclr", "synthetic-mclr"]
    assert [panel.points[1] for panel in panels] == [(0, 2.0), (1, 2.0), (2, 2.0)]
    assert {panel.axes for panel in panels} == {("EDC", "MADC")}
    spec = panels[1].spec()
    assert spec["encoding"]["x"]["title"] == "EDC"
    assert spec["encoding"]["y"]["title"] == "MADC"
    # A line without points, as one whose data are missing, has no panel.
    assert panels_of(fig5, [Outcome(fig5.lines[0], problem="needs the data mnist")]) == []


def test_a_matrix_has_the_distances_of_its_own_line() -> None:
    fig1 = table("fedclust", "fig1")
    maps = [
        DistanceMap(((0.0, number), (number, 0.0)), groups=(1, 0), names=("a", "b"))
        for number in (1.0, 2.0)
    ]
    outcomes = [
        Outcome(line, (1.5,), distances=shown) for line, shown in zip(fig1.lines, maps, strict=True)
    ]
    panels = [one for one in panels_of(fig1, outcomes) if isinstance(one, DistancePanel)]
    assert [panel.title for panel in panels] == ["lenet5", "lenet5-final"]
    assert [panel.shown for panel in panels] == maps
    (cells, sides) = panels[1].spec()["datasets"].values()
    assert {cell["distance"] for cell in cells} == {0.0, 2.0}
    # Clients of a group stand side by side, so the second comes first.
    assert [side["who"] for side in sides] == ["b", "a"]
    # A line without distances, as one whose data are missing, has no panel.
    assert panels_of(fig1, [Outcome(fig1.lines[0], problem="needs the data cifar10")]) == []


def test_every_panel_can_be_drawn(tmp_path: Path) -> None:
    for of, name in (("rfedavg", "fig2"), ("fedgsp", "fig4"), ("flexcfl", "fig6")):
        drawn = table(of, name)
        (tmp_path / name).mkdir(exist_ok=True)
        for panel in panels_of(drawn, outcomes_of(drawn, tmp_path / name)):
            spec = panel.spec()
            assert spec["width"] == "container"
            assert "layer" in spec or "mark" in spec
