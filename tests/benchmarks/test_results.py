"""The pages of ``docs/results``: complete records, no figure typed, printed values as printed."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
from pydantic import ValidationError

from benchmarks.results import build, collect, lines, papers, quick, records
from benchmarks.results.figures import above, decimals, middle, number, summary
from benchmarks.results.records import FOLDER, Measurement, Printed, Record, ResultPage
from benchmarks.results.tables import comparison, course, grid, pivot
from benchmarks.results.unmeasured import missing_lines, unmeasured

ROOT = Path(__file__).resolve().parents[2]
NAMES = records.names()
MEASURED = Measurement(
    what="All figures",
    settings="Digits.",
    machine=None,
    date="2026-11-21",
    commit="7e12069",
    command=None,
)


def record(subject: str, values: list[float], **changed) -> Record:
    fields = {
        "case": "digits",
        "subject": subject,
        "metric": "best round",
        "unit": "%",
        "values": tuple(values),
        "seeds": tuple(range(len(values))),
        "rounds": 10,
        "measured": "all",
        **changed,
    }
    return Record(**fields)


def page(*found: Record, **changed) -> ResultPage:
    fields = {
        "question": "What came out?",
        "topic": "accuracy",
        "settings": None,
        "measurements": {"all": MEASURED},
        "records": found,
        **changed,
    }
    return ResultPage(**fields)


TWO = page(record("FedAvg", [80.0, 82.0]), record("FedGroup", [90.0, 91.0]))


# --- the files and the pages ---------------------------------------------------------------------


def test_the_committed_pages_are_what_the_files_make():
    assert build.differing(build.make()) == [], "run: python -m benchmarks.results.build"


@pytest.mark.parametrize("name", NAMES)
def test_files_are_laid_out_as_the_command_lays_them_out(name):
    assert records.text(records.read(name)) == (FOLDER / f"{name}.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_printed_values_are_those_of_the_papers(name):
    printed = [found.printed for found in records.read(name).records if found.printed is not None]
    assert [p.value for p in printed] == [papers.printed_at(p.at) for p in printed]


MEASURED_NUMBER = re.compile(r"\d+\.\d+|\d\s?(?:%|ms\b|us\b|s\b|GB\b|points?\b|times\b)")


@pytest.mark.parametrize("name", NAMES)
def test_no_figure_is_typed_into_a_sentence(name):
    words = build.PLACEHOLDER.sub("", build.template(name))
    words = re.sub(r"`[^`]*`|Dir\(0\.1\)|95\s%\sconfidence", "", words)
    assert MEASURED_NUMBER.findall(words) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_record_is_shown(name):
    """With another value a page is another one, or a sentence refuses it."""
    whole = records.read(name)
    calls = build.PLACEHOLDER.findall(build.template(name))
    made = {call: build.fill(f"{{{{ {call} }}}}", whole) for call in calls}
    shown = shown_marks(calls, whole)
    for i, found in enumerate(whole.records):
        if mark(i) in shown:
            continue
        other = with_values(found, 12345.0)
        records_then = (*whole.records[:i], other, *whole.records[i + 1 :])
        changed = whole.model_copy(update={"records": records_then})
        # First the places that name the record: one that shows it ends the search.
        names = (found.case, found.subject, found.metric)
        likely = sorted(made, key=lambda call, names=names: -sum(name in call for name in names))
        assert any(is_another(call, made[call], changed) for call in likely), found.key


def mark(number: int) -> int:
    """A value that no record has, another one for each."""
    return 700_000 + number


def with_values(record: Record, value: float) -> Record:
    return record.model_copy(update={"values": tuple(value for _ in record.values)})


def shown_marks(calls: list[str], page: ResultPage) -> set[int]:
    """Which marks can be read where each record has its own: a place that shows the value of a
    record is another one with another value. It is made once, and not for each record."""
    marked = tuple(with_values(one, float(mark(i))) for i, one in enumerate(page.records))
    changed = page.model_copy(update={"records": marked})
    found = set()
    for call in calls:
        # Places that compute with values, or refuse these, are tried with each record alone.
        with suppress(ValueError):
            text = build.fill(f"{{{{ {call} }}}}", changed)
            found |= {int(six.replace(",", "")) for six in re.findall(r"\b7\d\d,\d{3}\b", text)}
    return found


def is_another(call: str, before: str, page: ResultPage) -> bool:
    """Whether a place of the template is filled with another text, or refuses the page."""
    try:
        return build.fill(f"{{{{ {call} }}}}", page) != before
    except ValueError:
        return True


@pytest.mark.parametrize("name", NAMES)
def test_every_remark_is_shown(name):
    whole = records.read(name)
    made = " ".join(build.body(name, whole).split())
    notes = [found.note for found in whole.records if found.note]
    assert [note for note in notes if note not in made] == []


def test_every_table_of_the_papers_is_in_the_index():
    # A figure whose values are not printed has no place among them.
    listed = {table["at"] for paper in papers.tables() for table in paper["tables"]} - {None}
    printed = papers.printed_values()
    tables = {f"{paper}.{table}" for paper, of_paper in printed.items() for table in of_paper}
    # FedGroup's and FlexCFL's Table 1 are one table; all others must be listed.
    assert listed == tables


# The page of the quick profile is of all papers, and the index links to it by itself.
OF_A_PAPER = [name for name in NAMES if name.startswith("reproduce-") and name != quick.PAGE]


@pytest.mark.parametrize("name", OF_A_PAPER)
def test_a_table_leads_to_the_page_of_its_paper_that_has_values_of_it(name):
    pages = {one["at"]: one["pages"] for paper in papers.tables() for one in paper["tables"]}
    printed = [found.printed for found in records.read(name).records if found.printed is not None]
    # The paper and the table of ``flexcfl.table4 MNIST MCLR FedAvg 0``.
    tables = {".".join(place.at.split()[0].split(".")[:2]) for place in printed}
    assert [table for table in tables if name not in pages[table]] == []


def test_every_table_of_the_papers_leads_to_a_page_or_says_why_not():
    for paper in papers.tables():
        for table in paper["tables"]:
            assert table["pages"] or table["otherwise"], table["at"]
            assert set(table["pages"]) <= set(NAMES)


def test_every_file_of_sentences_has_its_figures():
    assert {path.stem for path in FOLDER.glob("*.md")} == {*NAMES, "index"}


def test_no_sentence_names_a_file_that_is_gone():
    assert not (ROOT / "benchmarks" / "RESULTS.md").exists()


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"topic": "sound"}, "topic: 'sound'"),
        ({"question": ""}, "question"),
        ({"measurements": {}}, "are not in both places"),
        ({"measurements": {"all": MEASURED, "more": MEASURED}}, "are not in both places"),
        ({"records": (record("FedAvg", [1.0]), record("FedAvg", [2.0]))}, "more than once"),
    ],
)
def test_an_incomplete_page_is_refused(changed, said):
    with pytest.raises(ValidationError, match=re.escape(said)):
        page(**{"records": TWO.records, **changed})


def test_values_and_seeds_go_together():
    with pytest.raises(ValidationError, match="2 values, 1 seeds"):
        record("FedAvg", [1.0, 2.0], seeds=(0,))


def test_a_misspelt_key_is_refused():
    with pytest.raises(ValidationError, match="extra"):
        record("FedAvg", [1.0], runds=3)


def test_a_sentence_that_is_no_longer_true_stops_the_build():
    assert above(TWO, "digits/FedGroup/best round", "digits/FedAvg/best round") == "9.5 points"
    with pytest.raises(ValueError, match="is not above"):
        above(TWO, "digits/FedAvg/best round", "digits/FedGroup/best round")


def test_a_key_that_names_no_record_is_refused():
    with pytest.raises(KeyError, match="0 records"):
        build.fill("{{ value | digits/FedProx/best round }}", TWO)
    with pytest.raises(KeyError, match="expected one of"):
        build.fill("{{ valeu | digits/FedAvg/best round }}", TWO)


def test_a_place_that_the_papers_do_not_have_is_refused():
    assert papers.printed_at("flexcfl.table4 MNIST MCLR FedAvg 0") == 89.9
    with pytest.raises(KeyError, match="0 rows"):
        papers.printed_at("flexcfl.table4 MNIST LSTM FedAvg 0")


# --- numbers and tables --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "places", "text"),
    [
        (38.25, 1, "38.3"),
        (34.6 - 38.25, 1, "-3.7"),
        (4657, 0, "4,657"),
        (1.9e-6, 7, "1.9e-6"),
        (0.0005667, 7, "0.00057"),
    ],
)
def test_numbers_are_rounded_as_people_round(value, places, text):
    assert number(value, places) == text


def test_summaries():
    assert decimals([1, 2.5, 3.25]) == 2
    assert summary(record("FedAvg", [80.0, 82.0])) == "81.0 ± 1.4"
    assert summary(record("FedAvg", [80.0])) == "80.0"
    assert summary(record("FedAvg", [14, 15, 30], seeds=None)) == "15 (14 to 30)"
    assert summary(record("FedAvg", [20, 25], seeds=None)) == "20 to 25"
    assert summary(record("FedAvg", [None])) == "never"


def test_comparison_has_the_papers_value_and_leaves_out_empty_columns():
    printed = Printed(value=88.75, at="somewhere")
    table = comparison(page(record("FedAvg", [80.0], printed=printed)), "digits")
    assert table.splitlines() == [
        "|  | best round, % | published | difference | seeds |",
        "| --- | --- | --- | --- | --- |",
        "| FedAvg | 80.0 | 88.75 | -8.8 | 0 |",
    ]


def test_a_sentence_counts_the_seeds_below_print():
    at = Printed(value=89.4, at="flexcfl.table3 MNIST MCLR FedAvg")
    one = page(record("FedAvg", [89.5, 89.3, 88.1, 89.4], printed=at))
    assert build.fill("{{ below_print | digits/FedAvg/best round }}", one) == "2 of 4"


def test_pivot_says_whether_an_aim_was_reached():
    found = [record("FedAvg", [80.0], at_least=90.0), record("FedGroup", [95.0], at_least=90.0)]
    table = pivot(page(*found), rows="subject", columns="metric")
    assert table.splitlines()[2:] == [
        "| FedAvg | 80.0 | at least 90: missed |",
        "| FedGroup | 95.0 | at least 90: met |",
    ]


def test_a_grid_has_the_rows_and_columns_of_lines():
    found = [
        record("naive/10", [80.0, 82.0], metric="ours"),
        record("naive/52", [70.25], metric="ours"),
        record("fedavg/clients", [60.0], metric="ours"),
        record("naive/10", [79.0], metric="last ten"),
    ]
    assert grid(page(*found), "digits").splitlines() == [
        "|  | 10, % | 52, % | clients, % |",
        "| --- | --- | --- | --- |",
        "| naive | 81.0 ± 1.4 | 70.25 |  |",
        "| fedavg |  |  | 60.0 |",
    ]
    assert grid(page(*found), "digits", "last ten").splitlines()[2:] == ["| naive | 79.0 |"]


def test_course_has_a_column_for_every_round():
    found = [record("FedAvg", [1.0]), record("FedAvg", [2.0], rounds=20)]
    assert course(page(*found), "digits").splitlines() == [
        "| best round, %, after round | 10 | 20 |",
        "| --- | --- | --- |",
        "| FedAvg | 1.0 | 2.0 |",
    ]


# --- results of `coterie reproduce` ---------------------------------------------------------------

REPRODUCED = [name for name in NAMES if name.startswith("reproduce-") and "quick" not in name]


@pytest.mark.parametrize("name", [*REPRODUCED, quick.PAGE])
def test_every_gap_of_two_points_is_explained_by_a_test_or_called_open(name):
    for found in records.read(name).records:
        if found.printed is None or found.unit not in ("%", "points"):
            continue
        gap = abs(middle(found) - found.printed.value)
        if gap > 2:
            assert found.note is not None, f"{found.key}: {gap:.1f} points and no reason"
            assert found.note.startswith(("Tested", "Open")), found.key


@pytest.mark.parametrize("name", REPRODUCED)
def test_a_tested_reason_closes_the_gap_on_three_seeds(name):
    """Another line of the page, with the change that the note states, is within two points."""
    rows = [found for found in records.read(name).records if found.printed is not None]
    for tested in rows:
        if tested.note is None or not tested.note.startswith("Tested"):
            continue
        alike = [found for found in rows if found.printed == tested.printed and found != tested]
        gaps = [
            abs(middle(found) - found.printed.value) for found in alike if len(found.values) > 2
        ]
        assert min(gaps, default=99.0) <= 2, tested.key


@pytest.mark.parametrize("name", REPRODUCED)
def test_a_page_says_which_lines_it_has_no_value_of(name):
    of = name.removeprefix("reproduce-")
    assert unmeasured(records.read(name), of) in build.body(name, records.read(name))


def test_lines_without_a_record_are_named_with_the_time_of_a_run():
    known = [
        record(found.name, [95.0], case=lines.case_of(found.table), metric="ours")
        for found in missing_lines(page(measurements={}), "fedgroup")
        if not found.name.startswith("femnist-mlp/") and found.name != "mnist-mclr/rac"
    ]
    assert unmeasured(page(*known), "fedgroup").splitlines()[2:] == [
        "| femnist-mlp | Table 2, Table 3 | 13 | 9 min to 12 min for a run |",
        "| mnist-mclr | Table 3 (rac) | 1 | 15 s for a run |",
    ]
    assert "svhn is not at hand" in unmeasured(page(measurements={}), "fedclust")


def line(**changed):
    return {
        "paper": "flexcfl",
        "table": "3",
        "line": "mnist-mclr/fedavg",
        "unit": "percent",
        "metric": "max",
        "printed": 89.4,
        "place": ["flexcfl", "table3", "rows", 0, "FedAvg"],
        "values": [89.58, 88.31],
        "seeds": [0, 1],
        "last10": [84.04, 80.72],
        "rounds": 300,
        "full_rounds": 300,
        **changed,
    }


def test_a_line_of_a_reproduction_becomes_records_with_its_printed_value():
    made = collect.merged(page(measurements={}), [line()], "today", MEASURED)
    best, last = made.records
    assert best.key == "Table 3/mnist-mclr/fedavg/ours"
    assert (best.values, best.seeds, best.rounds) == ((89.6, 88.3), (0, 1), 300)
    assert best.printed == Printed(value=89.4, at="flexcfl.table3 MNIST MCLR FedAvg")
    assert papers.printed_at(best.printed.at) == 89.4
    assert (last.metric, last.values) == ("last ten", (84.0, 80.7))


def test_the_command_of_lines_with_their_own_seeds_names_none():
    usual = line(seeds=[0, 1])
    special = line(seeds=[2, 15])
    command = "coterie reproduce flexcfl --profile full"
    assert collect.command_of("flexcfl", "full", [0, 1], [usual]) == f"{command} --seeds 0,1"
    assert collect.command_of("flexcfl", "full", [0, 1], [usual, special]) == command


def test_seeds_of_a_later_run_join_those_of_a_line():
    first = collect.merged(page(measurements={}), [line(seeds=[0, 3])], "a", MEASURED)
    later = line(values=[90.0, 91.0, 92.0], seeds=[1, 2, 3], last10=[85.0, 86.0, 87.0])
    both = collect.merged(first, [later], "b", MEASURED)
    best, last = both.records
    # Seed 3 was measured again.
    assert best.seeds == last.seeds == (0, 1, 2, 3)
    assert best.values == (89.6, 90.0, 91.0, 92.0)
    assert last.values == (84.0, 85.0, 86.0, 87.0)
    assert best.joined == {"a": (0,)}
    assert best.sources == {"a": (0,), "b": (1, 2, 3)}
    assert set(both.measurements) == {"a", "b"}
    shown = build.fill("{{ measured }}", both)
    assert "Seeds: 0." in shown
    assert "Seeds: 1, 2, 3." in shown
    assert ResultPage.model_validate_json(records.text(both)) == both
    third = collect.merged(both, [line(values=[88.0], seeds=[0], last10=[80.0])], "c", MEASURED)
    # No value of the first measurement is left.
    assert third.records[0].sources == {"b": (1, 2, 3), "c": (0,)}
    assert set(third.measurements) == {"b", "c"}


def test_a_measurement_that_goes_on_keeps_its_seeds():
    first = collect.merged(page(measurements={}), [line(seeds=[0, 1])], "a", MEASURED)
    both = collect.merged(first, [line(seeds=[2, 3])], "a", MEASURED)
    assert both.records[0].sources == {"a": (0, 1, 2, 3)}
    assert both.records[0].joined is None


def test_other_rounds_and_formulas_replace_what_was_there():
    first = collect.merged(page(measurements={}), [line()], "a", MEASURED)
    fewer = line(values=[80.0], seeds=[5], last10=[70.0], rounds=100)
    shorter = collect.merged(first, [fewer], "b", MEASURED)
    assert shorter.records[0].seeds == (5,)
    computed = line(values=[7850], seeds=[], last10=[], rounds=0, metric="parameters")
    once = collect.merged(page(measurements={}), [computed], "a", MEASURED)
    twice = collect.merged(once, [computed], "b", MEASURED)
    assert [found.sources for found in twice.records] == [{"b": None}]


@pytest.mark.parametrize("joined", [{"b": (2,)}, {"b": (0,), "c": (0,)}])
def test_joined_seeds_are_of_the_record_and_of_one_measurement(joined):
    with pytest.raises(ValidationError, match="joined seeds"):
        record("FedAvg", [1.0, 2.0], joined=joined)


def test_a_line_that_is_measured_again_replaces_its_record_and_keeps_its_note():
    first = collect.merged(
        page(measurements={}), [line(), line(line="mnist-mclr/ifca")], "a", MEASURED
    )
    noted = first.records[0].model_copy(update={"note": "Open."})
    first = first.model_copy(update={"records": (noted, *first.records[1:])})
    again = collect.merged(first, [line(values=[90.0, 91.0])], "b", MEASURED)
    assert again.records[0].values == (90.0, 91.0)
    assert again.records[0].note == "Open."
    assert again.records[0].measured == "b"
    assert set(again.measurements) == {"a", "b"}


def test_a_mean_of_the_last_ten_rounds_goes_with_the_values_that_it_was_of():
    first = collect.merged(page(measurements={}), [line()], "a", MEASURED)
    again = collect.merged(first, [line(last10=[])], "b", MEASURED)
    assert [found.metric for found in again.records] == ["ours"]
    shorter = collect.merged(first, [line(seeds=[2, 3], last10=[], rounds=60)], "b", MEASURED)
    assert [found.metric for found in shorter.records] == ["ours"]
    more = collect.merged(first, [line(seeds=[2, 3], last10=[])], "b", MEASURED)
    assert [(found.metric, found.seeds) for found in more.records] == [
        ("ours", (0, 1, 2, 3)),
        ("last ten", (0, 1)),
    ]


def test_accuracies_of_the_quick_profile_replace_each_other_and_keep_remarks_and_the_time():
    time = record("two cores", [9.95], case="time", metric="all of it", measured="quick")
    # Earlier, the counts belonged to the measurement of the time.
    counted = record("all", [46.0], case="accuracies", metric="number", measured="quick")
    before = page(time, counted, measurements={"quick": MEASURED})
    unprinted = line(line="mnist-mclr/ifca", printed=None, place=None)
    ratio = line(line="mnist-mclr/fesem", unit="ratio")
    first = quick.with_accuracies(
        before, [line(values=[80.0], seeds=[0]), unprinted, ratio], MEASURED
    )
    assert [(found.case, found.subject, found.values) for found in first.records] == [
        ("time", "two cores", (9.95,)),
        ("accuracies", "within 2 points of the paper", (0,)),
        ("accuracies", "all", (1,)),
        ("FlexCFL (Duan et al., 2022)", "Table 3, mnist-mclr/fedavg, 300 rounds", (80.0,)),
    ]
    noted = first.records[-1].model_copy(update={"note": "Open."})
    first = first.model_copy(update={"records": (*first.records[:-1], noted)})
    again = quick.with_accuracies(first, [line(values=[89.0], seeds=[0])], MEASURED)
    assert [found.values for found in again.records] == [(9.95,), (1,), (1,), (89.0,)]
    assert again.records[-1].note == "Open."


def test_other_records_stay_also_where_several_have_one_key():
    course = [
        record("FedGSP", [accuracy], case="By round", measured="a", rounds=rounds)
        for rounds, accuracy in ((10, 30.0), (60, 58.0))
    ]
    made = collect.merged(page(*course, measurements={"a": MEASURED}), [line()], "b", MEASURED)
    assert [found for found in made.records if found.case == "By round"] == course


def test_a_difference_of_accuracies_is_in_points():
    made = collect.merged(page(measurements={}), [line(how="difference")], "today", MEASURED)
    assert [found.unit for found in made.records] == ["points", "%"]


def test_lines_stand_in_the_order_of_the_paper_s_file_whenever_they_were_measured():
    late = line(line="mnist-mclr/fedprox", last10=[])
    early = [line(line=name, last10=[]) for name in ("mnist-mclr/fedavg", "mnist-mclr/ifca")]
    twenty = record("FlexCFL", [95.0, 95.2], case="Twenty seeds", measured="a")
    first = collect.merged(page(twenty, measurements={"a": MEASURED}), early, "a", MEASURED)
    both = collect.merged(first, [late], "b", MEASURED)
    names = ["mnist-mclr/fedavg", "mnist-mclr/fedprox", "mnist-mclr/ifca", "FlexCFL"]
    assert [found.subject for found in both.records] == names


def test_a_line_without_a_value_leaves_the_page_as_it_is():
    assert (
        collect.merged(
            page(measurements={}), [line(values=[], seeds=[], last10=[])], "a", MEASURED
        ).records
        == ()
    )


@pytest.mark.parametrize("place", [None, ["flexcfl", "table3", "rows", 0, "FedAvg"]])
def test_a_line_that_the_paper_does_not_print_has_no_place(place):
    assert lines.place_text(line(printed=None, place=place)) is None
