"""One short factory a paper."""

from collections.abc import Callable
from typing import Any

from coterie.algorithms.astraea import astraea
from coterie.algorithms.cfl import cfl
from coterie.algorithms.fedavg import fedavg
from coterie.algorithms.fedclust import fedclust
from coterie.algorithms.fedfusion import fedfusion
from coterie.algorithms.fedgroup import fedgroup, fedgrouprox
from coterie.algorithms.fedgsp import fedgsp
from coterie.algorithms.fedmmd import fedmmd
from coterie.algorithms.fedopt import fedadagrad, fedadam, fedavgm, fedyogi
from coterie.algorithms.fedprox import fedprox
from coterie.algorithms.fesem import fesem
from coterie.algorithms.flexcfl import flexcfl
from coterie.algorithms.flhc import flhc
from coterie.algorithms.ida import ida
from coterie.algorithms.ifca import ifca
from coterie.algorithms.naive_gsp import naive_gsp
from coterie.algorithms.pacfl import pacfl
from coterie.algorithms.rfedavg import rfedavg, rfedavg_kmeans, rfedavg_optimal

ALGORITHMS: dict[str, Callable[..., Any]] = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "fedgroup": fedgroup,
    "fedgrouprox": fedgrouprox,
    "flexcfl": flexcfl,
    "ifca": ifca,
    "fesem": fesem,
    "fedclust": fedclust,
    "pacfl": pacfl,
    "flhc": flhc,
    "cfl": cfl,
    "fedavgm": fedavgm,
    "fedadagrad": fedadagrad,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
    "ida": ida,
    "fedmmd": fedmmd,
    "fedfusion": fedfusion,
    "rfedavg": rfedavg,
    "rfedavg_kmeans": rfedavg_kmeans,
    "rfedavg_optimal": rfedavg_optimal,
    "fedgsp": fedgsp,
    "naive_gsp": naive_gsp,
    "astraea": astraea,
}

__all__ = [
    "ALGORITHMS",
    "astraea",
    "cfl",
    "fedadagrad",
    "fedadam",
    "fedavg",
    "fedavgm",
    "fedclust",
    "fedfusion",
    "fedgroup",
    "fedgrouprox",
    "fedgsp",
    "fedmmd",
    "fedprox",
    "fedyogi",
    "fesem",
    "flexcfl",
    "flhc",
    "ida",
    "ifca",
    "naive_gsp",
    "pacfl",
    "rfedavg",
    "rfedavg_kmeans",
    "rfedavg_optimal",
]
