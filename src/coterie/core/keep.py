"""What stays with a client: coordinates of the flat vector that never leave it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from coterie.core.arrays import IntArray
from coterie.core.vectors import Layout
from coterie.errors import ConfigError

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Keep:
    """The slices of the flat vector that stay with the client.

    Args:
        spans: ``(start, stop)`` of each slice, ascending and apart from each other.

    Raises:
        ValueError: for spans that are empty, overlap, or are out of order.

    Example:
        >>> keep = Keep(spans=((1, 3),))
        >>> keep.size, keep.kept().tolist(), keep.shared(4).tolist()
        (2, [1, 2], [0, 3])
    """

    spans: tuple[Span, ...]

    def __post_init__(self) -> None:
        end = 0
        for start, stop in self.spans:
            if not end <= start < stop:
                raise ValueError(
                    f"spans: not ascending and apart, got {self.spans}; "
                    "expected start < stop <= next start"
                )
            end = stop
        if not self.spans:
            raise ValueError("spans: nothing to keep, got (); expected at least one (start, stop)")

    @property
    def size(self) -> int:
        """How many coordinates stay."""
        return sum(stop - start for start, stop in self.spans)

    def kept(self) -> IntArray:
        """The coordinates that stay, int64 ``[kept]``, ascending."""
        return np.concatenate([np.arange(start, stop) for start, stop in self.spans])

    def shared(self, d: int) -> IntArray:
        """The coordinates that move, int64 ``[d - kept]``, ascending.

        Raises:
            ValueError: if a span reaches beyond ``d``.
        """
        if self.spans[-1][1] > d:
            raise ValueError(f"spans: beyond the model, got {self.spans}; expected at most {d}")
        moves = np.ones(d, bool)
        moves[self.kept()] = False
        return np.flatnonzero(moves)


@dataclass(frozen=True, slots=True)
class KeepLayers:
    """What stays with the client, as a method says it before it knows the network.

    Args:
        names: of layers or tensors; ``None``: the whole model.
    """

    names: tuple[str, ...] | None = None

    def of(self, layout: Layout) -> Keep:
        """The coordinates in a network.

        Args:
            layout: of the network.

        Raises:
            ConfigError: for a name that the network does not have.

        Example:
            >>> from torch import nn
            >>> KeepLayers().of(Layout.of(nn.Linear(3, 2)))
            Keep(spans=((0, 8),))
        """
        if self.names is None:
            return Keep(((0, layout.d),))
        return keep_layers(layout, self.names)


def keep_layers(layout: Layout, names: Iterable[str]) -> Keep:
    """The coordinates of some layers or tensors, as what stays with the client.

    Args:
        layout: of the model.
        names: of tensors (``fc2.weight``) or of layers (``fc2``: all of its tensors).

    Raises:
        ConfigError: for a name that the model does not have, or if nothing is named.

    Example:
        >>> from torch import nn
        >>> layout = Layout.of(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2)))
        >>> keep_layers(layout, ["2"])
        Keep(spans=((8, 14),))
    """
    chosen: set[str] = set()
    for name in names:
        # With the dot, so that "fc2" does not take "fc20" along.
        found = [known for known in layout.names if f"{known}.".startswith(f"{name}.")]
        if not found:
            raise ConfigError(
                f"algorithm.keep: the model has no such layer, got {name!r}; "
                f"expected some of {', '.join(layout.names)}"
            )
        chosen.update(found)
    if not chosen:
        raise ConfigError("algorithm.keep: no layer named, got none; expected at least one")
    spans: list[Span] = []
    for name in layout.names:  # in their order in the vector, so that neighbours can be joined
        if name not in chosen:
            continue
        span = layout.span(name)
        if spans and spans[-1][1] == span.start:
            spans[-1] = (spans[-1][0], span.stop)
        else:
            spans.append((span.start, span.stop))
    return Keep(tuple(spans))
