"""What stays with a client: coordinates of the flat vector that never leave it, and in a simulation
their values.

Real clients have their own disks; a simulation keeps all of it here, in one process, for
`coterie.engines.keeping` (the parameters of a personalised method that never leave a client),
`coterie.engines.own_models` (models of the clients' own) and `coterie.engines.keeping` (the
network that a client trained last). `coterie.runs.progress` saves it in checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from coterie.core.arrays import IntArray
from coterie.core.vectors import Layout
from coterie.errors import ConfigError

Span = tuple[int, int]
Vectors = NDArray[np.float32]

# By the type of the module, since a name says nothing: in a Sequential a layer is called "1".
_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)

# Bytes of models that are made at once. Every client has a model of its own where something of it
# stays with the client, so that those of a large cohort would not fit memory side by side.
_BLOCK = 2**28


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
        """The coordinates that move, int64 ``[d - kept]``, ascending."""
        if self.spans[-1][1] > d:
            raise ValueError(f"spans: beyond the model, got {self.spans}; expected at most {d}")
        moves = np.ones(d, bool)
        moves[self.kept()] = False
        return np.flatnonzero(moves)

    def whole(self, shared: NDArray[np.float32], d: int) -> NDArray[np.float32]:
        """Updates of the coordinates that move, with zeros for those that stay, float32 ``[n, d]``.

        Args:
            shared: float32 ``[n, d - kept]``.
            d: length of the model.

        Example:
            >>> Keep(((1, 3),)).whole(np.ones((1, 2), np.float32), 4).tolist()
            [[1.0, 0.0, 0.0, 1.0]]
        """
        updates = np.zeros((len(shared), d), np.float32)
        updates[:, self.shared(d)] = shared
        return updates

    def overlaps(self, start: int, stop: int) -> bool:
        """Whether a coordinate of a slice stays with the client."""
        return any(first < stop and start < last for first, last in self.spans)


@dataclass(frozen=True, slots=True)
class KeepLayers:
    """The layers that stay with the client, as a method names them before it knows the network.

    Args:
        names: names of layers or tensors, as in `layers_to_keep`; ``None``: the whole model.
        option: the option that contains the names, for error messages.
    """

    names: tuple[str, ...] | None = None
    option: str = "algorithm.layers"

    def of(self, module: nn.Module) -> Keep:
        """The coordinates of these layers in a network.

        Raises:
            ConfigError: for a name that the network does not have.

        Example:
            >>> KeepLayers().of(nn.Linear(3, 2))
            Keep(spans=((0, 8),))
        """
        if self.names is None:
            return Keep(((0, Layout.of(module).d),))
        return layers_to_keep(module, self.names, self.option)


def layers_to_keep(
    module: nn.Module, names: Sequence[str], option: str = "algorithm.layers"
) -> Keep:
    """The coordinates of some layers or tensors, as what stays with the client.

    Args:
        module: the network.
        names: each the name of a tensor (``fc2.weight``), the name of a layer (``fc2``: all of its
            tensors), a glob of such names (``conv*``), or one of three words. ``head``: the last
            weights with two dimensions or more, and the parameters behind them. ``body``: all but
            the head. ``norm``: all normalisation layers, with their running statistics. A layer
            that has one of these words as its name goes before the word.
        option: the option that contains the names, for error messages.

    Raises:
        ConfigError: for a name that the network does not have, if nothing is named, and for names
            that take all of a network.

    Example:
        >>> net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
        >>> layers_to_keep(net, ["head"]), layers_to_keep(net, ["1.weight", "2"])
        (Keep(spans=((12, 18),)), Keep(spans=((8, 10), (12, 18))))
        >>> layers_to_keep(net, ["norm"])  # the scale, the shift, the running mean and variance
        Keep(spans=((8, 12), (18, 22)))
    """
    layout = Layout.of(module)
    chosen: set[str] = set()
    for name in names:
        found = _tensors(module, layout, name)
        if not found:
            raise ConfigError("not-found", option, _no_layer(layout, name))
        chosen.update(found)
    if not chosen:
        raise ConfigError("missing", option, "no layer given", allowed="at least one")
    if len(chosen) == len(layout.names):
        what = "the whole model would stay with the client"
        expected = "fewer layers, or algorithm.name 'local'"
        raise ConfigError("out-of-range", option, what, found=", ".join(names), allowed=expected)
    return Keep(_joined(layout, chosen))


def _tensors(module: nn.Module, layout: Layout, name: str) -> list[str]:
    """The tensors that a name stands for; none for an unknown one."""
    named = [tensor for tensor in layout.names if _stands_for(name, tensor)]
    if named:
        return named
    final = layout.final_layer()
    match name:
        case "head":
            return [one for one in layout.names if _within(layout.span(one), final)]
        case "body":
            return [one for one in layout.names if not _within(layout.span(one), final)]
        case "norm":
            layers = [name for name, layer in module.named_modules() if isinstance(layer, _NORMS)]
            return [one for one in layout.names if one.rpartition(".")[0] in layers]
    return []


def _stands_for(name: str, tensor: str) -> bool:
    """Whether a name or glob is that of a tensor, or of a layer that it is in."""
    parts = tensor.split(".")
    # Whole parts only, so that "fc2" does not take "fc20" along.
    layers = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
    return any(fnmatchcase(layer, name) for layer in layers)


def _within(span: slice, other: slice) -> bool:
    return other.start <= span.start and span.stop <= other.stop


def _no_layer(layout: Layout, name: str) -> str:
    """What is wrong with a name that stands for no tensor."""
    if name == "norm":
        return (
            "the model has no normalisation layer, got 'norm'; "
            "expected a model with one, or other layers"
        )
    layers = dict.fromkeys(one.rpartition(".")[0] or one for one in layout.names)
    known = ", ".join(["head", "body", "norm", *layers])
    return f"the model has no layer {name!r}; expected one of {known}"


def _joined(layout: Layout, chosen: set[str]) -> tuple[Span, ...]:
    """The slices of some tensors, neighbours as one."""
    spans: list[Span] = []
    for name in layout.names:  # in their order in the vector, so that neighbours can be joined
        if name not in chosen:
            continue
        span = layout.span(name)
        if spans and spans[-1][1] == span.start:
            spans[-1] = (spans[-1][0], span.stop)
        else:
            spans.append((span.start, span.stop))
    return tuple(spans)


def client_blocks(n: int, bytes_each: int) -> Iterator[IntArray]:
    """The places 0 to ``n - 1`` of some clients, cut so that the models of a block fit memory."""
    size = max(1, _BLOCK // max(1, bytes_each))
    for at in range(0, n, size):
        yield np.arange(at, min(at + size, n))


@dataclass(frozen=True, slots=True)
class KeptState:
    """What clients keep, as arrays: what a checkpoint holds of a `ClientStore`.

    Args:
        ids: int64 ``[m]``, the clients that trained with something to keep, ascending.
        vectors: float32 ``[m, kept]``, their coordinates.
        spans: int64 ``[s, 2]``, which slices of the flat vector these are (`Keep`).

    All three are empty for a method that keeps nothing.
    """

    ids: IntArray
    vectors: Vectors
    spans: IntArray

    def keep(self) -> Keep | None:
        """Which coordinates stay with clients; ``None`` if none do."""
        if not len(self.spans):
            return None
        return Keep(tuple((int(start), int(stop)) for start, stop in self.spans))

    def put_into(self, vector: Tensor, client: int) -> Tensor:
        """A model ``[d]`` with what a client keeps in it; unchanged for one that keeps nothing.

        Example:
            >>> kept = KeptState(np.array([4]), np.array([[7.0]], np.float32), np.array([[1, 2]]))
            >>> model = torch.zeros(3)
            >>> kept.put_into(model, 4).tolist(), kept.put_into(model, 5).tolist()
            ([0.0, 7.0, 0.0], [0.0, 0.0, 0.0])
        """
        keep = self.keep()
        row = np.flatnonzero(self.ids == client)
        if keep is None or not len(row):
            return vector
        own = vector.clone()
        own[torch.from_numpy(keep.kept())] = torch.from_numpy(self.vectors[row[0]])
        return own


class ClientStore:
    """Which coordinates stay with clients, and their values for each client that stored some.
    Memory grows with the clients that trained, not with those that exist."""

    def __init__(self) -> None:
        # Set by the first work that keeps something: until then evaluation need not ask.
        self.keep: Keep | None = None
        # A dictionary and not one array for all clients: of a million clients, few are ever met.
        self._vectors: dict[int, Vectors] = {}

    def begin(self, keep: Keep) -> None:
        """From now on these coordinates stay with clients, and no others in this run."""
        if self.keep is not None and self.keep != keep:
            raise ValueError(f"keep: changed in a run, got {keep}; expected {self.keep}")
        self.keep = keep

    def copy(self) -> ClientStore:
        """Another store of the same values: what one stores from now on is not in the other."""
        other = ClientStore()
        other.keep = self.keep
        # The vectors themselves are shared: they are replaced, never changed in place.
        other._vectors = dict(self._vectors)
        return other

    def has_stored(self, ids: IntArray) -> NDArray[np.bool_]:
        """Which of these clients have stored something, bool ``[n]``."""
        return np.array([client in self._vectors for client in ids.tolist()], bool)

    def ids(self) -> IntArray:
        """The clients that have stored something, int64 ``[m]``, ascending."""
        return np.array(sorted(self._vectors), np.int64)

    def get(self, ids: IntArray) -> Vectors:
        """What these clients keep, float32 ``[n, kept]``; each must have stored some."""
        return np.stack([self._vectors[client] for client in ids.tolist()])

    def put(self, ids: IntArray, vectors: Vectors) -> None:
        """Store what these clients keep from now on."""
        for client, vector in zip(ids.tolist(), vectors, strict=True):
            # A copy: a view would keep the updates of the whole cohort in memory.
            self._vectors[client] = vector.astype(np.float32)

    def forget(self, ids: IntArray) -> None:
        """Delete what these clients keep."""
        for client in ids.tolist():
            self._vectors.pop(client, None)

    def state(self) -> KeptState:
        """Everything, as arrays."""
        # In ascending order, so that the same state makes the same checkpoint, byte for byte.
        ids = self.ids()
        if self.keep is None:
            return KeptState(ids, np.empty((0, 0), np.float32), np.empty((0, 2), np.int64))
        vectors = np.empty((len(ids), self.keep.size), np.float32)
        for row, client in enumerate(ids.tolist()):
            vectors[row] = self._vectors[client]
        return KeptState(ids, vectors, np.array(self.keep.spans, np.int64))

    def restore(self, state: KeptState) -> None:
        """Go on from what `state` gave."""
        self.keep = state.keep()
        self._vectors = {}
        self.put(state.ids, state.vectors)
