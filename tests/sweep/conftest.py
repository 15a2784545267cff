"""A small sweep on the digits."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli_w

from tests.sweep.cases import TABLES


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a configuration, in an empty folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text(tomli_w.dumps(TABLES))
    return "c.toml"
