"""What tests of sweeps share: a configuration, and the lines of errors."""

from __future__ import annotations

from typing import Any

import pytest

TABLES: dict[str, Any] = {
    "data": {
        "source": "digits",
        "partition": {"kind": "planted", "clients": 12, "groups": 2, "how": "swap"},
    },
    "model": {"name": "mclr"},
    "local": {"epochs": 1, "lr": 0.1},
    "train": {"rounds": 3, "clients_per_round": 6},
    "algorithm": {"name": "fedgroup", "groups": 2, "alpha": 3, "pretrain_steps": 5},
    "engine": {"name": "serial"},
    "checkpoint": {"seconds": 0},
}


def errors(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of standard error, without their beginning."""
    return [line.removeprefix("error: ") for line in capsys.readouterr().err.splitlines()]
