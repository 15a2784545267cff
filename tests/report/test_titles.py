"""What a page says in words, and what it compares."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.report import RunView, headline
from coterie.report.figures.accuracy import accuracy_chart
from tests.report.pages import both_methods, data_of, grouped, plain


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


def test_runs_of_unlike_length_are_not_compared():
    longer = [{"round": at, "accuracy": 0.8} for at in range(14)]
    grouped_run = RunView("fedgroup", longer, np.array([0, 1, 1]), "abc")
    short = RunView("fedavg", longer[:3], np.zeros(3, int), "abc")
    assert headline([short, grouped_run]) == (
        "fedgroup reached 80.0 %, fedavg 80.0 %: not comparable, after 14 and 3 rounds"
    )


def test_runs_that_differ_in_their_seeds_are_one_series_with_a_band():
    from coterie.report.series import series_of

    found = series_of(both_methods())
    assert [(one.name, len(one.runs)) for one in found] == [("fedavg", 2), ("fedgroup", 2)]
    last = found[1].curve()[-1]
    assert [round(value, 6) for value in (last.mean, last.low, last.high)] == [0.81, 0.8, 0.82]
    spec = accuracy_chart(found)
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
    assert "over all" in table["definitions"]
    assert table["rows"][1][2] == ("+10.0", "figure")


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
