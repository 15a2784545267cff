"""A release names one version everywhere, and installs as its documentation says."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest

import coterie
from coterie.runs.tracking import NEEDS
from tools.check_release import citation, disagreements, newest_change, package_version

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of the files that carry the version."""
    (tmp_path / "src" / "coterie").mkdir(parents=True)
    for name in ("CHANGELOG.md", "CITATION.cff", "pyproject.toml", "src/coterie/__init__.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_version_is_the_same_everywhere():
    assert disagreements() == []
    assert package_version() == coterie.__version__


@pytest.mark.parametrize("name", ["CHANGELOG.md", "CITATION.cff", "src/coterie/__init__.py"])
def test_another_version_is_found(clone: Path, name: str):
    replace(clone / name, coterie.__version__, "9.9.9")
    assert any("9.9.9" in line for line in disagreements(clone))


def test_a_second_source_of_the_version_is_found(clone: Path):
    replace(clone / "pyproject.toml", 'dynamic = ["version"]', 'version = "0.2.0"')
    assert any("pyproject.toml" in line for line in disagreements(clone))


def test_a_final_release_has_a_day(clone: Path):
    number, day = newest_change(clone)
    replace(clone / "CHANGELOG.md", f"## [{number}] - {day}", f"## [{number}] - unreleased")
    assert disagreements(clone) == []
    (line,) = disagreements(clone, final=True)
    assert "expected the day of the release" in line


def test_changelog_and_citation_have_the_same_day(clone: Path):
    number, day = newest_change(clone)
    replace(clone / "CHANGELOG.md", f"## [{number}] - {day}", f"## [{number}] - 2031-02-03")
    (line,) = disagreements(clone, final=True)
    assert "2031-02-03" in line

    cited = (clone / "CITATION.cff").read_text(encoding="utf-8")
    others = re.sub(r"^date-released:.*\n", "", cited, flags=re.MULTILINE)
    (clone / "CITATION.cff").write_text(others + "date-released: 2031-02-03\n", encoding="utf-8")
    assert disagreements(clone, final=True) == []


def test_a_heading_without_a_version_is_refused(clone: Path):
    number, _ = newest_change(clone)
    replace(clone / "CHANGELOG.md", f"## [{number}]", "## [Unreleased]\n\n## [{number}]")
    with pytest.raises(SystemExit, match="newest heading"):
        disagreements(clone)


def test_citation_and_project_say_the_same():
    cited = citation()
    assert cited["cff-version"] == "1.2.0"
    assert cited["title"].lower() == PROJECT["project"]["name"]
    assert cited["license"] == PROJECT["project"]["license"]
    (author,) = PROJECT["project"]["authors"]
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"  - name: {author['name']}\n" in text


def test_install_commands_work_from_a_clone():
    """No package index has Coterie, so pages and messages name the folder or an address, and known
    extras."""
    extras = PROJECT["project"]["optional-dependencies"]
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for folder, pattern in (
        ("docs", "*.md"),
        ("docs", "*.ipynb"),
        ("examples", "*"),
        ("src", "*.py"),
    ):
        pages += (path for path in (ROOT / folder).rglob(pattern) if path.is_file())
    commands = 0
    for page in pages:
        if "_build" in page.parts or page.suffix == ".pyc":
            continue
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"install '?\"?coterie(?!\[\w+\] @ )", text), page
        for extra in re.findall(r"pip install '\.\[(\w+)\]'", text):
            assert extra in extras, page
            commands += 1
        for extra in re.findall(r"install_command\(['\"](\w+)['\"]\)", text):
            assert extra in extras, page
            commands += 1
    assert commands > 10


def test_every_tracker_has_an_extra_of_its_name():
    assert set(NEEDS) <= set(PROJECT["project"]["optional-dependencies"])
