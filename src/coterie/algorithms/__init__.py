"""One short factory a paper."""

from collections.abc import Callable
from typing import Any

from coterie.algorithms.fedavg import fedavg
from coterie.algorithms.fedgroup import fedgroup, fedgrouprox
from coterie.algorithms.fedprox import fedprox

ALGORITHMS: dict[str, Callable[..., Any]] = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "fedgroup": fedgroup,
    "fedgrouprox": fedgrouprox,
}

__all__ = ["ALGORITHMS", "fedavg", "fedgroup", "fedgrouprox", "fedprox"]
