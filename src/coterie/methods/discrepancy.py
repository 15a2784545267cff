"""How far the replies of a round lie from the models they were aggregated into."""

from __future__ import annotations

import torch
from torch import Tensor

from coterie.core.arrays import FloatArray
from coterie.core.plan import with_mixtures
from coterie.core.process import one_torch_thread
from coterie.core.updates import Updates


@one_torch_thread()
def discrepancy(
    before: Tensor, after: Tensor, updates: Updates, mixtures: FloatArray | None = None
) -> float:
    """Mean of ``|w_i - w|`` over a round's participants, ``w`` the group's model after aggregation
    (FedGroup eq. 4), or the client's mixture of the models.

    Args:
        before: ``[k, d]``, the models before aggregation.
        after: ``[k, d]``, the models after aggregation and inter-group step.
        updates: what the clients sent.
        mixtures: float64 ``[m, k]``, those of the plan.
    """
    # From the update and the step of the model, both small, and not from two large vectors.
    moved = with_mixtures(after[: len(before)] - before, mixtures)
    replies = zip(updates.relative_to(before), updates.row, strict=True)
    # One client after another: all differences at once would be another copy of the updates.
    gaps = [torch.linalg.vector_norm(delta - moved[row]) for delta, row in replies]
    return float(torch.stack(gaps).double().mean())
