"""The scoreboard: by the command, and the rules that its figures follow."""

from __future__ import annotations

import importlib
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from coterie.cli.main import invoke
from coterie.errors import Code, ConfigError
from coterie.studies.scoreboard.figures import SuiteFigures, critical_difference, rank
from coterie.studies.scoreboard.measure import Course
from coterie.studies.scoreboard.page import write_scoreboard
from coterie.studies.scoreboard.results_file import (
    check_mergeable,
    merge,
    read_results,
    results_digest,
)
from coterie.studies.scoreboard.suite import (
    ORACLE,
    Setting,
    built_in,
    default_setting,
    find_suite,
    sweep_run,
)
from tests.refusals import refuses
from tests.runs.calls import sweeps_here

SUITE = """
title = "Two federations of digits"
seeds = [0]
rates = [0.1, 1e-6]
methods = ["fedavg", "fedclust", "known_groups"]
[common]
data = { source = "digits" }
model = { name = "mclr" }
local = { epochs = 2, lr = 0.05 }
train = { rounds = 4, clients_per_round = 6 }
engine = { name = "serial" }
[[federations]]
name = "classes"
title = "Classes of their own"
differ = "classes"
groups = 2
tables.data.partition = { kind = "planted", clients = 12, groups = 2, how = "labels" }
[[federations]]
name = "alike"
title = "All alike"
differ = "nothing"
tables.data.partition = { kind = "iid", clients = 12 }
[tried]
fedclust = [{ linkage = "ward" }]
"""
PLUGIN = """
from coterie.algorithms.fedavg import fedavg

def theirs():
    return fedavg()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a suite and its results in ``first``."""
    made = tmp_path_factory.mktemp("scoreboard")
    (made / "mine.toml").write_text(SUITE)
    with sweeps_here():
        assert scoreboard(made, "first") == 0
    return made


def scoreboard(folder: Path, out: str, *options: str) -> int:
    """The command, one run at a time."""
    command = ["scoreboard", str(folder / "mine.toml"), "--jobs", "1", *options]
    return invoke([*command, "--out", str(folder / out)])


def entries(folder: Path, out: str) -> dict[tuple[str, str, str], dict[str, Any]]:
    found = read_results(folder / out / "scoreboard.json")["entries"]
    return {(one["federation"], one["method"], one["settings"]): one for one in found}


def test_the_same_suite_gives_the_same_results_but_for_the_times(folder: Path) -> None:
    with sweeps_here():
        assert scoreboard(folder, "second") == 0
    first, second = (
        read_results(folder / name / "scoreboard.json") for name in ("first", "second")
    )
    assert first["digest"] == second["digest"]
    for one in (first, second):
        for entry in one["entries"]:
            for run in entry["runs"]:
                assert run.pop("seconds")["run"] > 0
    assert first == second


def test_settings_are_chosen_by_validation(folder: Path) -> None:
    found = entries(folder, "first")
    tuned = found["alike", "fedavg", "tuned"]
    assert (tuned["rate"], tuned["trials"]) == (0.1, 2)
    page = (folder / "first" / "scoreboard.md").read_text()
    # The page says of how many, too.
    assert "| fedavg | 2 | lr=0.1 | lr=0.1 |" in page
    assert "| fedclust | 3 | " in page
    # Two learning rates and one other option.
    assert found["classes", "fedclust", "tuned"]["trials"] == 3
    trials = [
        path
        for path in (folder / "first" / "runs").glob("*/config.toml")
        if "validation = 0.2" in path.read_text()
    ]
    # FedAvg: two on each federation; FedClust: three; the oracle: two where groups are planted.
    assert len(trials) == 2 * 2 + 2 * 3 + 2


