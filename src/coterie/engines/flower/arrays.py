"""The arrays of anybody's Flower app as one flat vector, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.vectors import Layout
from coterie.engines.flower.messages import HEADER, read_array
from coterie.errors import ConfigError

# What PyTorch calls the statistics of a normalisation: they are averaged, and take no step.
_STATISTICS = ("running_mean", "running_var")
_NUMPY = "numpy.ndarray"


@dataclass(frozen=True, eq=False, slots=True)
class RecordLayout:
    """Which arrays of a record are the flat vector of a model, and where each lies in it.

    Floating-point arrays are in the vector, as float32. All others, such as counters and labels, are
    not averaged: every model has them as they were in the first record.

    Args:
        first: the record that the run begins with.
        layout: names and shapes of the arrays in the vector.
    """

    first: ArrayRecord
    layout: Layout

    @classmethod
    def of(cls, first: ArrayRecord, final_layer: str | None = None) -> RecordLayout:
        """The layout of a record.

        Args:
            final_layer: the name of the classifier, if that is not the last weight matrix: what
                stands before ``.weight``, or the name of an array.

        Raises:
            ConfigError: for arrays of other types, a record without fractions, and an unknown layer.
        """
        shapes = {name: tuple(array.shape) for name, array in first.items() if _moves(name, array)}
        if not shapes:
            what = "no array contains floating-point numbers, so there is nothing to train"
            raise ConfigError("missing", "initial_arrays", what)
        statistics = [name for name in shapes if name.rpartition(".")[2] in _STATISTICS]
        trained = [name for name in shapes if name not in statistics]
        if final_layer is not None:
            trained = _with_last(trained, final_layer)
        names = (*trained, *statistics)
        in_order = tuple(shapes[name] for name in names)
        return cls(first, Layout(names, in_order, len(trained)))

    @property
    def most_bytes(self) -> int:
        """The most that one array of an honest reply takes, and all of them together."""
        values = sum(math.prod(array.shape) for array in self.first.values())
        return 8 * values + HEADER * len(self.first)

    def record(self, vector: Tensor) -> ArrayRecord:
        """The arrays of a model, in the order and of the types of the first record."""
        moved = self.layout.views(vector)
        arrays = {}
        for name, array in self.first.items():
            if name in moved:
                values = moved[name].numpy().astype(array.dtype)
                array = Array(np.ascontiguousarray(values).reshape(array.shape))
            arrays[name] = array
        return ArrayRecord(arrays)

    def values(self, record: ArrayRecord) -> NDArray[np.float64]:
        """The vector ``[d]`` of a client's record, which may be anything.

        Raises:
            ValueError: for arrays with other names, shapes or types.
        """
        if set(record) != set(self.first):
            raise ValueError("other arrays")
        most = self.most_bytes
        parts = []
        for name, shape in zip(self.layout.names, self.layout.shapes, strict=True):
            values = read_array(record[name].data, most)
            if values.shape != shape or values.dtype.kind != "f":
                raise ValueError("another shape or type")
            parts.append(values.astype(np.float64).ravel())
        return np.concatenate(parts)

    def vector(self, record: ArrayRecord) -> Tensor:
        """The model of a record of the server's own, float32 ``[d]``."""
        try:
            values = self.values(record)
        except ValueError:
            what = "the arrays differ from the initial arrays of the run"
            allowed = "the same names and shapes"
            raise ConfigError("does-not-fit", "first_models", what, allowed=allowed) from None
        if not np.isfinite(values).all():
            raise ConfigError("not-finite", "initial_arrays", allowed="finite numbers")
        return torch.from_numpy(values.astype(np.float32))


def _moves(name: str, array: Array) -> bool:
    """Whether an array is part of the vector; refuses types that are neither numbers nor truth
    values."""
    try:
        kind = np.dtype(array.dtype).kind
    except TypeError:
        kind = ""
    if array.stype != _NUMPY or kind not in "fiub" or not kind:
        found = f"{array.dtype} of {name!r}"
        allowed = "floating-point, whole-number or boolean NumPy arrays"
        raise ConfigError("wrong-type", "initial_arrays", found=found, allowed=allowed)
    return kind == "f"


def _with_last(names: Sequence[str], layer: str) -> list[str]:
    """The names with those of a layer at the end, where `Layout.final_layer` finds them."""
    last = [name for name in names if name == layer or name.rpartition(".")[0] == layer]
    if not last:
        layers = dict.fromkeys(name.rpartition(".")[0] or name for name in names)
        allowed = f"one of {', '.join(map(repr, layers))}"
        raise ConfigError("unknown-choice", "final_layer", got=layer, allowed=allowed)
    return [*(name for name in names if name not in last), *last]
