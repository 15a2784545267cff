"""What a source hands over: pooled samples, before clients hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.data.arguments import checked_inputs, checked_targets, whole_number
from coterie.data.partition import Partition
from coterie.data.tabular.raw import RawTable
from coterie.errors import DataError

# How a source reads labels: as classes, as the numbers that they are, or as they look.
Targets = Literal["classes", "numbers", "auto"]


@dataclass(frozen=True)
class Samples:
    """Inputs, labels and further columns of samples. The source's training rows come first.

    Args:
        x: float32 ``[S, ...]`` inputs, or generated lazily (``coterie.data.lazy``); for a table
            int64 ``[S]``, the first row of each input.
        y: int64 ``[S]`` labels in ``0..classes-1``, or the targets of another task, see
            ``coterie.data.population.Population``.
        classes: number of classes ``c``; 0 if targets are not classes.
        train_rows: rows ``[0:train_rows]`` are the source's own train split, the rest its test
            split; ``S`` if it has no split.
        columns: further columns by name, each ``[S]`` (a writer, a site, a client).
        label_names: ``c`` names, or none.
        offsets: int64 ``[N + 1]``, the first row of each client, for a source that is ordered by
            client.
        table: the rows of a table; inputs are computed once the clients are known.
        naive: predictions that need no model, by name, each float32 ``[S]``.
        holders: which client holds which samples, if the source specifies it.
        on_disk: whether ``x`` is read from a file when it is needed.
        scaling: what the source did to its inputs, for the model card: the end of the sentence "How
            inputs were scaled: ..."; empty if unknown, and for a table, whose encoder states it.
        booleans: columns of yes and no that are inputs as they are, 1 and 0.

    Example:
        >>> import torch
        >>> s = Samples(torch.zeros(3, 2), torch.tensor([0, 1, 1]), classes=2, train_rows=3)
        >>> len(s), s.label_names
        (3, ())
    """

    x: Tensor
    y: Tensor
    classes: int
    train_rows: int
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    label_names: tuple[str, ...] = ()
    offsets: IntArray | None = None
    table: RawTable | None = None
    naive: Mapping[str, Tensor] = field(default_factory=dict)
    holders: Partition | None = None
    on_disk: bool = False
    scaling: str = ""
    booleans: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # A source may be a plugin or read a user's file. Samples with the wrong labels would train.
        object.__setattr__(self, "y", checked_targets(self.y, "data.source: y"))
        if self.table is None:
            inputs = checked_inputs(self.x, "data.source: x", self.on_disk)
            object.__setattr__(self, "x", inputs)
        whole_number(self.classes, "data.source: classes", 0)
        whole_number(self.train_rows, "data.source: train_rows", 0)
        self._check_length("x", len(self.x))
        for name, values in self.columns.items():
            self._check_length(name, len(values))
        if not 0 <= self.train_rows <= len(self.y):
            expected = f"0 to {len(self.y)}"
            raise DataError("out-of-range", "train_rows", found=self.train_rows, allowed=expected)

    def _check_length(self, name: str, length: int) -> None:
        if length != len(self.y):
            what = f"{length} values of {name}, {len(self.y)} labels"
            raise DataError("wrong-shape", "data.source", what, allowed="the same number of each")

    @property
    def labels(self) -> IntArray:
        """int64 ``[S]``, the labels as an array."""
        return self.y.numpy()

    def __len__(self) -> int:
        return len(self.y)
