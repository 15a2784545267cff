"""Whether grouping is worth it: the gain by hand, the bar, and that everybody says the same."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from scipy import stats

from coterie.cli.main import invoke
from coterie.data import load_partition
from coterie.headline import ACCURACY, Headline
from coterie.measures.client_table import ScoredClients
from coterie.measures.gains import gain_of
from coterie.measures.seeds import SeedOverlap
from coterie.measures.verdict import Candidate, ScoredRun, candidate, verdict
from coterie.report.comparison import final_difference
from coterie.report.load import views_of
from coterie.report.sections import sections
from coterie.report.series import series_of
from coterie.report.titles import headline
from tests.sweep.cases import TABLES

MAE = Headline("mae", "lower", "mm", "MAE")


def method(name: str, values: list[list[float]], groups: int = 1, data: str = "a") -> Candidate:
    """A method whose clients have so many samples as they have numbers, from 10."""
    runs = []
    for seed, each in enumerate(values):
        samples = np.arange(10, 10 + len(each))
        columns = {"correct": samples * np.array(each)}
        clients = ScoredClients("abcdef"[: len(each)], np.zeros(len(each), int), samples, columns)
        runs.append(ScoredRun(seed, data, clients))
    return Candidate(name, name, groups, runs)


def test_a_gain_is_weighted_by_samples_and_as_certain_as_clients_and_seeds_are() -> None:
    ours = np.array([[0.75, 0.5, 1.0], [0.75, 1.0, np.nan]])
    theirs = np.array([[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]])
    samples = np.array([[4.0, 2.0, 2.0], [4.0, 2.0, 0.0]])
    found = gain_of(ours, theirs, samples, ACCURACY)
    assert found is not None
    assert found.mean == pytest.approx((4 * 0.25 + 2 * 0.5 + 4 * 0.25 + 2 * 0.5) / 14)
    assert (found.won, found.lost, found.clients, found.seeds) == (3, 0, 3, 2)
    # Over clients: of a ratio of sums. Over seeds: of their two means.
    weights = np.array([8.0, 4.0, 2.0])
    sums = np.array([2.0, 1.0, 1.0])
    residuals = (sums - found.mean * weights) / weights.mean()
    over_clients = stats.t.ppf(0.975, 2) * stats.sem(residuals)
    over_seeds = stats.t.ppf(0.975, 1) * stats.sem([2 / 8, 2 / 6])
    assert found.half == pytest.approx(max(over_clients, over_seeds))
    # Errors: less is better.
    errors = gain_of(1 - ours, 1 - theirs, samples, MAE)
    assert errors is not None
    assert (errors.mean, errors.half) == pytest.approx((found.mean, found.half))
    assert errors.least == pytest.approx(0.005 * 0.5)


def test_seeds_that_reuse_samples_make_a_gain_less_certain() -> None:
    ours = np.array([[0.5, 0.5], [0.7, 0.7], [0.6, 0.6]])
    plain, reused = (
        gain_of(ours, np.zeros((3, 2)), np.full((3, 2), 8.0), ACCURACY, SeedOverlap(reuse))
        for reuse in (0.0, 1 / 3)
    )
    assert plain is not None
    assert reused is not None
    # With n = 3: Nadeau and Bengio's factor is the root of 1 + 3 r.
    assert reused.half == pytest.approx(plain.half * 2**0.5)


def test_the_figures_compared_are_the_means_of_clients_by_their_samples() -> None:
    ours = np.array([[0.75, 0.5, np.nan], [0.25, 1.0, 0.5]])
    theirs = np.array([[0.5, 0.5, 0.9], [0.5, 0.25, np.nan]])
    samples = np.array([[40.0, 20.0, 20.0], [40.0, 20.0, 10.0]])
    found = gain_of(ours, theirs, samples, Headline("auroc", "higher", "", "AUROC"))
    assert found is not None
    # Of the clients that both know, over both seeds.
    assert found.ours == pytest.approx((40 * 0.75 + 20 * 0.5 + 40 * 0.25 + 20 * 1.0) / 120)
    assert found.theirs == pytest.approx((40 * 0.5 + 20 * 0.5 + 40 * 0.5 + 20 * 0.25) / 120)
    assert found.mean == pytest.approx(found.ours - found.theirs)
    # One number of decimals, whatever the interval is.
    assert found.figures == ("0.583", "0.458")
    assert [len(text.split(".")[1]) for text in found.texts] == [3, 3]


def test_clients_are_counted_by_the_mean_of_their_gains() -> None:
    """Not by pairs of a client and a seed, and not by their samples."""
    ours = np.array([[0.9, 0.4, 0.5], [0.2, 0.8, 0.5]])
    found = gain_of(ours, np.full((2, 3), 0.5), np.array([[90.0, 9, 9], [10, 9, 9]]), ACCURACY)
    assert found is not None
    assert (found.won, found.lost, found.same) == (2, 0, 1)
    errors = gain_of(-ours, np.full((2, 3), -0.5), np.ones((2, 3)), MAE)
    assert errors is not None
    assert errors.ours == pytest.approx(-ours.mean())


def test_a_verdict_that_favours_training_alone_says_that_new_clients_have_no_model() -> None:
    between = verdict([FEDAVG, LOCAL, BETWEEN], ACCURACY)
    assert between.alone
    assert "cannot make predictions for new clients" in between.detail
    # Nothing is said where a method with groups is better, or FedAvg is.
    assert "new clients" not in verdict([FEDAVG, LOCAL, GOOD], ACCURACY).detail
    worse = method("local", [[0.1, 0.2, 0.3, 0.2]] * 3)
    assert "new clients" not in verdict([FEDAVG, worse, BETWEEN], ACCURACY).detail


@pytest.mark.parametrize(("groups", "grouped"), [((1, 1, 2), False), ((1, 2, 3), True)])
def test_a_method_has_groups_if_most_of_its_runs_ended_with_several(
    groups: tuple[int, ...], grouped: bool
) -> None:
    samples = np.full(6, 10)
    runs = [
        ({"seed": seed}, 3, ScoredClients("abcdef", np.arange(6) % count, samples, {}))
        for seed, count in enumerate(groups)
    ]
    assert candidate("ifca", "ifca", runs).grouped is grouped


def test_predictions_without_a_model_that_are_better_than_all_methods_are_named() -> None:
    samples = np.array([10, 30])

    def errors(name: str, mae: list[float], persistence: float, groups: int = 1) -> Candidate:
        columns = {
            "mae": np.array(mae),
            "mae_persistence": np.full(2, persistence),
            "mae_low": np.zeros(2),
            "mae_mean": np.full(2, 90.0),
        }
        clients = ScoredClients("ab", np.arange(2) % groups, samples, columns)
        return Candidate(name, name, groups, [ScoredRun(0, "a", clients)])

    def answer(persistence: float) -> tuple[str, dict[str, float]]:
        found = verdict(
            [
                errors("fedavg", [34.0, 34.0], persistence),
                errors("local", [40.0, 44.0], persistence),
                errors("fedgroup", [32.0, 33.0], persistence, groups=2),
            ],
            MAE,
        )
        return found.text, found.record()["clients_mean"]

    text, means = answer(31.0)
    assert "persistence" in text
    assert means == {"fedgroup": 32.75, "fedavg": 34.0, "persistence": 31.0}
    # It is better than FedAvg alone: the method beats it.
    text, means = answer(33.0)
    assert "persistence" not in text
    assert means == {"fedgroup": 32.75, "fedavg": 34.0}


def test_one_client_under_one_seed_proves_nothing() -> None:
    found = gain_of(np.array([[1.0]]), np.array([[0.0]]), np.array([[9.0]]), ACCURACY)
    assert found is not None
    assert found.answer == "not shown"
    assert gain_of(np.array([[np.nan]]), np.zeros((1, 1)), np.ones((1, 1)), ACCURACY) is None


FEDAVG = method("fedavg", [[0.5, 0.6, 0.7, 0.6]] * 3)
LOCAL = method("local", [[0.6, 0.7, 0.8, 0.7]] * 3)
GOOD = method("ifca", [[0.8, 0.9, 0.95, 0.85]] * 3, groups=2)
BETWEEN = method("fedgroup", [[0.55, 0.66, 0.74, 0.65]] * 3, groups=2)


def test_the_bar_is_the_better_of_fedavg_and_training_alone() -> None:
    found = verdict([FEDAVG, LOCAL, GOOD, BETWEEN], ACCURACY)
    assert (found.answer, found.method, found.bar) == ("helps", "ifca", "local")
    # Better than FedAvg for certain, and still not worth it.
    assert verdict([FEDAVG, LOCAL, BETWEEN], ACCURACY).answer == "does not help"
    worse = method("local", [[0.1, 0.2, 0.3, 0.2]] * 3)
    assert verdict([FEDAVG, worse, BETWEEN], ACCURACY).bar == "fedavg"
    # A method without groups is neither the bar nor an answer, however good.
    perfect = method("fedprox", [[1.0] * 4] * 3)
    assert verdict([FEDAVG, LOCAL, perfect, BETWEEN], ACCURACY).answer == "does not help"


@pytest.mark.parametrize(
    ("candidates", "missing"),
    [
        ([FEDAVG, GOOD], "there is no finished run of local"),
        ([GOOD], "there is no finished run of fedavg and no finished run of local"),
        (
            [FEDAVG, LOCAL, method("ifca", [[0.9] * 4])],
            "there is no method that ended with several groups in most of its runs",
        ),
        (
            [FEDAVG, LOCAL, method("ifca", [[0.9] * 4], groups=2, data="other")],
            "the runs have different clients, data or rounds",
        ),
    ],
)
def test_what_is_missing_is_said_and_nothing_else(
    candidates: list[Candidate], missing: str
) -> None:
    found = verdict(candidates, ACCURACY)
    assert found.answer == "unknown"
    assert found.text == f"Whether grouping is worth it is not known: {missing}."


def _test_to_training(run: Path) -> float:
    parts = load_partition(run / "partition.npz")
    return sum(map(len, parts.test)) / sum(map(len, parts.train))


def test_compare_report_and_card_give_one_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text(tomli_w.dumps(TABLES))
    methods = "fedavg,local,fedgroup"
    command = ["compare", "c.toml", "--algorithms", methods, "--seeds", "0-1", "--out", "s"]
    assert invoke(command) == 0
    record = json.loads(Path("s/verdict.json").read_text())
    assert record["answer"] != "unknown"
    # Each seed draws its twelve clients anew.
    assert (record["clients"], record["seeds"]) == (24, 2)
    # The figures that the verdict compares are in the tables of clients, of the report and of compare.
    means = record["clients_mean"]
    assert record["gain"] == pytest.approx(means[record["method"]] - means[record["bar"]])
    lines = Path("s/clients.md").read_text().splitlines()
    [shown] = [line for line in lines[: lines.index("")] + lines if "clients' mean |" in line][:1]
    section = next(one for one in sections(views_of(["s"])) if one["title"] == "Each client")
    for name, mean in means.items():
        assert f"{100 * mean:.1f} %" in record["text"]
        assert f" {100 * mean:.1f} |" in shown
        at = section["columns"].index(name)
        assert section["rows"][-1][at] == f"{100 * mean:.1f}"
    # Seeds draw their test samples anew, in compare as in the report.
    assert "Nadeau and Bengio" in record["text"]
    with open("s/table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    with open("s/runs.csv", newline="") as file:
        reached = [float(line["accuracy"]) for line in csv.DictReader(file)]
    gaps = np.subtract(reached[4:], reached[:2])
    ratio = np.mean([_test_to_training(Path("s", name)) for name in record["runs"]])
    half = stats.t.ppf(0.975, 1) * gaps.std(ddof=1) * np.sqrt(1 / 2 + ratio)
    assert (float(rows[2]["high"]) - float(rows[2]["low"])) / 2 == pytest.approx(half)
    fedavg, _, fedgroup = series_of(views_of(["s"]))
    assert final_difference(fedgroup, fedavg).half == pytest.approx(half)
    assert record["text"] in " ".join(capsys.readouterr().out.split())
    title = headline(views_of(["s"]))
    assert record["text"].startswith(f"{title}. ")
    run = Path("s", record["runs"][0])
    assert invoke(["export", str(run), "--out", "e"]) == 0
    assert record["text"] in " ".join(Path("e/README.md").read_text().split())
    # A run on its own says in one line what is missing.
    run.rename("alone")
    assert invoke(["export", "alone", "--out", "e2"]) == 0
    assert "Whether grouping is worth it is not known" in Path("e2/README.md").read_text()


def test_a_comparison_without_groups_leaves_no_verdict_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text(tomli_w.dumps(TABLES))
    for methods, known in (("fedavg,local,fedgroup", True), ("fedavg,local", False)):
        command = ["compare", "c.toml", "--algorithms", methods, "--seeds", "0", "--out", "s"]
        assert invoke(command) == 0
        assert Path("s/verdict.json").exists() == known


def test_a_verdict_names_the_methods_that_ended_with_one_group() -> None:
    """They stand above in the table, and are not the best method with groups."""
    better = method("ifca", [[0.9, 0.9, 0.9, 0.9]] * 3)
    found = verdict([FEDAVG, LOCAL, GOOD, better], ACCURACY)
    assert found.method == GOOD.name
    assert list(found.single) == ["ifca"]
    assert "ifca" in found.detail
    assert not verdict([FEDAVG, LOCAL, GOOD], ACCURACY).single
