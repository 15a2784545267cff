"""The commands that docs name to measure a figure again are there, and begin."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
SCRIPTS = re.compile(r"python benchmarks/(\w+)\.py")
MODULES = re.compile(r"python -m benchmarks\.([\w.]+\w)")


def named(pattern: re.Pattern[str]) -> list[str]:
    """The modules that pages name in a command of a form."""
    return sorted({name for page in PAGES for name in pattern.findall(page.read_text("utf-8"))})


@pytest.mark.parametrize("name", named(SCRIPTS))
def test_what_is_called_as_a_file_imports_no_module_beside_it(name: str) -> None:
    # Python then looks for modules in the file's folder, and not in the project's.
    source = (FOLDER / f"{name}.py").read_text("utf-8")
    assert not re.search(r"^from benchmarks|^import benchmarks", source, re.MULTILINE)


@pytest.mark.parametrize("name", sorted({*named(SCRIPTS), *named(MODULES)}))
def test_what_a_command_names_can_be_imported(name: str) -> None:
    assert import_module(f"benchmarks.{name}").__doc__
