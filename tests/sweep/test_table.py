"""The table of a sweep: what its figures are, and how it is written."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coterie.headline import Headline
from coterie.runs.folder.store import RunFolder
from coterie.runs.scores import ClientScores
from coterie.sweep import comparison
from coterie.sweep.comparison import Difference, Row, SweepTable, paired, tabulate
from coterie.sweep.measured import Measured, measure
from coterie.sweep.plan import make_plan
from coterie.sweep.table import column_names, notes, row_texts
from coterie.sweep.table_files import comparison_csv, comparison_markdown, latex
from coterie.sweep.tuning import Tuned

HOSTILE = "a|b_c & <i> 5% \\x [y] ~^"


def test_paired_differences() -> None:
    found = paired([0.02, 0.04, 0.03])
    assert found is not None
    assert found.mean == pytest.approx(0.03)
    assert found.half == pytest.approx(
        4.302652729911275 * 0.01 / 3**0.5
    )  # t of 0.975, two degrees of freedom
    assert paired([0.1]) == Difference(0.1, None, 1)
    assert paired([]) is None
    assert paired([0.5, 0.5]) == Difference(0.5, 0.0, 2)


@pytest.fixture
def tabled(config: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SweepTable]:
    """The table of made-up measures: (algorithm, seed) -> accuracy, ``None`` for a run that is not
    done."""

    def made(
        accuracy: dict[tuple[str, int], float | None], grid: tuple[str, ...] = (), **options: Any
    ) -> SweepTable:
        names, seeds = (list(dict.fromkeys(key[at] for key in accuracy)) for at in (0, 1))
        plan = make_plan(config, names, seeds, grid)
        known = {run.id: accuracy[run.algorithm, run.seed] for run in plan.runs}
        monkeypatch.setattr(comparison, "is_done", lambda run, out: known[run.id] is not None)
        monkeypatch.setattr(
            comparison,
            "measure",
            lambda path, *_: Measured(
                known[path.name], 4 if known[path.name] > 0.5 else None, 1000, 2.0
            ),
        )
        return tabulate(plan, Path("s"), options.pop("baseline", names[0]), **options)

    return made


def test_a_row_is_over_seeds_and_a_missing_run_is_said(tabled: Callable[..., SweepTable]) -> None:
    table = tabled(
        {("fedavg", 0): 0.5, ("fedavg", 1): 0.6, ("ifca", 0): 0.7, ("ifca", 1): None}, target=0.5
    )
    one, other = table.rows
    assert (one.mean, one.sd, one.difference, one.reached) == (
        pytest.approx(0.55),
        pytest.approx(0.1 / 2**0.5),
        None,
        1,
    )
    assert (other.done, other.planned, other.sd) == (1, 2, None)
    assert other.difference == Difference(pytest.approx(0.2), None, 1)
    lines = row_texts(table)
    assert lines[0] == ["fedavg", "2", "55.00", "7.07", "-", "-", "4.0 (1 of 2)", "1.0 kB", "2.0"]
    assert lines[1] == ["ifca", "1 of 2", "70.00", "-", "+20.00", "-", "4.0", "1.0 kB", "2.0"]


def test_one_seed_has_no_interval_and_says_so(tabled: Callable[..., SweepTable]) -> None:
    table = tabled({("fedavg", 0): 0.5, ("ifca", 0): 0.4})
    assert row_texts(table)[1][3:6] == ["-", "-10.00", "-"]
    assert "With one seed there is no interval." in " ".join(notes(table))


def test_an_interval_of_few_seeds_says_that_it_may_be_narrow_by_chance(
    tabled: Callable[..., SweepTable],
) -> None:
    few = {(name, seed): 0.5 for name in ("fedavg", "ifca") for seed in range(3)}
    assert "With so few seeds it may be narrow by chance" in " ".join(notes(tabled(few)))
    enough = {(name, seed): 0.5 for name in ("fedavg", "ifca") for seed in range(5)}
    assert "narrow" not in " ".join(notes(tabled(enough)))


@pytest.mark.parametrize(
    ("over_clients", "line"),
    [
        (
            0.3,
            "ifca is better than fedavg in accuracy over all samples, and worse in its mean over",
        ),
        (0.6, None),
    ],
)
def test_samples_and_clients_that_disagree_are_named(
    tabled: Callable[..., SweepTable], over_clients: float, line: str | None
) -> None:
    table = tabled({("fedavg", 0): 0.5, ("ifca", 0): 0.7})
    way = SimpleNamespace(name="accuracy")
    rows = [
        replace(row, scores=(ClientScores(way, row.mean, mean, None, None, None),))
        for row, mean in zip(table.rows, (0.4, over_clients), strict=True)
    ]
    said = " ".join(notes(replace(table, rows=rows)))
    assert (line in said) if line else ("look at both" not in said)


def test_samples_and_clients_that_disagree_are_named_where_settings_were_tuned(
    tabled: Callable[..., SweepTable],
) -> None:
    grid = ("local.lr=0.1,0.2",)
    table = tabled({("fedavg", 0): 0.5, ("ifca", 0): 0.7}, grid)
    way = SimpleNamespace(name="accuracy")
    rows = [
        replace(table.rows[at], scores=(ClientScores(way, 0.5, mean, None, None, None),))
        for at, mean in ((0, 0.4), (3, 0.3))  # the first rate of FedAvg, the second of IFCA
    ]
    tuning = {name: Tuned(2, (), best=at) for at, name in enumerate(("fedavg", "ifca"))}
    said = " ".join(notes(replace(table, rows=tuple(rows), tuning=tuning)))
    assert "ifca is better than fedavg in accuracy over all samples, and worse" in said


def test_rows_that_score_different_clients_say_so(tabled: Callable[..., SweepTable]) -> None:
    table = tabled({("fedavg", 0): 0.5, ("ifca", 0): 0.4})
    counted = [
        replace(row, scored=scored) for row, scored in zip(table.rows, (30, 12), strict=True)
    ]
    assert "Clients scored at the end: fedavg 30, ifca 12." in " ".join(
        notes(replace(table, rows=counted))
    )
    same = [replace(row, scored=30) for row in table.rows]
    assert "scored" not in " ".join(notes(replace(table, rows=same)))


def test_rows_compared_with_different_baselines_have_different_values(
    tabled: Callable[..., SweepTable],
) -> None:
    both = {("fedavg", 0): 0.5, ("fedgroup", 0): 0.7}
    grid = ("algorithm.groups=2,3",)
    assert [row.values for row in tabled(both, grid).rows] == [("-",), ("2",), ("3",)]
    assert [
        (row.algorithm, row.values) for row in tabled(both, grid, baseline="fedgroup").rows
    ] == [
        *(("fedavg", ("2",)), ("fedavg", ("3",))),
        *(("fedgroup", ("2",)), ("fedgroup", ("3",))),
    ]


def test_latex_has_mean_and_deviation_in_a_cell_and_the_best_in_bold(
    tabled: Callable[..., SweepTable],
) -> None:
    table = tabled({("fedavg", 0): 0.5, ("fedavg", 1): 0.6, ("ifca", 0): 0.7, ("ifca", 1): 0.8})
    rows = [line for line in latex(table).splitlines() if line.endswith(r"\\")]
    assert [row.split(" & ")[2] for row in rows[1:]] == [
        r"55.00 $\pm$ 7.07",
        r"\textbf{75.00 $\pm$ 7.07}",
    ]
    lower = replace(table, headline=Headline("mae", "lower", ""))
    assert latex(lower).splitlines()[-4].startswith(r"fedavg & 2 & \textbf{0.55")


def test_names_are_escaped_in_every_table() -> None:
    row = Row(HOSTILE, (HOSTILE,), 1, 1, 0.5, None, Difference(-0.01, 0.02, 3), 0, None, 10.0, 1.0)
    table = SweepTable((HOSTILE,), (0, 1, 2), HOSTILE, None, "max", (row,))
    head, rule, line = comparison_markdown(table).splitlines()[:3]
    assert {len(re.findall(r"(?<!\\)\|", text)) for text in (head, rule, line)} == {10}
    assert "<" not in head + line
    tex = latex(table).splitlines()
    (line,) = (text for text in tex if text.startswith("a|b"))
    assert line.startswith(
        r"a|b\_c \& \textless{}i\textgreater{} 5\% \textbackslash{}x {[}y{]} \textasciitilde{}"
    )
    assert len(re.findall(r"(?<!\\)&", line)) == 6
    assert r"$-$1.00 $\pm$ 2.00" in line
    (read,) = list(csv.reader(comparison_csv(table).splitlines()))[1:]
    assert read[:2] == [HOSTILE, HOSTILE]
    assert read[5:8] == ["-0.01", "-0.03", "0.01"]


def test_the_target_counts_once_everybody_has_a_group(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "r", {"seed": 0, "train": {"rounds": 4}})
    for t, (accuracy, clients) in enumerate([(0.9, 3), (0.4, 12), (None, 12), (0.8, 12)]):
        moved = {"down_bytes": 10, "up_bytes": 5}
        folder.append_round(
            {"round": t, "accuracy": accuracy, "clients_assigned": clients, "transfers": moved}
        )
    folder.results.write_summary({"accuracy": {"max": 0.8}, "seconds": {"total": 3.0}})
    assert [one.value for one in measure(folder.path, 0.8, "max").scores] == [0.8]

    def without_scores(target: float | None) -> Measured:
        return replace(measure(folder.path, target, "max"), scores=())

    assert without_scores(0.8) == Measured(0.8, 4, 60, 3.0, 12)
    assert without_scores(0.85) == Measured(0.8, None, None, 3.0, 12)
    assert without_scores(None) == Measured(0.8, None, 60, 3.0, 12)


@pytest.mark.parametrize(
    ("figure", "head"), [("last10_mean", "last ten"), ("max", "best"), ("final", "final")]
)
def test_the_table_says_which_accuracy_it_compares(figure: Any, head: str) -> None:
    row = Row("fedavg", (), 1, 1, 0.5, None, None, 0, None, 10.0, 1.0)
    table = SweepTable((), (0,), "fedavg", None, figure, (row,))
    assert f"accuracy ({head}), %" in column_names(table)
