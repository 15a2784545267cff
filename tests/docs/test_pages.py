"""What the documentation shows is true: its examples run, its tables are those of the code."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from coterie.algorithms import ALGORITHMS
from coterie.config import registry

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
]


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_python_example_runs(tmp_path):
    (code,) = blocks("python")
    script = tmp_path / "example.py"
    script.write_text(code, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    one, many = map(
        float,
        re.search(r"one model: ([\d.]+)%, a model per group: ([\d.]+)%", done.stdout).groups(),
    )
    assert many > one


def test_configuration_is_accepted():
    from coterie.config import check

    (text,) = blocks("toml")
    assert check(tomllib.loads(text)).algorithm.name == "fedgroup"
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    (text,) = blocks("toml", page)
    assert check(tomllib.loads(text)).shift.kind == "swap_all"


def test_commands_exist():
    from typer.main import get_command

    from coterie.cli.main import app

    known = set(get_command(app).commands)
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    in_readme, on_page = (
        set(re.findall(r"^    coterie ([a-z]+)", text, re.MULTILINE)) for text in (README, page)
    )
    assert in_readme
    assert in_readme <= known
    assert on_page == known  # the page lists every command, and no other


def test_every_algorithm_is_in_the_table_and_no_other():
    table = README.split("## Algorithms")[1].split("## ")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == list(ALGORITHMS)


PAGES_OF = {
    "rfedavg": ["rfedavg", "rfedavg_kmeans", "rfedavg_optimal"],
    "fedgroup": ["fedgrouprox", "fedgroup"],
    "fedgsp": ["fedgsp", "naive_gsp"],
    "astraea": ["astraea"],
    "fedopt": ["fedavgm", "fedadagrad", "fedadam", "fedyogi"],
    **{name: [name] for name in ("ida", "fedmmd", "fedfusion")},
    **{
        name: [name]
        for name in ("fedprox", "flexcfl", "ifca", "fesem", "fedclust", "pacfl", "flhc", "cfl")
    },
}


@pytest.mark.parametrize(("page", "factories"), PAGES_OF.items())
def test_parameter_tables_are_those_of_the_factories(page, factories):
    text = (ROOT / "docs" / "algorithms" / f"{page}.md").read_text(encoding="utf-8")
    tables = text.split("## Parameters")[1]
    for factory in factories:
        table = tables.split(f"### `{factory}`")[-1].split("\n#")[0]  # its own, or that of all
        rows = dict(re.findall(r"^\| `(\w+)` \| `?([^|`]+)`? \|", table, re.MULTILINE))
        for name, parameter in inspect.signature(ALGORITHMS[factory]).parameters.items():
            shown = (
                parameter.default if isinstance(parameter.default, str) else repr(parameter.default)
            )
            assert rows[name].strip('"') == shown


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_exit_codes_are_those_of_the_errors():
    from coterie import errors

    table = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    ours = {
        e.code
        for e in vars(errors).values()
        if isinstance(e, type) and issubclass(e, errors.CoterieError)
    }
    assert ours | {0, 130, 143} == documented


# --- snippets and notebooks -----------------------------------------------------------------------

RUN = ("tutorial", "write-a-method", "choose")  # pages whose snippets run, in order, in one folder
BLOCK = re.compile(r"^```(python|toml|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("sweeps", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("page", RUN)
def test_snippets_run(page, sweeps, tmp_path, monkeypatch, capsys):
    """All of them in the slow tests; in the others those that sweep are checked only so far as to
    be planned."""
    from coterie.cli import compare
    from coterie.cli.main import invoke

    if not sweeps:
        monkeypatch.setattr(compare, "run_sweep", lambda plan, *_: assert_planned(plan))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "examples").mkdir()
    for file in (ROOT / "examples" / "digits.toml", ROOT / "examples" / "settle.py"):
        shutil.copy(file, tmp_path / "examples")
        shutil.copy(file, tmp_path)
    space: dict[str, object] = {}
    before = set(sys.modules)
    try:
        for language, text in BLOCK.findall(
            (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        ):
            if language == "toml":
                (tmp_path / re.match(r"# (\S+\.toml)\n", text)[1]).write_text(
                    text, encoding="utf-8"
                )
            elif language == "python":
                exec(compile(text, f"{page}.md", "exec"), space)
            else:
                joined = text.replace("\\\n", "")  # a command over several lines
                for line in re.findall(r"^\$ coterie (.*)$", joined, re.MULTILINE):
                    assert invoke(shlex.split(line)) == 0, (line, capsys.readouterr().err)
    finally:
        for name in ("settle", "load"):  # modules of the folder, which is gone after the test
            if name not in before:
                sys.modules.pop(name, None)


def assert_planned(plan) -> None:
    assert len(plan.runs) > 1


NAMED = [
    page
    for page in PAGES
    if page.name != "CHANGELOG.md" and page.parent.name not in ("decisions", "results")
]
BASE = {
    "data": {"source": "digits", "partition": {"kind": "iid", "clients": 40}},
    "model": {"name": "mclr"},
    "train": {"rounds": 2, "clients_per_round": 4},
    "algorithm": {"name": "fedavg"},
}  # what a configuration needs besides the tables that a page shows


def found(name: str) -> bool:
    """Whether a dotted name of the library leads to something."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            if not hasattr(thing, part):
                return False
            thing = getattr(thing, part)
        return True
    return False


