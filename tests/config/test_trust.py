"""Which files a module would run, found without running it."""

from __future__ import annotations

import sys
from pathlib import Path

from coterie.config.trust import imported_files, module_files


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
