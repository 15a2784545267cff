"""A run folder that tests of stored runs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.runs.folder.store import RunFolder
from tests.runs.stored_runs import RESOLVED


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """An empty run folder."""
    return RunFolder.create(tmp_path / "run", RESOLVED)
