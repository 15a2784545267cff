"""What `coterie list` takes. Nothing is imported here: help texts and shells wait for it."""

from __future__ import annotations

from collections.abc import Mapping

# The word of users -> the kind of choice, a key of `coterie.config.kinds.KINDS`.
LISTED: Mapping[str, str] = {
    "algorithms": "algorithm",
    "models": "model",
    "datasets": "source",
    "partitions": "partition",
    "shifts": "shift",
    "tasks": "task",
    "servers": "server",
    "weights": "weigh",
    "objectives": "objective",
    "own_models": "own_model",
    "attacks": "attack",
    "engines": "engine",
    "measures": "measure",
    "trackers": "tracker",
}
