"""FedGSP's formulas of time and traffic (eq. 15 to 17), with the paper's constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coterie.measures.costs import Costs, GroupsInRound, constant, growing

# The options of an algorithm and a number of rounds -> what these cost.
CostOf = Callable[[Mapping[str, Any], int], float]


def groups_in_round(algorithm: Mapping[str, Any]) -> GroupsInRound:
    """How many groups train in a round: FedGSP's grow, all others train a client each.

    Args:
        algorithm: the table of a configuration.

    Example:
        >>> groups_in_round({"name": "fedavg"})(1), groups_in_round({"name": "fedgsp"})(1)
        (368, 10)
    """
    clients = Costs().clients
    if algorithm["name"] != "fedgsp":
        return constant(int(algorithm.get("groups", clients)))
    # The defaults are those of FedGSP's paper: log, 2 and 10.
    growth = algorithm.get("growth", "log")
    return growing(growth, algorithm.get("alpha", 2.0), algorithm.get("beta", 10), clients)


def _costs(algorithm: Mapping[str, Any]) -> Costs:
    return Costs(kappa=algorithm.get("kappa", 0.3))


def computation_seconds(algorithm: Mapping[str, Any], rounds: int) -> float:
    """Seconds of computation, eq. 15.

    Args:
        algorithm: the table of a configuration.
        rounds: how many.

    Example:
        >>> round(computation_seconds({"name": "fedgsp"}, 34), 2)
        10.19
    """
    return _costs(algorithm).computation(rounds, groups_in_round(algorithm))


def communication_seconds(algorithm: Mapping[str, Any], rounds: int) -> float:
    """Seconds of communication, eq. 16.

    Args:
        algorithm: the table of a configuration.
        rounds: how many.

    Example:
        >>> round(communication_seconds({"name": "fedgsp"}, 34), 1)
        2669.2
    """
    return _costs(algorithm).communication(rounds)


def traffic_gigabytes(algorithm: Mapping[str, Any], rounds: int) -> float:
    """Traffic in GB, eq. 17.

    Args:
        algorithm: the table of a configuration.
        rounds: how many.

    Example:
        >>> round(traffic_gigabytes({"name": "fedavg"}, 470), 1)
        2615.2
    """
    return _costs(algorithm).traffic(rounds) / 1e9
