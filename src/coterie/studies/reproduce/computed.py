"""Lines that follow from formulas, or from the data alone, without training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coterie.measures.costs import Costs, constant, growing
from coterie.models import spec
from coterie.runs.prepare import load_data
from coterie.studies.reproduce.tables import Line

Formula = Callable[[Line, str | None], float]


# --- FlexCFL, Fig. 6: model-sized transfers -------------------------------------------------------


def fedavg_transfers(N: int, K: int, T: int, **_: Any) -> float:
    """``2 K T``: one down, one up for each participant; FeSEM's, too."""
    return 2 * K * T


def flexcfl_transfers(
    N: int, K: int, T: int, m: int, alpha: int, eta_g: bool = False, **_: Any
) -> float:
    """``2 K T + N m + 2 alpha m``, with inter-group aggregation ``m T`` more.

    Example:
        >>> flexcfl_transfers(N=1000, K=20, T=300, m=3, alpha=20) / fedavg_transfers(N=1000, K=20, T=300)
        1.26
    """
    return 2 * K * T + N * m + 2 * alpha * m + (m * T if eta_g else 0)


def ifca_mig_transfers(N: int, K: int, T: int, m: int, p: float, **_: Any) -> float:
    """``K (m + 1) T`` and ``m`` for each client that a swap is expected to move, of those met
    before (``K`` a round).

    Example:
        >>> mnist = {"N": 1000, "K": 20, "T": 300, "m": 3, "p": 0.05}
        >>> round(ifca_mig_transfers(**mnist) / fedavg_transfers(**mnist), 2)
        5.43
    """
    moved = sum(p * 2 * (min(N, K * t) // 2) for t in range(T))
    return K * (m + 1) * T + m * moved


# --- all formulas ---------------------------------------------------------------------------------


def _parameters(line: Line, root: str | None) -> float:
    config = line.config(root)
    return spec(config.model.name, **config.options("model")).count(
        tuple(line.arguments["shape"]), line.arguments["classes"]
    )


def _clients(line: Line, root: str | None) -> float:
    return load_data(line.config(root))[2].clients


def _samples(line: Line, root: str | None) -> float:
    population = load_data(line.config(root))[2]
    return float(population.sizes("train").sum() + population.sizes("test").sum())


def _t_comp(line: Line, root: str | None) -> float:
    costs = Costs()
    rounds = line.arguments["rounds"]
    log = line.arguments["growth"] == "log"
    return costs.computation(
        rounds, growing("log", 2.0, 10, costs.clients) if log else constant(costs.clients)
    )


def _time_saved(line: Line, root: str | None) -> float:
    costs = Costs()
    rounds = line.arguments["rounds"]
    other = line.arguments["against"]
    own = costs.computation(rounds, growing("log", 2.0, 10, costs.clients)) + costs.communication(
        rounds
    )
    return 100 * (
        1 - own / (costs.computation(other, constant(costs.clients)) + costs.communication(other))
    )


def _eta_extra(line: Line, root: str | None) -> float:
    return 100 * (
        flexcfl_transfers(**line.arguments, eta_g=True) / flexcfl_transfers(**line.arguments) - 1
    )


FORMULAS: Mapping[str, Formula] = {
    "parameters": _parameters,
    "clients": _clients,
    "samples": _samples,
    "t_comp": _t_comp,
    "t_comm": lambda line, root: Costs().communication(line.arguments["rounds"]),
    "d_comm": lambda line, root: Costs().traffic(line.arguments["rounds"]) / 1e9,
    "time_saved": _time_saved,
    "traffic_saved": lambda line, root: (
        100 * (1 - line.arguments["rounds"] / line.arguments["against"])
    ),
    "ifca_mig": lambda line, root: (
        ifca_mig_transfers(**line.arguments) / fedavg_transfers(**line.arguments)
    ),
    "flexcfl": lambda line, root: (
        flexcfl_transfers(**line.arguments) / fedavg_transfers(**line.arguments)
    ),
    "flexcfl_eta": _eta_extra,
}
NEED_DATA = frozenset({"clients", "samples"})
