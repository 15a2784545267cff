"""A client's own samples, validated before they are used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.data import Population
from coterie.errors import DataError

Split = tuple[Any, Any]


@dataclass(frozen=True)
class ClientData:
    """A client's own samples.

    Args:
        train: inputs float32 (int64 for tokens) ``[n, ...]`` and labels int64 ``[n]``.
        test: the same, for evaluation; may be empty.
    """

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, train: Split, test: Split | None, shape: Sequence[int], classes: int) -> ClientData:
        """Validate what the user's ``load_client`` returned.

        Args:
            train: inputs and labels, tensors or arrays.
            test: the same, or ``None``.
            shape: of one input.
            classes: number of classes.

        Raises:
            DataError: if it cannot be used, with what was returned and what is expected.

        Example:
            >>> data = ClientData.of((np.zeros((3, 4)), [0, 1, 1]), None, (4,), 2)
            >>> data.train[0].dtype, len(data.test[1])
            (torch.float32, 0)
        """
        if test is None:
            test = (np.zeros((0, *shape), np.float32), np.zeros(0, np.int64))
        data = cls(
            _validated_split("train", train, shape, classes),
            _validated_split("test", test, shape, classes),
        )
        if not len(data.train[1]) + len(data.test[1]):
            got = "none to train and none to test"
            raise DataError(f"load_client: no samples, got {got}; expected some")
        return data

    def population(self, client: int, classes: int) -> Population:
        """A population in which only this client holds samples, so that a node's work is that of
        a simulation.

        Args:
            client: the client's number; clients with lower numbers hold nothing.
            classes: number of classes.
        """
        x, y = self.train
        test_x, test_y = self.test
        nothing: IntArray = np.empty(0, np.int64)
        lower = (nothing,) * client
        train_rows = np.arange(len(y))
        test_rows = np.arange(len(y), len(y) + len(test_y))
        # A population needs a client that trains. Where this one has test samples alone, one more
        # client holds the first sample; it is never asked.
        extra = nothing
        if not len(y):
            extra = np.zeros(1, np.int64)
        return Population(
            torch.cat([x, test_x]),
            torch.cat([y, test_y]),
            (*lower, train_rows, extra),
            (*lower, test_rows, nothing),
            classes,
        )

    def histogram(self, classes: int) -> NDArray[np.int64]:
        """Training samples of each class, int64 ``[classes]``."""
        return np.bincount(self.train[1].numpy(), minlength=classes).astype(np.int64)


def _validated_split(
    name: str, split: Any, shape: Sequence[int], classes: int
) -> tuple[Tensor, Tensor]:
    try:
        x, y = split
        # By way of NumPy, which takes lists of arrays and data frames, too.
        inputs = torch.as_tensor(np.asarray(x))
        labels = torch.as_tensor(np.asarray(y)).to(torch.int64)
        # Tokens are whole numbers; everything else is trained on as float32.
        if inputs.dtype != torch.int64:
            inputs = inputs.to(torch.float32)
    except (TypeError, ValueError) as error:
        what = f"no inputs and labels, got {error}"
        raise DataError(f"load_client: {name}: {what}; expected a pair of arrays") from None
    _check_shapes(name, inputs, labels, shape)
    _check_values(name, inputs, labels, classes)
    return inputs, labels


def _check_shapes(name: str, inputs: Tensor, labels: Tensor, shape: Sequence[int]) -> None:
    fits = tuple(inputs.shape[1:]) == tuple(shape)
    if not fits or labels.ndim != 1 or len(inputs) != len(labels):
        got = f"inputs {list(inputs.shape)} and labels {list(labels.shape)}"
        expected = f"[n, {', '.join(map(str, shape))}] and [n]"
        raise DataError(f"load_client: {name}: shapes do not fit, got {got}; expected {expected}")


def _check_values(name: str, inputs: Tensor, labels: Tensor, classes: int) -> None:
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        got = f"{int(labels.min())} to {int(labels.max())}"
        expected = f"0 to {classes - 1}"
        raise DataError(f"load_client: {name}: labels out of range, got {got}; expected {expected}")
    # With one NaN every update of this client would be refused by the server, which cannot see why.
    if inputs.is_floating_point() and not bool(torch.isfinite(inputs).all()):
        what = "inputs not finite, got NaN or infinity"
        raise DataError(f"load_client: {name}: {what}; expected numbers")
