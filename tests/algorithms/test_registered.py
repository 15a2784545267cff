"""Every registered method has all that a method of the library needs.

What is missing is said in words, with the place where it goes. The last test adds a method as
docs/write-a-method.md says it, and finds it everywhere.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import coterie as ct
from coterie.algorithms import ALGORITHMS
from coterie.methods.algorithm import as_algorithm
from tests.conftest import PATIENCE
from tests.contract.cases import SPECIAL, default_case
from tests.docs.pages import ROOT, method_tables

Factory = Callable[..., Any]
NOT_PLAIN = re.compile(r"[`$=^]|\b(Alg|eq)\.")
LONGEST_LINE = 110
# Lines of code of a file whose rule a paper of a page or two describes.
LONGEST_FILE = 120
SHORT = (
    *("auxo", "cfl_gp", "clove", "cornflqs", "feddrift", "fedgwc", "feroma", "flux", "k_fed"),
    *("known_groups", "lcfed", "sr_fca", "stocfl"),
)
REGISTRY = "src/coterie/algorithms/__init__.py"
SECTIONS = ("Algorithm", "What is sent", "Parameters", "Cost", "Deviations", "Results")


def missing(name: str, factory: Factory) -> list[str]:
    """What a method lacks, a sentence each."""
    checks = (missing_in_code, missing_on_page, missing_in_tests)
    return [f"{name}: {sentence}" for check in checks for sentence in check(name, factory)]


def missing_in_code(name: str, factory: Factory) -> Iterator[str]:
    if name not in ALGORITHMS:
        home = f"coterie.algorithms.{name}"
        yield f"is not registered; add 'from {home} import {name} as {name}' to {REGISTRY}"
    said = method_tables.summary(factory)
    if not said.title or not said.line:
        yield "has no description; begin the docstring of its factory with 'Name: what it does.'"
    elif NOT_PLAIN.search(said.line) or len(said.line) > LONGEST_LINE or said.line[-1] != ".":
        yield (
            f"is described by {said.line!r}; expected one or two plain sentences without formulas, "
            f"at most {LONGEST_LINE} characters"
        )
    if said.models != "one" and not said.models.startswith(method_tables.PER_GROUP):
        yield (
            "does not say how many models it trains; add 'Models: one.' or "
            f"'Models: {method_tables.PER_GROUP}...' to the docstring of its factory"
        )
    if not said.paper:
        yield "names no paper; add 'Source: Authors, Title (Year).' to the docstring of its factory"
    if not all(is_checked(factory, option) for option in inspect.signature(factory).parameters):
        yield "takes any value in Python; put @validated before its factory, or annotate its options"


def is_checked(factory: Factory, option: str) -> bool:
    try:
        factory(**{option: object()})
    except ct.ConfigError:
        return True
    return False


def missing_on_page(name: str, factory: Factory) -> Iterator[str]:
    sent = method_tables.sent().get(name)
    if sent is None:
        yield (
            "has no page; a page in docs/algorithms needs a row for it in the section "
            "'What is sent': | `NAME` | `delta` `size` `loss` | from whom, and when | exchanges |"
        )
        return
    page = f"docs/algorithms/{sent.page}.md"
    text = (ROOT / page).read_text(encoding="utf-8")
    if tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) != SECTIONS:
        yield f"has other sections; {page} needs these in this order: ## {', ## '.join(SECTIONS)}"
    yield from missing_before_sections(page, text)
    rows = parameters_on(text, name)
    for option, parameter in inspect.signature(factory).parameters.items():
        if rows.get(option) != default_of(parameter):
            yield (
                f"has an option whose default its page does not show; {page} needs the row "
                f"| `{option}` | {default_of(parameter)} | meaning | in the section 'Parameters'"
            )


def missing_before_sections(page: str, text: str) -> Iterator[str]:
    """What a page lacks of its beginning: what the method does, its paper, and perhaps a picture."""
    _, first, *rest = [*text.split("\n## ")[0].split("\n\n"), ""]
    sentences = len(re.findall(r"[.:?](?:\s|$)", first))
    if "$" in first or not 2 <= sentences <= 7:
        yield (
            f"does not say what it does; {page} begins with two to seven plain sentences without "
            "formulas"
        )
    kinds = [re.match(r"Paper|!\[", part) for part in rest]
    order = [kind[0] for kind in kinds if kind]
    if order[:1] != ["Paper"]:
        yield f"names no paper on its page; {page} needs a line 'Paper: ...' before its picture"


def parameters_on(text: str, name: str) -> dict[str, str]:
    """The options of a method with their defaults, as its page shows them."""
    tables = method_tables.sections(text).get("Parameters", "")
    # The table of its own, or that of all methods of the page.
    own = tables.split(f"### `{name}`\n")[-1].split("\n#")[0]
    rows = re.findall(r"^\| `(\w+)` \| `?([^|`]+?)`? \|", own, re.MULTILINE)
    return {option: default.strip('"') for option, default in rows}


def default_of(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return "required"
    if isinstance(parameter.default, str):
        return parameter.default
    return repr(parameter.default)


def missing_in_tests(name: str, factory: Factory) -> Iterator[str]:
    make = SPECIAL.get(name, default_case(factory))
    try:
        method = make(2)
        as_algorithm(method)
    except Exception as error:  # noqa: BLE001 - a factory may raise anything
        yield (
            f"has no case in the contract suite, because its defaults fail ({error}); add a line "
            "to SPECIAL in tests/contract/cases.py"
        )
        return
    if isinstance(method, ct.Method) and method.needs is None:
        yield "does not say what it needs of single clients; give Method(...) its needs=(...)"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_nothing_is_missing(name: str) -> None:
    found = missing(name, ALGORITHMS[name])
    assert not found, "\n" + "\n".join(found)


def test_every_method_is_in_one_list_and_in_all_tables() -> None:
    pages = method_tables.sent()
    written = {name: make(ALGORITHMS, pages) for name, make in method_tables.TABLES.items()}
    for name in ALGORITHMS:
        lists = [written[one].count(f"| `{name}` |") for one in ("grouped", "single")]
        assert sorted(lists) == [0, 1]
        for one in ("replies", "needed", "exchanges"):
            assert written[one].count(f"| `{name}` |") == 1


def test_what_is_imported_for_another_reason_is_no_method() -> None:
    """Every function that the file of the registry imports from the package is a method, so each
    has a line of its own, `from ... import NAME as NAME`, and nothing else is imported there."""
    tree = ast.parse((ROOT / REGISTRY).read_text(encoding="utf-8"))
    lines = [
        one
        for statement in tree.body
        if isinstance(statement, ast.ImportFrom)
        and str(statement.module).startswith("coterie.algorithms.")
        for one in statement.names
    ]
    assert [one.name for one in lines if one.name != one.asname] == []
    assert [one.asname for one in lines] == list(ALGORITHMS)


def test_no_page_is_of_a_method_that_is_gone() -> None:
    assert set(method_tables.sent()) == set(ALGORITHMS)


def made_up(strength):
    return strength


def half_made(strength: float = 0.5, groups: int = 3) -> ct.Method:
    """HalfMade: solves ``min F(w)`` (eq. 3).

    Models: a few.
    """
    return ct.fedavg()


def test_all_that_a_method_lacks_is_named() -> None:
    found = missing("made_up", made_up)
    expected = [
        "is not registered; add 'from coterie.algorithms.made_up import made_up as made_up' to src",
        "has no description; begin the docstring of its factory with 'Name: what it does.'",
        "does not say how many models it trains; add 'Models: one.' or",
        "names no paper; add 'Source: Authors, Title (Year).'",
        "takes any value in Python; put @validated before its factory",
        "has no page; a page in docs/algorithms needs a row for it in the section 'What is sent'",
        "has no case in the contract suite, because its defaults fail (made_up() missing",
    ]
    assert len(found) == len(expected)
    for sentence, beginning in zip(found, expected, strict=True):
        assert sentence.startswith(f"made_up: {beginning}")


def test_only_what_a_method_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # The package looks a method up when it is first asked for; its contract case needs the real one.
    assert ct.fedprox is ALGORITHMS["fedprox"]
    monkeypatch.setitem(ALGORITHMS, "fedprox", half_made)
    found = missing("fedprox", half_made)
    assert [sentence.split("; ")[0] for sentence in found] == [
        "fedprox: is described by 'Solves ``min F(w)`` (eq. 3).'",
        "fedprox: does not say how many models it trains",
        "fedprox: names no paper",
        "fedprox: takes any value in Python",
        "fedprox: has an option whose default its page does not show",
        "fedprox: has an option whose default its page does not show",
    ]
    assert "| `strength` | 0.5 | meaning |" in found[4]


# --- a method is its file, its page and one line --------------------------------------------------

GUIDE = (ROOT / "docs" / "write-a-method.md").read_text(encoding="utf-8")
STEPS = GUIDE.split("## Add it to Coterie")[1]
LINE = re.findall(r"^ +(from coterie\.algorithms\.\S+ import .+)$", STEPS, re.MULTILINE)
PAGE = """# Settle

