"""A client's own samples, validated before they are used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.arrays import IntArray, finite_float32
from coterie.data import Population
from coterie.data.sources.files import DataForm
from coterie.errors import Code, DataError, first_line

Split = tuple[Any, Any]


@dataclass(frozen=True)
class ClientData:
    """A client's own samples.

    Args:
        train: inputs float32 (int64 for tokens) ``[n, ...]`` and labels int64 ``[n]``, or the targets of
            another task, float32 or int64 ``[n, ...]``.
        test: the same, for evaluation; may be empty.
        labelled: whether there are labels; if not, they are zeros, which are never read.
    """

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    labelled: bool = True

    @classmethod
    def of(cls, train: Split, test: Split | None, form: DataForm) -> ClientData:
        """Validate what the user's ``load_client`` returned; without labels, they and ``test`` are
        ``None``."""
        labelled = has_labels(train, test)
        if not labelled:
            train = (train[0], form.targets(len(train[0])))
        if test is None:
            test = (np.zeros((0, *form.shape), np.float32), form.targets(0))
        train_split = _validated_split("train", train, form)
        data = cls(train_split, _validated_split("test", test, form), labelled)
        if not len(data.train[1]) + len(data.test[1]):
            raise _refused(
                "missing", "no samples", "neither training nor test samples", "at least one"
            )
        return data

    @property
    def trains(self) -> bool:
        """Whether there are samples to train on."""
        return self.labelled and len(self.train[1]) > 0

    @property
    def tests(self) -> bool:
        """Whether there are samples to be scored on."""
        return self.labelled and len(self.test[1]) > 0

    def population(self, client: int, classes: int) -> Population:
        """A population in which only this client holds samples, so that a node's work is that of a
        simulation."""
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


def has_labels(train: Any, test: Any) -> bool:
    """Whether a client's samples have labels; without them ``train`` is inputs and ``None``."""
    if not isinstance(train, tuple | list) or len(train) != 2 or train[1] is not None:
        return True
    if test is not None:
        got = "test samples with inputs without labels"
        raise _refused("missing", "no labels to train on", got, "((inputs, None), None)")
    return False


def _refused(code: Code, what: str, got: object, expected: str) -> DataError:
    return DataError(code, "load_client", what, found=got, allowed=expected)


def _validated_split(name: str, split: Any, form: DataForm) -> tuple[Tensor, Tensor]:
    try:
        x, y = split
        # By way of NumPy, which takes lists of arrays and data frames, too.
        inputs = torch.as_tensor(np.asarray(x))
        targets = torch.as_tensor(np.asarray(y))
        # With one NaN every update of this client would be refused by the server, which cannot see
        # why. Tokens are whole numbers; everything else is trained on as float32.
        if inputs.dtype != torch.int64:
            inputs = torch.from_numpy(finite_float32(inputs.numpy(), f"load_client: {name}: x"))
        if form.numbers or targets.is_floating_point():
            targets = torch.from_numpy(finite_float32(targets.numpy(), f"load_client: {name}: y"))
    except (TypeError, ValueError) as error:
        what = f"{name}: not inputs and labels"
        raise _refused("wrong-type", what, first_line(error), "a pair of arrays") from None
    # An empty split says nothing of the shape of its targets.
    if not len(targets):
        targets = form.targets(0)
    fits = tuple(inputs.shape[1:]) == form.shape and len(inputs) == len(targets)
    if not fits or tuple(targets.shape[1:]) != form.target_shape:
        expected = " and ".join(
            f"[{', '.join(map(str, ('n', *shape)))}]" for shape in (form.shape, form.target_shape)
        )
        got = f"inputs {list(inputs.shape)} and labels {list(targets.shape)}"
        raise _refused("wrong-shape", f"{name}: shapes do not fit", got, expected)
    _check_labels(name, targets, form)
    return inputs, targets.to(form.targets(0).dtype)


def _check_labels(name: str, targets: Tensor, form: DataForm) -> None:
    # Rows of targets are checked by their task, which knows what they mean.
    if form.numbers or form.target_shape or not targets.numel():
        return
    allowed = f"0 to {len(form.classes) - 1}"
    if targets.is_floating_point() and bool((targets != targets.round()).any()):
        raise _refused("wrong-type", f"{name}: labels are not whole numbers", "fractions", allowed)
    lowest = int(targets.min())
    highest = int(targets.max())
    if not 0 <= lowest <= highest < len(form.classes):
        got = f"{lowest} to {highest}"
        raise _refused("out-of-range", f"{name}: labels out of range", got, allowed)
