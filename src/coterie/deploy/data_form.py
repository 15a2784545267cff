"""What the samples of all clients of a federation have in common."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from coterie.data.tabular.encoder import Encoder
from coterie.data.tabular.raw import Column


@dataclass(frozen=True, slots=True)
class DataForm:
    """What the samples of all clients have in common.

    Args:
        classes: their names, in the order of the labels; none where targets are numbers.
        target_shape: of the targets of one sample; ``()`` for a single label or number.
        columns: of tables of which inputs are made; the shape is known when clients have reported of
            them.

    Example:
        >>> DataForm((8,), ("cat", "dog")).targets(3).dtype, DataForm((8,), (), (2,)).targets(3).shape
        (torch.int64, torch.Size([3, 2]))
    """

    shape: tuple[int, ...]
    classes: tuple[str, ...]
    target_shape: tuple[int, ...] = ()
    columns: tuple[Column, ...] = ()

    @property
    def numbers(self) -> bool:
        """Whether targets are numbers, and not labels or tokens."""
        return not self.classes

    def targets(self, n: int) -> Tensor:
        """Zeros in the form of the targets of ``n`` samples, float32 or int64 ``[n, ...]``."""
        dtype = torch.float32 if self.numbers else torch.int64
        return torch.zeros(n, *self.target_shape, dtype=dtype)

    def encoded(self, encoder: Encoder) -> DataForm:
        """The form of the inputs that are made of the columns."""
        return replace(self, shape=(len(encoder.features),))
