"""Configuration: TOML in, checked records, TOML out."""

from coterie.config.run_config import RunConfig, check, load

__all__ = ["RunConfig", "check", "load"]
