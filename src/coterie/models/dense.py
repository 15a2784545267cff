"""Multinomial logistic regression and perceptrons with one hidden layer."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field
from torch import nn

from coterie.models.spec import ModelSpec, Shape, outputs_for

# Kernels that carry L2 follow FlexCFL's code: all of these models, and no bias.

Width = Annotated[int, Field(ge=1)]

# More outputs than classes: FedGroup's FEMNIST models have 26 for 10 letters.
Outputs = Annotated[int, Field(ge=2)] | None


def mclr(outputs: Outputs = None) -> ModelSpec:
    """Multinomial logistic regression: inputs -> classes.

    Args:
        outputs: more outputs than the data have classes (FedGroup's FEMNIST models have 26);
            ``None``: as many.

    Example:
        >>> mclr().parameters, mclr().count((60,), 10), mclr(outputs=26).parameters
        (7850, 610, 20410)
    """

    def build(shape: Shape, classes: int) -> nn.Module:
        last = nn.Linear(math.prod(shape), outputs_for(outputs, classes))
        return nn.Sequential(nn.Flatten(), last)

    return ModelSpec(build, ("1.weight",), "multinomial logistic regression")


def mlp(hidden: Width = 128, outputs: Outputs = None) -> ModelSpec:
    """Perceptron with one hidden layer: inputs -> 128 relu -> classes (MNIST).

    Args:
        hidden: width of the hidden layer.
        outputs: more outputs than the data have classes; ``None``: as many.

    Example:
        >>> mlp().parameters
        101770
    """

    def build(shape: Shape, classes: int) -> nn.Module:
        first = nn.Linear(math.prod(shape), hidden)
        last = nn.Linear(hidden, outputs_for(outputs, classes))
        return nn.Sequential(nn.Flatten(), first, nn.ReLU(), last)

    return ModelSpec(build, ("1.weight", "3.weight"), f"perceptron, {hidden} hidden units")


def mlp512(outputs: Outputs = None) -> ModelSpec:
    """Perceptron with one hidden layer: inputs -> 512 relu -> classes (FEMNIST).

    Args:
        outputs: more outputs than the data have classes (FedGroup's has 26); ``None``: as many.

    Example:
        >>> mlp512().parameters, mlp512(outputs=26).parameters
        (407050, 415258)
    """
    return mlp(512, outputs)
