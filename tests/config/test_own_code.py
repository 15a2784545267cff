"""Which files a configuration would run, found without running them, and which have changed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coterie.config.own_code import changed_code, code_digests, imported_files, module_files


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("raise SystemExit('it ran')\n" + text)


def found(name: str, folder: Path) -> set[str]:
    files = imported_files(name, [*sys.path, str(folder)])
    return {str(file.relative_to(folder)) for file in files}


def test_imports_are_followed_however_they_are_written(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "w19code/__init__.py": "from . import first",
            "w19code/net.py": "def make():\n    import w19helper\n    from .. import nowhere",
            "w19code/first.py": "from .inner.deep import value",
            "w19code/inner/__init__.py": "from ..second import *",
            "w19code/inner/deep.py": "import w19code.net",
            "w19code/second.py": "import json, torch, coterie",
            "w19code/unused.py": "",
            "w19helper.py": "from w19space.part import value",
            "w19space/part.py": "this is no Python",
        },
    )
    own = module_files("w19code.net", [*sys.path, str(tmp_path)])
    assert own == (tmp_path / "w19code/__init__.py", tmp_path / "w19code/net.py")
    assert found("w19code.net", tmp_path) == {
        "w19code/first.py",
        "w19code/inner/__init__.py",
        "w19code/inner/deep.py",
        "w19code/second.py",
        "w19helper.py",
        "w19space/part.py",
    }


def test_installed_code_imports_nothing_of_a_strangers() -> None:
    assert module_files("os", sys.path)
    assert imported_files("os", sys.path) == ()
    assert imported_files("no_such_module", sys.path) == ()


@pytest.mark.parametrize(
    "tables",
    [
        {"algorithm": {"name": "w20code:method"}},
        {"objective": {"name": "w20code:loss"}},
        {"local": {"augment": [{"name": "w20code:flip"}]}},
        {"model": {"name": "(Net)", "type": "w20code.Net"}},
        {"algorithm": {"name": "(a)", "type": "coterie.methods.Method", "rules": ["w20code.A"]}},
    ],
)
def test_code_that_changes_is_found_wherever_it_is_named(
    tables: dict[str, object], tmp_path: Path
) -> None:
    write(tmp_path, {"w20code.py": "import w20helper, json, torch", "w20helper.py": ""})
    tables = {**tables, "folder": str(tmp_path)}
    before = code_digests(tables)
    assert {Path(path).name for path in before} == {"w20code.py", "w20helper.py"}
    assert changed_code(tables, before) == []
    (tmp_path / "w20helper.py").write_text("changed = True")
    assert changed_code(tables, before) == [str(tmp_path / "w20helper.py")]


def test_code_may_move_but_not_change(tmp_path: Path) -> None:
    write(tmp_path, {"old/w21code.py": "", "new/w21code.py": ""})
    tables = {"model": {"name": "w21code:Net"}, "folder": str(tmp_path / "old")}
    before = code_digests(tables)
    elsewhere = {**tables, "folder": str(tmp_path / "new")}
    assert changed_code(elsewhere, before) == []
    (tmp_path / "new/w21code.py").write_text("changed = True")
    assert changed_code(elsewhere, before) == [str(tmp_path / "new/w21code.py")]
    # Not found by its module, but still where it was.
    (tmp_path / "old/w21code.py").write_text("changed = True")
    assert changed_code({"model": tables["model"]}, before) == [str(tmp_path / "old/w21code.py")]


def test_what_changes_no_result_is_not_code_of_a_run(tmp_path: Path) -> None:
    write(tmp_path, {"w22log.py": ""})
    tables = {"log": {"to": ["w22log:tracker"]}, "model": {"name": "torch.nn:Identity"}}
    assert code_digests({**tables, "folder": str(tmp_path)}) == {}
