"""The tables of a small run."""

from tests.config.conftest import tables as tables
