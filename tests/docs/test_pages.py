"""What pages say is true: names, tables, links, options and exit codes are those of the code."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import shlex
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pytest
from typer.main import get_command

import coterie
from coterie import errors
from coterie.cli.main import app
from coterie.config import kinds, registry
from coterie.experiment.tables import table_names
from tests.conftest import PATIENCE
from tests.docs.pages import NAMED, PAGES, README, ROOT, blocks


def test_commands_exist():
    known = set(get_command(app).commands)
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    in_readme, on_page = (
        set(re.findall(r"^    coterie ([a-z]+)", text, re.MULTILINE)) for text in (README, page)
    )
    assert in_readme
    assert in_readme <= known
    assert on_page == known  # the page lists every command, and no other


def shown_commands(text: str) -> list[str]:
    """The commands in code blocks and in sentences, without comments and what follows a pipe."""
    in_blocks = re.findall(r"^ *(?:\$ )?coterie (.+)$", text.replace("\\\n", " "), re.MULTILINE)
    in_sentences = re.findall(r"`coterie ([^`]+)`", text.replace("\n", " "))
    commands = [re.split(r" #| && | \| | > ", line)[0] for line in in_blocks + in_sentences]
    # Some stand for several commands.
    return [line for line in commands if not re.search(r"\.\.\.|\[-|^COMMAND", line)]


def words_not_taken(line: str) -> list[str]:
    """The words of a command that nothing takes; an error for an option that does not exist."""
    words = shlex.split(line)
    command = get_command(app)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        command = command.commands[words.pop(0)]
    return command.make_context("coterie", words, resilient_parsing=True).args


@pytest.mark.sampled(12)
@pytest.mark.parametrize("page", NAMED, ids=lambda path: path.name)
def test_commands_that_pages_show_have_these_arguments_and_options(page):
    for line in shown_commands(page.read_text(encoding="utf-8")):
        assert words_not_taken(line) == [], line


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_no_line_is_taken_for_a_comment(page):
    # MyST drops a line that begins with a percent sign, and splits its paragraph there.
    assert not re.search(r"^%", page.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_page_of_a_choice_names_all_that_can_be_chosen():
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    pages = dict(re.findall(r"^\| `\[([\w.]+)\]` \|.+\]\(([\w-]+\.md)", text, re.MULTILINE))
    unnamed = []
    others = {"measure": "measures.md"}
    for kind, choice in kinds.KINDS.items():
        page = pages.get(".".join(choice.place)) or others.get(kind)
        # Methods and datasets are in tables that are generated.
        if page is None or kind == "source":
            continue
        shown = (ROOT / "docs" / page).read_text(encoding="utf-8")
        names = registry.builtin(kind)
        unnamed += [
            f"{name}: docs/{page} needs a row" for name in names if f"`{name}`" not in shown
        ]
    assert not unnamed, "\n".join(unnamed)
    assert len(pages) >= 11


def test_exit_codes_are_those_of_the_errors():
    table = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    ours = {
        e.code
        for e in vars(errors).values()
        if isinstance(e, type) and issubclass(e, errors.CoterieError)
    }
    assert ours | {0, 130, 143} == documented


def found(name: str) -> bool:
    """Whether a dotted name of the library leads to something."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def names_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w/])coterie(?:\.[A-Za-z]\w*)+", text))


def test_names_that_docstrings_mention_exist():
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    names = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, documented):
                names |= names_in(ast.get_docstring(node) or "")
    names -= {"coterie.NAME"}  # stands for any method
    assert len(names) > 20
    assert [name for name in sorted(names) if not found(name)] == []


def calls_shown(text: str) -> list[ast.Call]:
    """The calls in Python blocks and in sentences."""
    pieces = blocks("python", text)
    for piece in re.findall(r"(?<!`)`([^`]+\))`(?!`)", text):
        try:
            ast.parse(piece)
        except SyntaxError:
            continue  # a formula, or a piece of another language
        pieces.append(piece)
    nodes = [node for piece in pieces for node in ast.walk(ast.parse(piece))]
    return [node for node in nodes if isinstance(node, ast.Call)]


