"""Logistic and linear regression, and perceptrons."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated

from pydantic import Field
from torch import nn

from coterie.models.spec import ModelSpec, Shape, outputs_for

# Kernels that carry L2 follow FlexCFL's code: all of these models, and no bias.

Width = Annotated[int, Field(ge=1)]
Widths = Width | Annotated[list[Width], Field(min_length=1)]

# More outputs than classes: FedGroup's FEMNIST models have 26 for 10 letters.
Outputs = Annotated[int, Field(ge=2)] | None


def mclr(outputs: Outputs = None) -> ModelSpec:
    """Logistic or linear regression, one dense layer: inputs -> classes.

    Under ``classification`` it is multinomial logistic regression, under ``binary`` logistic
    regression with one output, under ``regression`` linear regression.

    Args:
        outputs: number of outputs, if larger than the number of classes (FedGroup's FEMNIST models
            have 26); ``None``: one for each class.

    Example:
        >>> mclr().parameters, mclr().count((60,), 10), mclr(outputs=26).parameters
        (7850, 610, 20410)
    """

    def build(shape: Shape, classes: int) -> nn.Module:
        last = nn.Linear(math.prod(shape), outputs_for(outputs, classes))
        return nn.Sequential(nn.Flatten(), last)

    return ModelSpec(build, ("1.weight",), "multinomial logistic regression")


def mlp(hidden: Widths = 128, outputs: Outputs = None) -> ModelSpec:
    """Perceptron with hidden layers of any widths: inputs -> 128 relu -> classes (MNIST).

    Args:
        hidden: width of the hidden layer, or a list with the width of each.
        outputs: number of outputs, if larger than the number of classes; ``None``: one for each
            class.

    Example:
        >>> mlp().parameters, mlp([200, 100]).parameters
        (101770, 178110)
    """
    widths = [hidden] if isinstance(hidden, int) else list(hidden)

    def build(shape: Shape, classes: int) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise([math.prod(shape), *widths]):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], outputs_for(outputs, classes)))

    # A flatten first, then a linear layer and a relu for each width, then the last linear layer.
    kernels = tuple(f"{2 * at + 1}.weight" for at in range(len(widths) + 1))
    shown = " and ".join(map(str, widths))
    return ModelSpec(build, kernels, f"perceptron, {shown} hidden units")


def mlp512(outputs: Outputs = None) -> ModelSpec:
    """Perceptron with one hidden layer: inputs -> 512 relu -> classes (FEMNIST).

    Args:
        outputs: number of outputs, if larger than the number of classes (FedGroup's has 26);
            ``None``: one for each class.

    Example:
        >>> mlp512().parameters, mlp512(outputs=26).parameters
        (407050, 415258)
    """
    return mlp(512, outputs)