def test_who_spends_more_on_grouping_has_fewer_rounds(folder: Path) -> None:
    found = entries(folder, "first")
    (plain,) = found["classes", "fedavg", "defaults"]["runs"]
    (ours,) = found["classes", "fedclust", "defaults"]["runs"]
    assert plain["equal_work"] == plain["equal_bytes"] == plain["all_rounds"]
    # All 12 clients train before the first of four rounds of six: some two rounds fewer.
    course = ours["course"]
    left = [value for _, steps, _, value in course if steps <= plain["steps"]]
    assert 1 <= len(left) <= 3
    assert ours["steps"] > plain["steps"]
    assert ours["equal_work"] == left[-1]
    assert ours["all_rounds"] == course[3][3]


def test_the_oracle_is_shown_without_a_rank(folder: Path) -> None:
    results = read_results(folder / "first" / "scoreboard.json")
    figures = SuiteFigures(results, results["entries"])
    ranking = figures.ranking("defaults", "equal_work")
    assert ranking is not None
    assert set(ranking.ranks) == {"fedavg", "fedclust"}
    score = figures.figure(figures.suite.federation("classes"), ORACLE, "defaults", "ari")
    assert score is not None
    assert score.mean == 1.0
    page = (folder / "first" / "scoreboard.md").read_text()
    assert "- known_groups on alike: known_groups: no groups are planted in alike" in page


def test_without_its_data_a_federation_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SUITE.replace('title = "All alike"', 'title = "x"\ntables.data.source = "mnist"')
    (tmp_path / "mine.toml").write_text(text)
    nowhere = ["--data-root", str(tmp_path / "nowhere"), "--no-tune"]
    with sweeps_here():
        assert scoreboard(tmp_path, "out", *nowhere) == 8
    shown = capsys.readouterr()
    assert "not run: fedavg, fedclust on alike: " in shown.out
    first, second = shown.err.splitlines()
    assert first.startswith("error: alike: ")
    assert second.endswith("FedAvg could not be run on 1 federation")
    assert entries(tmp_path, "out")["classes", "fedclust", "defaults"]["runs"]


