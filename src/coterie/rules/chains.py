"""What FedGSP, NaiveGSP and Astraea share: label histograms of the clients, and plans of chains.

There is one model. A client belongs to it (``member`` 0) once the server knows its histogram. One
of which it knows nothing (``member`` -1) is a newcomer, and is asked when it is first present.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch

from coterie.clients.round import Round
from coterie.core import Describe, FloatArray, Groups, GrowingRecord, IntArray, Plan
from coterie.math.similarity import Matrix

Privacy = Literal["none", "discrete_laplace", "randomised_response"]
# The most that one histogram may sum up to, in medians of all that were reported.
_MOST_MEDIANS = 100.0


@dataclass(frozen=True, slots=True)
class HistogramMemory(GrowingRecord):
    """The label histograms that clients reported."""

    record_name: ClassVar[str] = "histograms"
    newcomer: ClassVar[Mapping[str, float]] = {"histogram": 0}
    histogram: FloatArray


@dataclass(frozen=True)
class Histograms:
    """What the server keeps of its clients: their label histograms, requested once when a client is
    new.

    Counts are clipped to ``0..cap`` of the reply's validation. A histogram that sums up to more
    than 100 times the median is scaled down, since it would leave no room for differences among the
    other clients. A client that does not answer stays new.
    """

    privacy: Privacy = "none"
    epsilon: float = 1.0

    def ask(self, groups: Groups, round: Round) -> tuple[Groups, int]:
        """Have every newcomer of the cohort described; the groups that know them, and how many
        answered."""
        clients = round.clients
        new = round.cohort[groups.member[round.cohort] < 0]
        memory = groups.memory.get(HistogramMemory)
        kept = np.zeros((len(groups.member), clients.classes))
        if memory is not None:
            kept = memory.histogram
        if not len(new):
            return groups.remember(HistogramMemory(kept)), 0
        work = Describe("histogram", clients.classes, privacy=self.privacy, epsilon=self.epsilon)
        reply = clients.run(work, new, key=round.key.of("describe"))
        reported = reply.fields["histogram"].astype(np.float64)
        kept = kept.copy()
        kept[reply.ids] = np.clip(reported, 0, clients.validator.cap)
        groups = groups.with_members(reply.ids, 0)
        # Of all that are known and not of the new ones: the median may have moved.
        if len(reply):
            kept = _without_giants(kept, groups.member >= 0)
        return groups.remember(HistogramMemory(kept)), len(reply)

    @staticmethod
    def of(groups: Groups, ids: IntArray) -> Matrix:
        """The histograms ``[n, c]`` of clients that were described."""
        memory = groups.memory.get(HistogramMemory)
        assert memory is not None, "clients are described before their histograms are used"
        return memory.histogram[ids]


def _without_giants(histogram: FloatArray, known: np.ndarray) -> FloatArray:
    """Histograms scaled down to at most 100 times the median sum of those known."""
    # Torch's sums, as results were always computed with: NumPy adds in another order.
    kept = torch.from_numpy(histogram)
    total = kept.sum(dim=1)
    median = float(np.median(total[torch.from_numpy(known)]))
    # At least 1, since noise for privacy may leave nothing of most histograms.
    most = _MOST_MEDIANS * max(1.0, median)
    return (kept * (most / total).clamp_max(1.0)[:, None]).numpy()


def plan_of_chains(
    ids: IntArray, chain: IntArray, sampled: IntArray, newcomers: int, groups: int
) -> Plan:
    """The plan of the sampled chains. ``ids`` are all clients in the order in which they would
    train, ``chain`` is -1 for a client that idles."""
    trains = np.isin(chain, sampled)
    notes = {
        "newcomers": newcomers,
        "groups": groups,
        "sampled": len(sampled),
        "idle": int((chain < 0).sum()),
    }
    one_model = np.zeros(int(trains.sum()), np.int64)
    return Plan(ids[trains], one_model, chain[trains], notes=notes)


def empty_plan(cohort: IntArray) -> Plan:
    """A plan of chains in which no client trains."""
    no_clients = cohort[:0]
    return Plan(no_clients, no_clients, no_clients)
