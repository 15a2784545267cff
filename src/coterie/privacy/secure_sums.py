"""What secure aggregation would do to a run: sums of whole numbers, and groups whose sum is lost.

The masks of secure aggregation cancel in the sum modulo a power of two, to the bit. So a simulation
needs none: the sum of what clients would mask is what the server would get.

Sources: Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning (2017);
Bell et al., Secure Single-Server Aggregation with (Poly)Logarithmic Overhead (2020), SecAgg+.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from coterie.clients.round import Round
from coterie.config.arguments import CheckedFields
from coterie.core import BoolArray, FloatArray, Groups, IntArray, Key, Plan, Updates
from coterie.core.traits import Excluded, Feature, of_traits
from coterie.math.similarity import Matrix
from coterie.methods.method import Method
from coterie.rules.weighing import Aggregate, Aggregated, WeighsAlone

# Bytes of a public key and of a share of a secret, 256 bits each (Bonawitz et al., sec. 7).
KEY_BYTES = 32
SHARE_BYTES = 32

_SINGLE = "its server needs individual updates in every round"
_PART = "its clients keep a part of the model"
# What is asked of single clients before the first groups, and of newcomers, stays as it is.
SECURE = Feature(
    "with [secure]",
    {"secure": ()},
    (
        *of_traits(
            "algorithm.name",
            "a method that needs only sums of whole updates, such as fedavg or ifca, or no [secure]",
            {
                # SCAFFOLD's server takes the number of steps of each client from its update.
                "second_vector": "its server needs each client's update and number of steps, for its second "
                "vector",
                "own_step": _SINGLE,
                "chains": _SINGLE,
                "data": _SINGLE,
                "grouping": _SINGLE,
                "weights": _SINGLE,
                "shares": _SINGLE,
                "mixture": "its clients train several models",
                "uploads_a_part": _PART,
                "keeps_layers": _PART,
            },
        ),
        Excluded(
            "bounds.enabled", "compares individual updates", "false, or no [bounds],", (False,)
        ),
        Excluded("asynchronous", "updates change models in later rounds, but sums cover one round"),
        Excluded("privacy", "adds noise to sums of updates that are not rounded"),
    ),
)


@dataclass(frozen=True, slots=True)
class SecureSums(CheckedFields):
    """Sums of each group's updates as SecAgg+ would compute them: the table ``[secure]``.

    Client ``i`` with weight ``w_i`` sends ``w_i`` and ``w_i delta_i`` as whole numbers modulo
    ``2^bits``, with ``w_i`` at most 1. The server divides the sums.

    Args:
        reach: largest absolute value of a coordinate of ``w_i delta_i``; larger values are clipped.
        levels: steps from ``-reach`` to ``reach``.
        bits: number of bits of the modulus.
        most_samples: number of samples that counts in full, so that weights are at most 1.
        neighbours: number of clients with which each client shares its secrets, an even number;
            ``None``: all clients of its group.
        threshold: share of these clients, including the client itself, that must reply.
        least_group: number of clients that a group must have for its sum to be computed.

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

    def shares(self, clients: int) -> int:
        """The number of shares into which each client of a group splits its secrets."""
        # One of them it keeps itself, so that an even number of neighbours makes an odd one.
        if self.neighbours is None:
            return clients
        return min(self.neighbours + 1, clients)

    def needed(self, clients: int) -> int:
        """The number of shares needed to reconstruct a secret, at least 2."""
        return max(2, math.ceil(self.threshold * self.shares(clients)))

    def weight(self, size: FloatArray, weigh: WeighsAlone) -> FloatArray:
        """The weights of replies, float64 ``[n]``, at most 1.

        Args:
            size: float64 ``[n]``, the number of training samples behind each reply.
            weigh: the method's rule.
        """
        most = weigh.weight_of(np.array([self.most_samples]))[0]
        return np.minimum(weigh.weight_of(size) / most, 1.0)

    def combine(
        self, groups: Groups, updates: Updates, weight: FloatArray, plan: Plan, key: Key
    ) -> Aggregated:
        """The weighted mean update of each group; zero if its sum is lost.

        Args:
            groups: before the round.
            updates: the replies.
            weight: float64 ``[n]``, the weight of each reply, at most 1.
            plan: the plan of the round. Clients that choose their group are counted from their
                choice on.
            key: random stream.
        """
        total = torch.zeros(groups.k, updates.delta.shape[1], dtype=torch.float64)
        trained = np.zeros(groups.k, bool)
        found: list[dict[str, float]] = []
        lost = 0
        for j in range(groups.k):
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
        notes = {"groups": len(found), "lost": lost, **most}
        return Aggregated(groups, total, trained, {"secure": notes})

    def _costs(self, clients: int, d: int) -> dict[str, float]:
        """What one client of a group exchanges."""
        shares = self.shares(clients)
        return {
            "largest": clients,
            # The weight travels with the update, masked like it.
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


def _asked(plan: Plan, updates: Updates, group: int) -> IntArray:
    """The clients that began to sum in a group, int64 ``[n]``."""
    # Where clients choose their group, that of a client that did not reply is not known.
    if plan.row.ndim == 2:
        return updates.ids[updates.row == group]
    return plan.ids[plan.row == group]


def secure_sum(sums: SecureSums, weigh: WeighsAlone) -> Aggregate:
    """Sums as secure aggregation computes them in place of means; ``weigh`` is the method's rule."""

    def combine(
        groups: Groups, updates: Updates, weights: Matrix, plan: Plan, round: Round
    ) -> Aggregated:
        weight = sums.weight(updates.size, weigh)
        return sums.combine(groups, updates, weight, plan, round.key.of("secure"))

    return Aggregate(combine, sums=True)


def make_secure(method: Method, sums: SecureSums) -> Method:
    """The method with sums as secure aggregation computes them, see `SECURE`."""
    assert isinstance(method.weigh, WeighsAlone)
    return replace(method, aggregate=secure_sum(sums, method.weigh))


# --- arithmetic -----------------------------------------------------------------------------------


def quantise(values: FloatArray, reach: float, levels: int, key: Key) -> IntArray:
    """Values, cut to ``[-reach, reach]``, as whole numbers from 0 to ``levels``, int64, rounded at
    random so that they are right on average.

    With a step of ``2 reach / levels`` the error of each is less than a step, and its standard
    deviation at most half a step.
    """
    exact = (np.clip(values, -reach, reach) + reach) * (levels / (2 * reach))
    above = np.ceil(exact)
    down = key.generator().random(exact.shape) < above - exact
    return above.astype(np.int64) - down


def neighbourhoods(clients: int, shares: int, key: Key) -> BoolArray:
    """Who holds a share of whose secrets, bool ``[n, n]``; each client holds one of its own.
    ``shares`` of each secret is odd, or all.

    The clients stand in a circle in random order, and each shares with the nearest on both sides
    (the graph of SecAgg+). With as many shares as clients all share with all (Bonawitz et al.).
    """
    if shares >= clients:
        return np.ones((clients, clients), bool)
    place = key.generator().permutation(clients)
    apart = np.abs(place[:, None] - place[None, :])
    return np.minimum(apart, clients - apart) <= shares // 2


def recoverable(near: BoolArray, replied: BoolArray, threshold: int) -> bool:
    """Whether the masks of a sum can be removed: clients that replied hold ``threshold`` shares of
    every client's secrets."""
    return bool(((near & replied).sum(axis=1) >= threshold).all())


def client_bytes(shares: int, values: int, bits: int) -> int:
    """Bytes that one client sends and receives in a round, without models and headers.

    ``2 n a_K + (5 n - 4) a_S + ceil(m b / 8)``: two public keys of each of the ``n`` clients that
    share, two shares for each of the others, sent and received, one share of each at the end, and the
    masked vector of ``m`` numbers of ``b`` bits (Bonawitz et al., sec. 7).

    Args:
        shares: ``n``.
        values: ``m``, those of a model and one for the weight.
        bits: ``b``.

    Example:
        >>> client_bytes(shares=10, values=7851, bits=32)
        33516
    """
    return 2 * shares * KEY_BYTES + (5 * shares - 4) * SHARE_BYTES + math.ceil(values * bits / 8)
