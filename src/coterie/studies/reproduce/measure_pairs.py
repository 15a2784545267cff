"""FedGroup's Fig. 5: how its two distances between clients, MADC and EDC, go together."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from coterie.core.arrays import FloatArray
from coterie.core.keys import Key
from coterie.core.training import Steps
from coterie.core.vectors import flatten
from coterie.core.work import Train
from coterie.math.similarity import edc_embedding, madc
from coterie.objectives import plain
from coterie.runs.compose import Composed

PRETRAINING_STEPS = 50  # of the cold start, as in the authors' code
MOST_DRAWN = 2000  # a thousand clients have half a million pairs


@dataclass(frozen=True, slots=True)
class MeasurePairs:
    """EDC and MADC of all pairs of clients, ``[p]`` each; the key draws the pairs that are shown."""

    edc: FloatArray = field(repr=False)
    madc: FloatArray = field(repr=False)
    key: Key

    @property
    def correlation(self) -> float:
        """Pearson's correlation: 1 where MADC is a linear function of EDC."""
        return float(np.corrcoef(self.edc, self.madc)[0, 1])

    def sample(self) -> tuple[tuple[float, float], ...]:
        """EDC and MADC of some pairs, all of them where there are few."""
        order = self.key.generator().permutation(len(self.edc))[:MOST_DRAWN]
        return tuple((float(self.edc[p]), float(self.madc[p])) for p in np.sort(order))


def measure_pairs(composed: Composed) -> MeasurePairs:
    """Train every client briefly from ``w_0``, and compare the updates of each pair by both measures.

    The directions of EDC are those of ``alpha m`` clients, as in a cold start.

    Source: Duan et al., FedGroup (2021), eq. 7, eq. 8 and Fig. 5.
    """
    options = composed.experiment.options("algorithm")
    groups = options["groups"]
    key = Key(composed.experiment.seed).of("fig5")
    w0 = flatten(composed.module)
    ids = np.flatnonzero(composed.population.sizes("train") > 0)
    work = Train(plain, Steps(PRETRAINING_STEPS))
    with composed.clients() as clients:
        reply = clients.run(work, ids, w0[None], np.zeros(len(ids), np.int64), key=key.at(0))
    delta = torch.from_numpy(reply.fields["delta"])
    in_cold_start = (
        key.of("sample").generator().permutation(len(delta))[: options["alpha"] * groups]
    )
    embedding = edc_embedding(delta, groups, basis=delta[torch.from_numpy(in_cold_start)])
    first, second = np.triu_indices(len(delta), k=1)
    # Pair by pair: the differences of all pairs at once are as large as m distance matrices.
    apart = np.linalg.norm(embedding[first] - embedding[second], axis=1)
    return MeasurePairs(apart / groups, madc(delta)[first, second], key.of("drawn"))
