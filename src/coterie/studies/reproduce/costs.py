"""FedGSP's formulas of time and traffic (eq. 15 to 17), with the paper's constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from coterie.measures.costs import Costs, GroupsInRound, constant, growing

Quantity = Literal["t_comp", "t_comm", "d_comm"]


def groups_in_round(algorithm: Mapping[str, Any]) -> GroupsInRound:
    """How many groups train in a round: FedGSP's grow, all others train a client each."""
    clients = Costs().clients
    if algorithm["name"] != "fedgsp":
        return constant(int(algorithm.get("groups", clients)))
    # The defaults are those of FedGSP's paper: log, 2 and 10.
    growth = algorithm.get("growth", "log")
    return growing(growth, algorithm.get("alpha", 2.0), algorithm.get("beta", 10), clients)


def cost(quantity: Quantity, algorithm: Mapping[str, Any], rounds: int) -> float:
    """What so many rounds of a method cost by the paper's formulas.

    Args:
        quantity: ``t_comp``: seconds of computation (eq. 15); ``t_comm``: seconds of communication
            (eq. 16); ``d_comm``: traffic in GB (eq. 17).

    Example:
        >>> fedgsp = {"name": "fedgsp"}
        >>> f"{cost('t_comp', fedgsp, 34):.2f} s, {cost('t_comm', fedgsp, 34):.1f} s"
        '10.19 s, 2669.2 s'
        >>> f"{cost('d_comm', {'name': 'fedavg'}, 470):.1f} GB"
        '2615.2 GB'
    """
    costs = Costs(kappa=algorithm.get("kappa", 0.3))
    if quantity == "t_comp":
        return costs.computation(rounds, groups_in_round(algorithm))
    if quantity == "t_comm":
        return costs.communication(rounds)
    return costs.traffic(rounds) / 1e9