def keywords_not_taken(call: ast.Call) -> list[str]:
    """The keywords of a call of Coterie that its signature does not have."""
    name = ast.unparse(call.func)
    if not re.fullmatch(r"(ct|coterie)(\.\w+)+", name):
        return []
    taken = inspect.signature(attrgetter(name.partition(".")[2])(coterie)).parameters
    known = set(taken)
    if name.endswith(".run"):
        known |= set(table_names())
    elif any(one.kind is one.VAR_KEYWORD for one in taken.values()):
        return []
    return [word.arg for word in call.keywords if word.arg and word.arg not in known]


@pytest.mark.parametrize("page", NAMED, ids=lambda path: path.name)
def test_calls_that_pages_show_have_these_keywords(page):
    for call in calls_shown(page.read_text(encoding="utf-8")):
        assert keywords_not_taken(call) == [], ast.unparse(call)


def test_a_keyword_that_does_not_exist_is_found():
    wrong = ast.parse('ct.run(ct.fedavg(), engine="vmap", device="auto")', mode="eval").body
    assert keywords_not_taken(wrong) == ["device"]
    assert keywords_not_taken(ast.parse("ct.Solver(rate=1)", mode="eval").body) == ["rate"]


@pytest.mark.parametrize("page", NAMED, ids=lambda path: path.name)
def test_names_that_pages_mention_exist(page):
    text = page.read_text(encoding="utf-8")
    names = names_in(text)
    names |= {f"coterie.{name}" for name in re.findall(r"\bct\.(\w+)", text)}
    names -= {
        kind.entry_points for kind in kinds.KINDS.values()
    }  # groups of entry points are no modules
    names -= {"coterie.algorithms.settle"}  # the method that a reader adds by write-a-method.md
    unknown = [name for name in sorted(names) if not found(name)]
    assert not unknown


def listed_in(index: Path) -> list[str]:
    """The pages that a page's toctrees list, and those that listed index pages list."""
    tables = re.findall(
        r"^```{toctree}\n(.*?)^```", index.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    lines = [
        line for table in tables for line in table.splitlines() if line and not line.startswith(":")
    ]
    folder = index.parent.relative_to(ROOT / "docs")
    listed = [str(folder / line) for line in lines if line != "*"]
    if "*" in lines:
        listed += [str(folder / page.stem) for page in index.parent.glob("*.md") if page != index]
    below = [ROOT / "docs" / f"{page}.md" for page in listed if Path(page).name == "index"]
    return listed + [page for path in below for page in listed_in(path)]


def test_entries_of_the_changelog_are_one_line():
    newest = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]
    entries = newest.split("### Renamed, moved and removed")[0].splitlines()[1:]
    assert [line for line in entries if line and not line.startswith(("### ", "- "))] == []
    assert [line for line in entries if len(line) > 160] == []


def test_every_page_is_in_the_table_of_contents():
    listed = listed_in(ROOT / "docs" / "index.md")
    pages = [
        p.relative_to(ROOT / "docs").with_suffix("")
        for p in (ROOT / "docs").rglob("*")
        if p.suffix in KINDS
    ]
    assert sorted(listed) == sorted(
        str(p) for p in pages if str(p) != "index" and p.parts[0] != "_build"
    )


KINDS = (".md", ".ipynb")


@pytest.mark.slow
def test_the_documentation_is_built_without_a_warning(tmp_path):
    pytest.importorskip("myst_nb")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "docs",
        str(tmp_path / "html"),
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "html" / "notebooks" / "groups.html").exists()
    assert "<math" in (tmp_path / "html" / "algorithms" / "fedgroup.html").read_text("utf-8")
    for page in (tmp_path / "html").rglob("*.html"):
        loads = re.findall(r"<(?:script|link|img|iframe)[^>]*", page.read_text("utf-8"))
        assert not [load for load in loads if re.search(r'(?:src|href)="(?:https?:)?//', load)]
