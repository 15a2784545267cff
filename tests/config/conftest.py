"""A complete configuration that tests share."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from tests.config.complete import COMPLETE


@pytest.fixture
def tables() -> dict[str, Any]:
    """The tables of the complete configuration, for a test to change."""
    return tomllib.loads(COMPLETE)
