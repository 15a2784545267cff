"""What all clients agree on about the model that they train."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.core.task import CORRECT, SumShapes
from coterie.core.vectors import Layout


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What all clients agree on about the model; rules may ask for it.

    Args:
        classes: number of classes ``c``.
        features: values of one input.
        layout: names and places of the model's tensors in its flat vector.
        sums: what a method's evaluation of models counts beside their losses.
    """

    classes: int = 0
    features: int = 0
    layout: Layout | None = None
    sums: SumShapes = CORRECT
