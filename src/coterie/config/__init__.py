"""Configuration: TOML in, checked records, TOML out."""

from coterie.config.reading import check, load_config
from coterie.config.tables import RunConfig

__all__ = ["RunConfig", "check", "load_config"]
