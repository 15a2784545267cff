"""What secure aggregation would do to a run: sums of whole numbers, and groups whose sum is lost.

The masks of secure aggregation cancel in the sum modulo a power of two, to the bit. So a simulation
needs none: the sum of what clients would mask is what the server would get. See
`coterie.math.secure_sums`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from coterie.clients.round import Round
from coterie.config.arguments import check_arguments
from coterie.core.arrays import BoolArray, FloatArray, IntArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.updates import Updates
from coterie.math.secure_sums import client_bytes, neighbourhoods, quantise, recoverable
from coterie.math.similarity import Matrix
from coterie.rules.combining import Aggregate, Aggregated
from coterie.rules.weighing import WeighsAlone


class Summed(NamedTuple):
    """What the server gets of a round.

    Args:
        total: float64 ``[k, d]``, the weighted mean update of each group; zero where it is lost.
        trained: bool ``[k]``, the groups whose sum was recovered.
        notes: for the round's row.
    """

    total: Tensor
    trained: BoolArray
    notes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SecureSums:
    """Sums of each group's updates as SecAgg+ would compute them, as ``[secure]`` has it.

    Client ``i`` with weight ``w_i`` sends ``w_i`` and ``w_i delta_i`` as whole numbers modulo
    ``2^bits``, with ``w_i`` at most 1. The server divides the sums.

    Args:
        reach: largest absolute value of a number of ``w_i delta_i``; what is beyond it is cut.
        levels: steps from ``-reach`` to ``reach``.
        bits: of the modulus.
        most_samples: that count in full, so that weights are at most 1.
        neighbours: clients that each shares its secrets with, even; ``None``: all of its group.
        threshold: share of them, itself among them, that must reply.
        least_group: clients that a group must have, or its sum is not computed.

    Raises:
        ConfigError: for a value out of its range.

    Example:
        >>> SecureSums().levels
        4194304
    """

    reach: Annotated[float, Field(gt=0)] = 8.0
    levels: Annotated[int, Field(ge=2, le=2**31)] = 2**22
    bits: Annotated[int, Field(ge=8, le=62)] = 32
    most_samples: Annotated[float, Field(gt=0)] = 1000.0
    neighbours: Annotated[int, Field(ge=2, multiple_of=2)] | None = None
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.5
    least_group: Annotated[int, Field(ge=2)] = 3

    def __post_init__(self) -> None:
        values = {name: getattr(self, name) for name in self.__slots__}
        check_arguments(SecureSums, values)

    def shares(self, clients: int) -> int:
        """Into how many shares each client of a group splits its secrets."""
        # One of them it keeps itself, so that an even number of neighbours makes an odd one.
        if self.neighbours is None:
            return clients
        return min(self.neighbours + 1, clients)

    def needed(self, clients: int) -> int:
        """Shares that bring a secret back, at least 2."""
        return max(2, math.ceil(self.threshold * self.shares(clients)))

    def weight(self, size: FloatArray, weigh: WeighsAlone) -> FloatArray:
        """What replies count, float64 ``[n]``, at most 1.

        Args:
            size: float64 ``[n]``, the training samples behind each.
            weigh: the method's rule.
        """
        most = weigh.weight_of(np.array([self.most_samples]))[0]
        weight: FloatArray = np.minimum(weigh.weight_of(size) / most, 1.0)
        return weight

    def __call__(
        self, k: int, updates: Updates, weight: FloatArray, plan: Plan, key: Key
    ) -> Summed:
        """The sums of a round.

        Args:
            k: number of groups.
            updates: the replies.
            weight: float64 ``[n]``, what each counts, at most 1.
            plan: who was asked. Clients that choose their group count from their choice on.
            key: random stream.
        """
        total = torch.zeros(k, updates.delta.shape[1], dtype=torch.float64)
        trained = np.zeros(k, bool)
        found: list[dict[str, float]] = []
        lost = 0
        for j in range(k):
            asked = _asked(plan, updates, j)
            # Nothing is lost of a group for which no client was asked.
            if not len(asked):
                continue
            mine = updates.row == j
            of_group = key.of(f"group/{j}")
            # No part of a sum can be read: it is there as a whole, or not at all.
            if not self._recovered(asked, updates.ids[mine], of_group):
                lost += 1
                continue
            mean, exact = self._mean(updates.delta[mine], weight[mine], updates.ids[mine], of_group)
            total[j] = torch.from_numpy(mean)
            trained[j] = True
            error = float(np.abs(mean - exact).max(initial=0.0))
            found.append(self._costs(len(asked), updates.delta.shape[1]) | {"error": error})
        names = ("largest", "bytes", "agreements", "error")
        most = {name: max((one[name] for one in found), default=0) for name in names}
        return Summed(total, trained, {"groups": len(found), "lost": lost, **most})

    def _costs(self, clients: int, d: int) -> dict[str, float]:
        """What one client of a group exchanges."""
        shares = self.shares(clients)
        return {
            "largest": clients,
            # The weight travels beside the update, masked like it.
            "bytes": client_bytes(shares, d + 1, self.bits),
            # One for the masks and one for the shares, with each of the others.
            "agreements": 2 * (shares - 1),
        }

    def _recovered(self, asked: IntArray, replied: IntArray, key: Key) -> bool:
        """Whether a group is large enough, and enough of it replied."""
        # Those who were asked and not those who replied: clients know it before they mask anything.
        if len(asked) < self.least_group:
            return False
        near = neighbourhoods(len(asked), self.shares(len(asked)), key.of("neighbours"))
        return recoverable(near, np.isin(asked, replied), self.needed(len(asked)))

    def _mean(
        self, delta: Tensor, weight: FloatArray, ids: IntArray, key: Key
    ) -> tuple[FloatArray, FloatArray]:
        """The mean of the whole numbers, and that of the updates themselves, float64 ``[d]``."""
        modulus = 2**self.bits
        whole = np.zeros(delta.shape[1], np.int64)
        exact = np.zeros(delta.shape[1])
        weights = 0
        for row, share, client in zip(delta.numpy(), weight.tolist(), ids.tolist(), strict=True):
            steps = round(share * self.levels)
            weights = (weights + steps) % modulus
            # By the rounded weight, so that the division takes out what was put in.
            scaled = row.astype(np.float64) * (steps / self.levels)
            # In steps of the same size for all clients, or the server could not add them.
            whole += quantise(scaled, self.reach, self.levels, key.client(client))
            whole %= modulus
            exact += share * row.astype(np.float64)
        # A group all of whose weights are rounded to zero moves nowhere.
        divisor = max(weights, 1) / self.levels
        step = 2 * self.reach / self.levels
        mean: FloatArray = (whole.astype(np.float64) * step - len(delta) * self.reach) / divisor
        return mean, exact / max(weight.sum(), np.finfo(float).tiny)


def secure_sum(sums: SecureSums, weigh: WeighsAlone) -> Aggregate:
    """Sums as secure aggregation computes them in place of means.

    Args:
        sums: how they are computed.
        weigh: what replies count, the method's rule.
    """

    def combine(
        groups: Groups, updates: Updates, weights: Matrix, plan: Plan, round: Round
    ) -> Aggregated:
        weight = sums.weight(updates.size, weigh)
        key = round.key.of("secure")
        total, trained, notes = sums(groups.k, updates, weight, plan, key)
        return Aggregated(groups, total, trained, {"secure": notes})

    return Aggregate(combine, sums=True)


def _asked(plan: Plan, updates: Updates, group: int) -> IntArray:
    """The clients that began to sum in a group, int64 ``[n]``."""
    # Where clients choose their group, that of a client that did not reply is not known.
    if plan.row.ndim == 2:
        return updates.ids[updates.row == group]
    return plan.ids[plan.row == group]