Settle is IFCA whose clients keep a model. They keep one that they chose several times in a row.

Paper: none.

## Algorithm

## What is sent

{sent}

## Parameters

| name | default | meaning |
|---|---|---|
| `groups` | 3 | number of models |
| `times` | 2 | how often a client must choose the same model |

## Cost

## Deviations

## Results
"""
LISTED = """
import pytest

import coterie as ct
from coterie.cli.completion import complete_algorithms
from coterie.config import registry

def test_settle_is_listed():
    assert ct.settle(groups=4).groups == 4
    with pytest.raises(ct.ConfigError, match="groups"):
        ct.settle(groups=0)
    assert "settle" in ct.__all__
    assert complete_algorithms("sett") == ["settle"]
    assert registry.build("algorithm", {"name": "settle", "times": 3}).assign.times == 3
"""


@pytest.mark.slow
def test_a_new_method_is_its_file_its_page_and_one_line(tmp_path: Path) -> None:
    """The steps of docs/write-a-method.md in a copy of the repository."""
    for folder in ("src", "docs", "tests"):
        unwanted = shutil.ignore_patterns("_build", "results", "notebooks", ".*cache*")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=unwanted)
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)

    # Its file, and one line.
    shutil.copy(ROOT / "examples" / "settle.py", tmp_path / "src/coterie/algorithms")
    (line,) = LINE
    registry = tmp_path / REGISTRY
    text = registry.read_text(encoding="utf-8")
    registry.write_text(text.replace("# isort: on", f"{line}\n# isort: on"), encoding="utf-8")

    # Its page.
    (sent,) = re.findall(r"^ +(\| `settle` \| .+\|)$", STEPS, re.MULTILINE)
    page = tmp_path / "docs" / "algorithms" / "settle.md"
    page.write_text(PAGE.format(sent=sent), encoding="utf-8")

    # Everything else knows it.
    (tmp_path / "tests" / "test_listed.py").write_text(LISTED, encoding="utf-8")
    files = [
        "algorithms/test_registered.py",
        "test_listed.py",
        "contract/test_algorithms.py",
        "clients",
    ]
    some = "settle and (nothing_is or same_seed or ledger or listed) or in_all_tables or gone"
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-k", some]
    printed = python(tmp_path, "-m", "pytest", *(f"tests/{file}" for file in files), *options)
    assert "6 passed" in printed, printed


def python(folder: Path, *arguments: str) -> str:
    """Run Python with the copy in a folder; return what it printed."""
    paths = os.pathsep.join([str(folder / "src"), str(folder)])
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def lines_of_code(text: str) -> int:
    """The lines of a file that are neither empty, nor a comment, nor of a docstring."""
    said: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            assert first.end_lineno is not None
            said |= set(range(first.lineno, first.end_lineno + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(
        number not in said and bool(line.strip()) and not line.strip().startswith("#")
        for number, line in lines
    )


@pytest.mark.parametrize("name", SHORT)
def test_a_method_can_be_read_at_once(name: str) -> None:
    text = (ROOT / f"src/coterie/algorithms/{name}.py").read_text(encoding="utf-8")
    assert lines_of_code(text) <= LONGEST_FILE