@pytest.mark.parametrize("page", NAMED, ids=lambda path: path.name)
def test_names_that_pages_mention_exist(page):
    text = page.read_text(encoding="utf-8")
    names = {name.rstrip(".") for name in re.findall(r"(?<![\w/])coterie(?:\.[A-Za-z]\w*)+", text)}
    names |= {f"coterie.{name}" for name in re.findall(r"\bct\.(\w+)", text)}
    names -= {
        kind.entry_points for kind in registry.KINDS.values()
    }  # groups of entry points are no modules
    unknown = [name for name in sorted(names) if not found(name)]
    assert not unknown


@pytest.mark.parametrize("page", NAMED, ids=lambda path: path.name)
def test_configurations_on_pages_are_accepted(page, monkeypatch):
    from coterie.config import check

    monkeypatch.syspath_prepend(str(ROOT / "examples"))  # where `settle:settle` is
    for text in blocks("toml", page.read_text(encoding="utf-8")):
        tables = tomllib.loads(text)
        data = {**BASE["data"], **tables.get("data", {})}
        check(
            {**BASE, **tables, "data": data, "train": {**BASE["train"], **tables.get("train", {})}}
        )


NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_and_are_kept_without_outputs(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    space: dict[str, object] = {"__name__": "notebook"}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            exec(compile("".join(cell["source"]), notebook.name, "exec"), space)


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
SECTIONS = ["Algorithm", "What is sent", "Parameters", "Cost", "Deviations", "Results"]
ALGORITHM_PAGES = sorted(
    path for path in (ROOT / "docs" / "algorithms").glob("*.md") if path.stem != "index"
)


@pytest.mark.parametrize("page", ALGORITHM_PAGES, ids=lambda path: path.stem)
def test_every_algorithm_page_has_every_section_in_order(page):
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS


def test_every_algorithm_page_is_in_the_table_of_methods():
    table = (ROOT / "docs" / "algorithms" / "index.md").read_text(encoding="utf-8")
    linked = re.findall(r"^\| \[[^]]+\]\((\w+)\.md\)", table, re.MULTILINE)
    assert sorted(linked) == [page.stem for page in ALGORITHM_PAGES]


@pytest.mark.parametrize("page", ALGORITHM_PAGES, ids=lambda path: path.stem)
def test_every_algorithm_page_begins_with_what_the_method_does(page):
    """A few plain sentences without formulas come before the paper and the picture."""
    text = page.read_text(encoding="utf-8")
    first = text.split("\n\n")[1]
    assert "$" not in first
    assert 2 <= len(re.findall(r"[.:?](?:\s|$)", first)) <= 7
    assert text.index(first) < text.index("\nPaper") < text.index("![") < text.index("## Algorithm")


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
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "html" / "notebooks" / "groups.html").exists()
    assert "<math" in (tmp_path / "html" / "algorithms" / "fedgroup.html").read_text("utf-8")
    for page in (tmp_path / "html").rglob("*.html"):
        loads = re.findall(r"<(?:script|link|img|iframe)[^>]*", page.read_text("utf-8"))
        assert not [load for load in loads if re.search(r'(?:src|href)="(?:https?:)?//', load)]
