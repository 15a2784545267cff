"""The checks of ``deploy.toml``."""

from __future__ import annotations

import tomllib

import pytest

from coterie.errors import ConfigError
from coterie.flower.settings import DeploymentSettings


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clients = 3", "deploy.toml: shape: missing"),
        ('clients = 3\nshape = [4]\nclasses = ["a"]\nport = 4', "port: unknown key"),
        ('clients = 0\nshape = [4]\nclasses = ["a"]', "clients: out of range, got 0"),
        ('clients = 3\nshape = [4]\nclasses = ["a"]\nmin_clients = 4', "expected at most 3"),
        ('clients = 3\nshape = 4\nclasses = ["a"]', "shape: "),
    ],
)
def test_settings_are_checked_in_clear_words(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        DeploymentSettings.of(tomllib.loads(text))
