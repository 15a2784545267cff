"""Small runs on planted digits, whose figures the tests compute by hand."""

from __future__ import annotations

from typing import Any

import coterie as ct

SOLVER = ct.Solver(epochs=2, lr=0.1)


def digits() -> ct.Population:
    return ct.load("digits", partition={"kind": "planted", "clients": 12, "groups": 2})


def measured(method: Any, **options: Any) -> ct.Result:
    """Two rounds of six clients, unless the options say otherwise."""
    settings: dict[str, Any] = {
        "data": digits(),
        "model": "mclr",
        "local": SOLVER,
        "rounds": 2,
        "clients_per_round": 6,
        "engine": "serial",
    }
    return ct.run(method, **settings | options)
