"""One short factory a paper."""

from collections.abc import Callable
from typing import Any

from coterie.algorithms.fedavg import fedavg
from coterie.algorithms.fedgroup import fedgroup, fedgrouprox
from coterie.algorithms.fedprox import fedprox
from coterie.algorithms.fesem import fesem
from coterie.algorithms.flexcfl import flexcfl
from coterie.algorithms.ifca import ifca

ALGORITHMS: dict[str, Callable[..., Any]] = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "fedgroup": fedgroup,
    "fedgrouprox": fedgrouprox,
    "flexcfl": flexcfl,
    "ifca": ifca,
    "fesem": fesem,
}

__all__ = ["ALGORITHMS", "fedavg", "fedgroup", "fedgrouprox", "fedprox", "fesem", "flexcfl", "ifca"]
