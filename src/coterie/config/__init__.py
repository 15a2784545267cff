"""Configuration: TOML in, checked records, TOML out."""

from typing import Any

from coterie.config.reading import check, load_config
from coterie.config.tables import RunConfig
from coterie.deprecated import renamed

__all__ = ["RunConfig", "check", "load_config"]


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"load": "load_config"})
