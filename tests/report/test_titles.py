"""What a page says in words, and what it compares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coterie.report import RunView, headline
from coterie.report.comparison import baseline_of, paired_clients, verdict_on
from coterie.report.figures.accuracy import accuracy_chart
from coterie.report.series import series_of
from coterie.report.titles import verdict_sentence
from tests.report.pages import both_methods, data_of, grouped, plain, seeded


def test_the_headline_is_the_verdict_on_grouping() -> None:
    """Against the better of FedAvg and training alone, and nobody else."""
    alone = [seeded("local", seed, 0.75, [0] * 6, [0.75] * 6) for seed in (0, 1)]
    other = [seeded("fedprox", seed, 0.9, [0] * 6, [0.9] * 6) for seed in (0, 1)]
    runs = [*both_methods(), *alone, *other]
    # Means over clients and seeds 0.783 and 0.75; over six clients t is 2.571.
    gains = np.array([0.15, 0.15, 0.15, 0.05, -0.05, -0.25])
    half = 2.5706 * gains.std(ddof=1) / np.sqrt(6)
    assert headline(runs) == (
        "No gain from grouping could be shown: fedgroup, the best method with groups, gains "
        f"+3.3 ± {100 * half:.1f} points in accuracy over local"
    )
    assert "6 clients and 2 seeds" in verdict_sentence(runs)
    assert "4 clients gained and 2 lost" in verdict_sentence(runs)
    found = verdict_on(series_of(runs))
    assert found is not None
    assert (found.answer, found.bar) == ("not shown", "local")
    # What the table of the runs and the charts of clients compare with is the same.
    assert baseline_of(series_of(runs)).name == "local"


def test_without_a_bar_the_page_says_what_is_missing() -> None:
    assert headline(both_methods()) == "fedgroup reached 81.0 %, fedavg 71.0 %"
    assert verdict_sentence(both_methods()) == (
        "Whether grouping is worth it is not known: there is no finished run of local."
    )
    assert verdict_sentence([plain()]) == ""
    several = [plain("weak", 0.5), plain("strong", 0.8), grouped("g1", 0.7), grouped("g2", 0.9)]
    assert headline(several) == "g2 reached 90.0 %, strong 80.0 %, g1 70.0 %, weak 50.0 %"


def test_runs_of_unlike_length_give_no_verdict() -> None:
    runs = [*both_methods(), seeded("local", 0, 0.75, [0] * 6, [0.75] * 6)]
    longer = replace(runs[0], rounds=[*runs[0].rounds, *runs[0].rounds])
    found = verdict_on(series_of([longer, *runs[1:]]))
    assert found is not None
    assert found.title.endswith("the runs have different clients, data or rounds.")


def test_runs_that_differ_in_their_seeds_are_one_series_with_a_band():

    found = series_of(both_methods())
    assert [(one.name, len(one.runs)) for one in found] == [("fedavg", 2), ("fedgroup", 2)]
    last = found[1].curve()[-1]
    assert [round(value, 6) for value in (last.mean, last.low, last.high)] == [0.81, 0.8, 0.82]
    spec = accuracy_chart(found)
    assert ("fedgroup", 80.0, 82.0) in {
        (run, round(a, 6), round(b, 6)) for run, a, b in data_of(spec, "run", "low", "high")
    }


def test_runs_that_scored_different_clients_are_compared_over_all():
    from coterie.report.sections import sections

    def scored(name: str, member: list[int], accuracy: float, whole: float) -> RunView:
        known = sum(g >= 0 for g in member)
        row = {"round": 0, "accuracy": accuracy, "accuracy_all": whole, "clients_assigned": known}
        return RunView(name, [row], np.array(member), "abc")

    found = [scored("fedavg", [0, 0, 0], 0.5, 0.5), scored("fedgroup", [0, 1, -1], 0.9, 0.6)]
    table = next(section for section in sections(found) if section["title"] == "The runs")
    assert "over all" in table["definitions"]
    assert table["rows"][1][2] == ("+10.0", "figure")


def test_clients_are_compared_only_over_the_same_data():
    base, ours = series_of(both_methods())
    assert len(paired_clients(ours, base)) == 2
    other = replace(ours, runs=tuple(replace(run, data_id="other data") for run in ours.runs))
    assert paired_clients(other, base) == []
