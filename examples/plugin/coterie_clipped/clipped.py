"""FedAvg whose server takes no step that is too long."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field
from torch import Tensor

import coterie as ct
from coterie.rules.server import sgd


@dataclass(frozen=True)
class ClippedStep:
    """Server rule: ``w_j <- w_j + min(1, c / |D_j|) D_j`` with the weighted mean update ``D_j``.

    Args:
        largest_step: ``c``, the largest norm of a step.
    """

    largest_step: float

    def __call__(self, groups: ct.Groups, update: Tensor, trained: Tensor) -> ct.Groups:
        length = update.norm(dim=1, keepdim=True)
        # A model that nobody trained has an update of length zero, and does not move.
        factor = (self.largest_step / length.clamp(min=1e-12)).clamp(max=1.0)
        return sgd()(groups, factor * update, trained)


def clipped(largest_step: Annotated[float, Field(gt=0)] = 1.0) -> ct.Method:
    """FedAvg, in which no step of the server is longer than ``largest_step``.

    Args:
        largest_step: the largest norm of a step.
    """
    return replace(ct.fedavg(), server=ClippedStep(largest_step))
