"""What the server's app was started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.deploy.federation_spec import parse_config
from coterie.deploy.settings import DeploymentSettings, require_cohort
from coterie.experiment import Experiment


@dataclass(frozen=True, slots=True)
class ServerInput:
    """What the server's app was started with."""

    config: Experiment
    settings: DeploymentSettings
    out: Path
    resume: bool

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ServerInput:
        """From the app's own values: ``config`` (TOML), ``settings`` (JSON), ``out`` and
        ``resume``."""
        config = parse_config(str(values["config"]))
        settings = DeploymentSettings.loads(str(values["settings"]))
        require_cohort(config, settings.clients)
        return cls(config, settings, Path(str(values["out"])), bool(values["resume"]))
