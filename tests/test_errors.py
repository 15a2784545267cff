"""Errors carry their problems as data, and their text is made from them."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path
from typing import get_args

import coterie as ct
from coterie import errors
from coterie.errors import Code, ConfigError, CoterieError, DataError, Problem
from tests.refusals import refuses


def test_problems_are_data_and_make_the_text() -> None:
    error = ConfigError(
        "unknown-choice", "algorithm.name", got="fedavgg", allowed="one of fedavg", hint="fedavg"
    )
    [problem] = error.problems
    assert (problem.code, problem.path) == ("unknown-choice", "algorithm.name")
    assert (problem.got, problem.allowed) == ("'fedavgg'", "one of fedavg")
    line = "algorithm.name: unknown choice, got 'fedavgg'; expected one of fedavg"
    assert str(error) == f"{line}; did you mean 'fedavg'?"


def test_a_message_without_a_value_says_what_is_missing_and_what_to_do() -> None:
    error = ConfigError("not-installed", "server", "nginx is not installed", do="install it")
    assert str(error) == "server: nginx is not installed: install it"
    missing = ConfigError("missing", "privacy.epsilon", allowed="a number")
    assert str(missing) == "privacy.epsilon: missing: specify a number"


def test_several_problems_are_one_error_that_names_the_file() -> None:
    found = [Problem("missing", "a"), Problem("out-of-range", "b", got=2), Problem("missing", "a")]
    error = ConfigError.of(found).located("c.toml")
    assert str(error) == "c.toml: a: missing\nc.toml: b: out of range, got 2"
    assert [problem.path for problem in error.problems] == ["a", "b"]


def test_an_error_keeps_its_problems_in_another_process() -> None:
    error = DataError("damaged", Path("rows.csv"), found="no rows")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is DataError
    assert again.problems == error.problems


def test_a_line_that_is_written_already_keeps_its_words_and_its_path() -> None:
    error = CoterieError("data.path: no such file, got 'x'\nmore")
    assert str(error) == "data.path: no such file, got 'x'\nmore"
    assert [(one.code, one.path) for one in error.problems] == [
        ("other", "data.path"),
        ("other", ""),
    ]


def test_every_code_is_documented() -> None:
    page = Path(__file__).parents[1] / "docs" / "exit-codes.md"
    named = re.findall(r"^\| `([a-z-]+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(named) == set(get_args(Code))
    assert len(named) == len(get_args(Code))


def test_a_call_says_where_it_was_refused() -> None:
    with refuses(ConfigError, "out-of-range", "lr"):
        ct.Solver(lr=-1.0)


def test_no_error_is_a_line_that_only_a_person_can_read() -> None:
    """A script asks for the code and the path. The lines of several runs are written already."""
    kinds = {name for name in vars(errors) if name.endswith("Error")} - {"SweepError"}
    lines = [
        f"{file.name}:{call.lineno}"
        for file in Path(ct.__file__).parent.rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        if call.func.id in kinds and len(call.args) == 1
    ]
    assert not lines
