"""A network with one narrow hidden layer."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field
from torch import nn

from coterie.models import ModelSpec


def narrow(width: Annotated[int, Field(ge=1)] = 16) -> ModelSpec:
    """One hidden layer of ``width`` units between inputs and classes.

    Args:
        width: units of the hidden layer.
    """

    def build(shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(
            nn.Flatten(), nn.Linear(math.prod(shape), width), nn.ReLU(), nn.Linear(width, classes)
        )

    # Only the weights carry L2, as in the papers; biases do not.
    return ModelSpec(build, decay=("1.weight", "3.weight"), description="one narrow hidden layer")