def test_a_method_of_others_joins_by_one_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file has its results alone, and the page has both."""
    (folder / "their_package.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(folder))
    ours = ["--methods", "their_package:theirs", "--merge", str(folder / "first/scoreboard.json")]
    with sweeps_here():
        assert scoreboard(folder, "theirs", *ours) == 0
    found = entries(folder, "theirs")
    assert {method for _, method, _ in found} == {"their_package:theirs"}
    page = (folder / "theirs" / "scoreboard.md").read_text()
    assert "| their_package:theirs |" in page
    assert "| fedclust |" in page
    # It is FedAvg under another name.
    (theirs,) = found["classes", "their_package:theirs", "defaults"]["runs"]
    (plain,) = entries(folder, "first")["classes", "fedavg", "defaults"]["runs"]
    assert theirs["equal_bytes"] == plain["equal_bytes"]


def test_a_second_command_runs_nothing_again(folder: Path) -> None:
    runs = {
        path: path.stat().st_mtime_ns for path in (folder / "first/runs").glob("*/rounds.jsonl")
    }
    before = read_results(folder / "first/scoreboard.json")
    assert scoreboard(folder, "first") == 0
    assert runs == {
        path: path.stat().st_mtime_ns for path in (folder / "first/runs").glob("*/rounds.jsonl")
    }
    assert before == read_results(folder / "first/scoreboard.json")


def test_a_changed_file_is_refused(folder: Path, tmp_path: Path) -> None:
    results = json.loads((folder / "first/scoreboard.json").read_text())
    results["entries"][0]["runs"][0]["equal_work"] = 0.99
    (tmp_path / "changed.json").write_text(json.dumps(results))
    with refuses(ConfigError, "differs", "changed.json"):
        read_results(tmp_path / "changed.json")
    (tmp_path / "other.json").write_text("[1]")
    with refuses(ConfigError, "cannot-be-read", "other.json"):
        read_results(tmp_path / "other.json")


# Of a file whose digest is right, as anybody can make it: where, and a value that is none.
NO_RESULTS = [
    (("suite", "seeds"), [None]),
    (("federations", "alike"), "\x1b[2J"),
    (("entries",), [1]),
    (("entries", 0, "method"), "<i>\x1b[2J"),
    (("entries", 0, "settings"), []),
    (("entries", 0, "options"), {"\x1b": 1}),
    (("entries", 0, "refused"), "\x07"),
    (("entries", 0, "runs"), {}),
    (("entries", 0, "runs", 0, "seed"), True),
    (("entries", 0, "runs", 0, "equal_work"), "1"),
    (("entries", 0, "runs", 0, "equal_work"), math.nan),
    (("entries", 0, "runs", 0, "steps"), 10**400),
    (("entries", 0, "runs", 0, "ari"), 1e308),
    (("entries", 0, "runs", 0, "course", 0), []),
    (("entries", 0, "runs", 0, "seconds"), None),
    (("entries", 0, "runs", 0, "seconds", "course"), [1.0]),
]


@pytest.mark.parametrize(("path", "value"), NO_RESULTS)
def test_a_file_of_others_that_holds_no_results_is_refused(
    path: tuple[Any, ...], value: Any, folder: Path, tmp_path: Path
) -> None:
    """They were drawn, or ended the command with exit code 70, after all runs of the suite."""
    results = json.loads((folder / "first/scoreboard.json").read_text())
    place = results
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    if path != ("entries",):
        results["digest"] = results_digest(results)
    file = tmp_path / "theirs.json"
    file.write_text(json.dumps(results))
    with pytest.raises(ConfigError) as caught:
        read_results(file)
    line = str(caught.value)
    assert line.startswith(str(file))
    assert line.isprintable()


def test_reasons_of_others_are_text_in_the_page(folder: Path, tmp_path: Path) -> None:
    results = json.loads((folder / "first/scoreboard.json").read_text())
    results["entries"][0]["refused"] = "<script>alert(1)</script>"
    pages = write_scoreboard(tmp_path, SuiteFigures(results, results["entries"]), {})
    assert not [page for page in pages if "<script>alert" in page.read_text()]


def test_results_that_do_not_belong_together_are_refused(folder: Path) -> None:
    ours = read_results(folder / "first/scoreboard.json")
    other = {**ours, "federations": {**ours["federations"], "alike": "0" * 64}}
    with refuses(ConfigError, "differs", "b.json"):
        merge(ours, {Path("b.json"): other})
    elsewhere = {**ours, "federations": {"x": "0" * 64}}
    with refuses(ConfigError, "does-not-fit", "b.json"):
        merge(ours, {Path("b.json"): elsewhere})
    later = json.loads(json.dumps(ours))
    later["entries"][0]["runs"][0]["seed"] = 7
    with refuses(ConfigError, "differs", "b.json"):
        merge(ours, {Path("b.json"): later})
    better = json.loads(json.dumps(ours))
    better["entries"][0]["runs"][0]["digest"] = "f" * 64
    with refuses(ConfigError, "differs", "b.json"):
        merge(ours, {Path("b.json"): better})
    assert results_digest(better) != better["digest"]
    more = {**ours, "suite": {**ours["suite"], "seeds": [0, 1]}}
    # Before the first run: `check_mergeable` looks at no entry.
    with refuses(ConfigError, "differs", "b.json"):
        check_mergeable(ours, Path("b.json"), more)


def test_a_run_that_failed_elsewhere_keeps_nobody_from_merging(folder: Path) -> None:
    """The method has a run less, and so no rank; it has no other seeds."""
    ours = read_results(folder / "first/scoreboard.json")
    ours = {**ours, "suite": {**ours["suite"], "seeds": [0, 1]}}
    theirs = json.loads(json.dumps(ours))
    for one in theirs["entries"]:
        one["method"] = f"their_{one['method']}"
    found = merge(ours, {Path("b.json"): theirs})
    assert len(found) == 2 * len(ours["entries"])
    figures = SuiteFigures(ours, found)
    assert figures.ranking("defaults", "equal_work") is None


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", list(built_in()))
def test_every_run_of_a_suite_is_a_valid_configuration(name: str) -> None:
    suite = find_suite(name)
    for federation in suite.federations:
        for method in suite.methods:
            if method == ORACLE and federation.groups is None:
                continue
            setting = default_setting(suite, federation, method)
            for options in ({}, *suite.tried.get(method, ())):
                tried = Setting({**setting.options, **options}, 0.3)
                sweep_run(suite, federation, method, tried, seed=0)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("smal",), "suite: unknown choice, got 'smal'; .* did you mean 'small'?"),
        (("small", "--methods", "fedagv"), "--methods: unknown choice, got 'fedagv'; .*'fedavg'?"),
        (("small", "--federations", "rotate"), "--federations: unknown choice, got 'rotate'"),
        (("small", "--methods", "no_module:mine"), "algorithm.name: cannot be used"),
        (("none.toml",), "none.toml: there is no such file"),
    ],
)
def test_what_is_unknown_is_one_line(
    options: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert invoke(["scoreboard", *options, "--out", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()
    printed = capsys.readouterr().err
    assert len(printed.splitlines()) == 1
    assert line.partition(";")[0] in printed


def test_a_slip_in_a_suite_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(SUITE.replace("rates =", "rate ="))
    with refuses(ConfigError, "unknown-key", "rate"):
        find_suite(str(tmp_path / "mine.toml"))
    (tmp_path / "deep.toml").write_text("rates = " + "[" * 40_000)
    with refuses(ConfigError, "cannot-be-read", "deep.toml"):
        find_suite(str(tmp_path / "deep.toml"))


def test_the_suite_of_the_page_is_valid(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "scoreboard.md"
    (text,) = re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "mine.toml").write_text(text)
    suite = find_suite(str(tmp_path / "mine.toml"))
    for method, tried in suite.tried.items():
        for options in ({}, *tried):
            setting = Setting({**suite.told.get(method, {}), **options})
            sweep_run(suite, suite.federations[0], method, setting, seed=0)


def test_the_page_in_the_docs_is_that_of_the_published_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    docs = Path(__file__).parents[2] / "docs"
    monkeypatch.syspath_prepend(str(docs))
    made = importlib.import_module("scoreboard_page")
    again = "run: python docs/scoreboard_page.py"
    assert (docs / "scoreboard-small.md").read_text(encoding="utf-8") == made.page(), again


def test_ranks_are_those_worked_out_by_hand() -> None:
    """Demsar 2006, section 3.2.2: equal values share their ranks."""
    values = {"a": [0.9, 0.8, 0.7], "b": [0.9, 0.9, 0.6], "c": [0.5, 0.7, float("-inf")]}
    found = rank(values)
    assert found.ranks == pytest.approx({"a": 1.5, "b": 4.5 / 3, "c": 3.0})
    assert found.federations == 3


@pytest.mark.parametrize(
    ("methods", "federations", "printed"), [(2, 1, 1.960), (4, 14, 1.25), (5, 30, 1.11)]
)
def test_the_critical_difference_is_that_of_the_paper(
    methods: int, federations: int, printed: float
) -> None:
    """Demsar 2006: q is 1.960 for two and 2.569 for four methods (table 5), CD 1.25 in its
    example of four methods on fourteen sets; 2.728 sqrt(5 * 6 / (6 * 30)) = 1.11."""
    found = critical_difference(methods, federations)
    if methods == 2:
        found /= (2 * 3 / 6) ** 0.5
    assert found == pytest.approx(printed, abs=0.005)


def test_scores_over_time_count_every_round() -> None:
    course = Course([0.2, None, 0.6], [5, 10, 15], [1, 2, 3])
    # Also those after the budget was spent, since later rounds are harder.
    assert course.value("course", 1) == pytest.approx(0.4)
    assert course.value("served", 3) == 0.6
    assert course.value("served", course.rounds_within(steps=4)) is None


def entry(method: str, settings: str, *values: float | None, **others: Any) -> dict[str, Any]:
    """What a results file has of a method on the federation ``classes``, in short."""
    runs = [
        {"seed": seed, "equal_work": value, "digest": "0" * 8} for seed, value in enumerate(values)
    ]
    found = {"federation": "classes", "method": method, "settings": settings, "refused": ""}
    return {**found, "runs": runs, **others}


@pytest.fixture
def one_federation(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "mine.toml").write_text(SUITE.replace("seeds = [0]", "seeds = [0, 1]"))
    suite = find_suite(str(tmp_path / "mine.toml"))
    one = suite.model_copy(update={"federations": [suite.federation("classes")]})
    return {"suite": one.model_dump(mode="json")}


def test_nobody_is_ranked_by_other_settings_than_those_of_the_column(
    one_federation: dict[str, Any],
) -> None:
    figures = SuiteFigures(
        one_federation,
        [
            entry("fedavg", "defaults", 0.8, 0.8),
            entry("fedavg", "tuned", 0.9, 0.9),
            entry("ifca", "defaults", 0.85, 0.85),
        ],
    )
    # IFCA was not tuned, so it has no place beside what was.
    assert figures.ranking("tuned", "equal_work") is None
    assert figures.ranking("defaults", "equal_work") is not None


def test_without_a_score_within_the_budget_a_method_is_last(
    one_federation: dict[str, Any],
) -> None:
    figures = SuiteFigures(
        one_federation,
        [
            entry("fedavg", "defaults", 0.1, 0.1),
            entry("ifca", "defaults", 0.9, None),
            entry("clove", "defaults", 0.9),
        ],
    )
    ranking = figures.ranking("defaults", "equal_work")
    assert ranking is not None
    # CLoVE was run with one of two seeds, so it has no rank.
    assert ranking.ranks == {"fedavg": 1.0, "ifca": 2.0}
    assert set(figures.unranked) == {"clove"}


def test_equal_methods_are_not_said_to_differ() -> None:
    found = rank({name: [0.5, 0.5] for name in ("a", "b", "c")})
    assert found.p == 1.0
    assert set(found.ranks.values()) == {2.0}


def test_a_trial_that_cannot_be_run_costs_no_scores(tmp_path: Path) -> None:
    text = SUITE.replace('linkage = "ward"', 'linkage = "bogus"').replace(
        'methods = ["fedavg", "fedclust", "known_groups"]', 'methods = ["fedavg", "fedclust"]'
    )
    (tmp_path / "mine.toml").write_text(text)
    with sweeps_here():
        assert scoreboard(tmp_path, "out", "--federations", "classes") == 0
    found = entries(tmp_path, "out")
    assert found["classes", "fedclust", "defaults"]["runs"]
    assert found["classes", "fedclust", "tuned"]["rate"] == 0.1
    assert found["classes", "fedclust", "tuned"]["options"] == {}


def test_a_method_without_a_default_number_of_groups_is_told_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_groups.py").write_text(
        "import coterie as ct\n\ndef needs(groups: int):\n    return ct.ifca(groups=groups)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    suite = find_suite("small")
    setting = default_setting(suite, suite.federation("rotation"), "needs_groups:needs")
    assert setting.options == {"groups": 4}


@pytest.mark.parametrize(
    ("federation", "refusal"),
    [("dirichlet", ("missing", "known_groups")), ("swapping", ("does-not-fit", "known_groups"))],
)
def test_the_oracle_is_told_only_what_is_known(federation: str, refusal: tuple[Code, str]) -> None:
    suite = find_suite("small")
    rotation = suite.federation("rotation")
    moving = rotation.model_copy(
        update={
            "name": "swapping",
            "tables": {**rotation.tables, "shift": {"kind": "swap_all"}},
        }
    )
    found = moving if federation == "swapping" else suite.federation(federation)
    with refuses(ConfigError, *refusal):
        default_setting(suite, found, ORACLE)
