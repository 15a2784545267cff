"""Machine code is kept for the next process, and made anew when any kernel's file changes."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from coterie.local.kernels import compilation

CALLED = """
from kept_kernels.compilation import compiled


@compiled("i8(i8)")
def step(x):
    return x + {amount}
"""
CALLING = """
from kept_kernels.compilation import compiled
from kept_kernels.called import step


@compiled("i8(i8)")
def two_steps(x):
    return step(step(x))
"""


def load(folder: Path, amount: int) -> ModuleType:
    """The kernels as a new process would import them, of which one adds an amount."""
    (folder / "called.py").write_text(CALLED.format(amount=amount))
    for name in [name for name in sys.modules if name.startswith("kept_kernels")]:
        del sys.modules[name]
    importlib.invalidate_caches()
    return importlib.import_module("kept_kernels.calling")


def loaded_from_disk(kernel: Any) -> bool:
    """Whether no machine code of a kernel had to be made."""
    return bool(kernel.stats.cache_hits) and not kernel.stats.cache_misses


def test_a_kernel_is_compiled_anew_when_another_file_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept_kernels"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "calling.py").write_text(CALLING)
    shutil.copy(Path(compilation.__file__), folder)
    monkeypatch.syspath_prepend(tmp_path)
    # Python compares source files by second and size, which an edit in this test may not change.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    assert load(folder, 1).two_steps(0) == 2
    again = load(folder, 1).two_steps
    assert again(0) == 2
    assert loaded_from_disk(again)
    # The caller's own file is as it was.
    assert load(folder, 5).two_steps(0) == 10
