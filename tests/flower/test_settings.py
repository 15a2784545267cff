"""The checks of ``deploy.toml``."""

from __future__ import annotations

import tomllib

import pytest

from coterie.errors import Code, ConfigError
from coterie.flower.settings import DeploymentSettings
from tests.refusals import refuses


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("clients = 3", ("missing", "shape")),
        ('clients = 3\nshape = [4]\nclasses = ["a"]\nport = 4', ("unknown-key", "port")),
        ('clients = 0\nshape = [4]\nclasses = ["a"]', ("out-of-range", "clients")),
        (
            'clients = 3\nshape = [4]\nclasses = ["a"]\nmin_clients = 4',
            ("out-of-range", "min_clients"),
        ),
        ('clients = 3\nshape = 4\nclasses = ["a"]', ("wrong-type", "shape")),
    ],
)
def test_settings_are_checked_in_clear_words(text: str, refusal: tuple[Code, str]) -> None:
    with refuses(ConfigError, *refusal):
        DeploymentSettings.of(tomllib.loads(text))
