"""What training costs by the formulas of FedGSP (eq. 15-17).

The defaults are the paper's constants. It says 6.3 million parameters and 25.2 MB; its network has
6,603,710, which are 26.4 MB or 25.2 MiB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coterie.data.population import Population
from coterie.headline import ACCURACY, Headline
from coterie.math.balanced import Growth, grow

# The paper's f: round, counted from 1 -> number of groups.
GroupsInRound = Callable[[int], int]


@dataclass(frozen=True, slots=True)
class Costs:
    """Time and traffic of ``R`` rounds in which ``kappa f(r)`` groups of clients train.

    Args:
        clients: ``K``.
        kappa: share of the groups, and so of the clients, that train in a round.
        samples: mean samples per client, ``n``.
        epochs: local epochs ``e``.
        flops_sample: ``N_calc``, operations to train on one sample once.
        flops_aggregate: ``N_aggr``, operations to add one model to an average.
        flops_second: ``T_FLOPS``, operations per second of a device.
        bits_in: ``R_in``, bits per second into the server.
        bits_out: ``R_out``, bits per second out of it.
    """

    clients: int = 368
    kappa: float = 0.3
    samples: float = 226.0
    epochs: int = 1
    flops_sample: float = 96e6
    flops_aggregate: float = 6.3e6
    flops_second: float = 567e9
    model_bytes: float = 25.2e6
    bits_in: float = 567e6
    bits_out: float = 567e6

    @classmethod
    def measured(cls, population: Population, parameters: int, kappa: float = 0.3) -> Costs:
        """The costs of a run, with its clients, samples per client and float32 model. Speeds are
        those of the paper."""
        sizes = population.sizes("train")
        return cls(len(sizes), kappa, float(sizes.mean()), model_bytes=4.0 * parameters)

    def computation(self, rounds: int, groups: GroupsInRound) -> float:
        """``T_comp = sum_r N_calc/T n e K / min(K, f(r)) + N_aggr/T (kappa f(r) - 1)`` in seconds
        (eq. 15); FedAvg is ``f = K``."""
        total = 0.0
        for r in range(1, rounds + 1):
            f = groups(r)
            # The clients of a group train one after another; groups train at the same time.
            chain = self.clients / min(self.clients, f)
            training = self.flops_sample * self.samples * self.epochs * chain
            # kappa f models are added up, which takes one addition less.
            aggregation = self.flops_aggregate * (self.kappa * f - 1)
            total += training + aggregation
        return total / self.flops_second

    def communication(self, rounds: int) -> float:
        """``T_comm = 8 kappa K M R (1/R_in + 1/R_out)`` in seconds (eq. 16)."""
        # 8 bits to a byte.
        each = 8 * self.kappa * self.clients * self.model_bytes
        return each * rounds * (1 / self.bits_in + 1 / self.bits_out)

    def traffic(self, rounds: int) -> float:
        """``D_comm = 2 kappa K M R`` in bytes (eq. 17): two transfers for each client that trains."""
        return 2 * self.kappa * self.clients * self.model_bytes * rounds


def growing(growth: Growth, alpha: float, beta: int, clients: int) -> GroupsInRound:
    """``f`` of FedGSP's eq. 1-3, clipped at the number of clients."""
    return lambda r: grow(growth, r, alpha, beta, clients)


def constant(groups: int) -> GroupsInRound:
    """``f`` of a fixed number of groups: NaiveGSP, and with one group per client FedAvg."""
    return lambda r: groups


def rounds_to_target(
    rows: Iterable[Mapping[str, Any]], target: float, headline: Headline = ACCURACY
) -> int | None:
    """After how many rounds the headline was first as good as this; ``None`` where it never was."""
    for row in rows:
        value = row[headline.name]
        if value is not None and headline.reaches(value, target):
            return row["round"] + 1
    return None
