"""What the documentation shows is true: its examples run, its tables are those of the code."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from coterie.algorithms import ALGORITHMS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_python_example_runs(tmp_path):
    (code,) = blocks("python")
    script = tmp_path / "example.py"
    script.write_text(code, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    one, many = map(float, re.search(r"one model: ([\d.]+)%, a model per group: ([\d.]+)%", done.stdout).groups())
    assert many > one


def test_configuration_is_accepted():
    from coterie.config import check

    (text,) = blocks("toml")
    assert check(tomllib.loads(text)).algorithm.name == "fedgroup"


def test_commands_exist():
    from typer.main import get_command

    from coterie.cli import app

    known = get_command(app).commands
    shown = re.findall(r"^    coterie ([a-z]+)", README, re.MULTILINE)
    assert shown
    assert set(shown) <= set(known)


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
    **{name: [name] for name in ("fedprox", "flexcfl", "ifca", "fesem", "fedclust", "pacfl", "flhc", "cfl")},
}


@pytest.mark.parametrize(("page", "factories"), PAGES_OF.items())
def test_parameter_tables_are_those_of_the_factories(page, factories):
    text = (ROOT / "docs" / "algorithms" / f"{page}.md").read_text(encoding="utf-8")
    tables = text.split("## Parameters")[1]
    for factory in factories:
        table = tables.split(f"### `{factory}`")[-1].split("\n#")[0]  # its own, or that of all
        rows = dict(re.findall(r"^\| `(\w+)` \| `?([^|`]+)`? \|", table, re.MULTILINE))
        for name, parameter in inspect.signature(ALGORITHMS[factory]).parameters.items():
            shown = parameter.default if isinstance(parameter.default, str) else repr(parameter.default)
            assert rows[name].strip('"') == shown


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_exit_codes_are_those_of_the_errors():
    from coterie import types

    table = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    ours = {e.code for e in vars(types).values() if isinstance(e, type) and issubclass(e, types.CoterieError)}
    assert ours | {0, 130, 143} == documented
