"""Configuration: TOML in, checked records, TOML out."""

from coterie.config.load import RunConfig, check, load

__all__ = ["RunConfig", "check", "load"]
