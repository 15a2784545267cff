"""Signatures of one-shot grouping: what clients are asked for and how, how far apart two answers are,
and what the server keeps of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from coterie.clients.round import Round
from coterie.core import BoolArray, Describe, FloatArray, IntArray, Key, Layout, Train
from coterie.core.groups import GrowingRecord
from coterie.errors import ConfigError
from coterie.math.clustering import Linkage, linkage_distance
from coterie.math.distances import cosine_distance, l1, l2
from coterie.math.similarity import Matrix, project
from coterie.math.subspaces import entry_min, principal_angles

Metric = Literal["l1", "l2", "cosine"]
Angle = Literal["entry_min", "principal"]
_METRICS = {"l1": l1, "l2": l2, "cosine": cosine_distance}
_ANGLES = {"entry_min": entry_min, "principal": principal_angles}


class Signature(Protocol):
    """What clients are asked for, and how far apart two answers are."""

    def work(self, round: Round) -> Train | Describe:
        """The request."""
        ...

    @property
    def projects(self) -> bool:
        """Whether the distances of randomly projected answers are nearly those of the answers."""
        ...

    def distance(self, a: Tensor, b: Tensor | None = None) -> Matrix:
        """``[n, l]`` between answers ``[n, ...]`` and ``[l, ...]``; with ``None`` among ``a``
        themselves."""
        ...


@dataclass(frozen=True)
class TrainedUpdate:
    """The update of a short training from a common model, or one layer of it.

    Distances between updates are those between the weights, since all start from the same model.

    Args:
        epochs: local epochs, ``None``: the run's.
        layer: ``final``, or the name of a layer or of one of its tensors; ``None``: the whole
            update.
        bias: whether the layer's bias is part of it.
        metric: ``l1``, ``l2`` or ``cosine``.
    """

    epochs: int | None = None
    layer: str | None = None
    bias: bool = True
    metric: Metric = "l2"

    @property
    def projects(self) -> bool:
        # Random projections keep lengths and angles (Johnson-Lindenstrauss); sums of absolute
        # differences they do not.
        return self.metric != "l1"

    def work(self, round: Round) -> Train:
        upload = None
        if self.layer is not None:
            upload = span(round.layout, self.layer, self.bias)
            if round.local.stays is not None and round.local.stays.overlaps(*upload):
                what = "clients are grouped by a layer that stays on the clients"
                got = f"algorithm.layer {self.layer!r}"
                expected = "another algorithm.layer, or other layers"
                raise ConfigError(
                    "in-conflict", "personal.layers", what, found=got, allowed=expected
                )
        return round.trial(epochs=self.epochs, upload=upload)

    def distance(self, a: Tensor, b: Tensor | None = None) -> Matrix:
        return _METRICS[self.metric](a, b)


@dataclass(frozen=True)
class Subspace:
    """The first left singular vectors of a client's samples of each class; no model is needed for
    them.

    Args:
        vectors: singular vectors per class ``p``.
        angle: how two clients' vectors are compared, ``entry_min`` or ``principal``.
    """

    vectors: int = 3
    angle: Angle = "entry_min"

    @property
    def projects(self) -> bool:
        # The angles are between spans of several vectors, of which a projection keeps too little.
        return False

    def work(self, round: Round) -> Describe:
        clients = round.clients
        return Describe("subspace", clients.classes, clients.features, self.vectors)

    def distance(self, a: Tensor, b: Tensor | None = None) -> Matrix:
        return _ANGLES[self.angle](a, b)


def span(layout: Layout, layer: str, bias: bool) -> tuple[int, int]:
    """Where a layer lies in the flat vector, ``(start, stop)``.

    Args:
        layer: ``final``, a layer's name (what stands before ``.weight``), or a tensor's name.

    Example:
        >>> from torch import nn
        >>> layout = Layout.of(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)))
        >>> span(layout, "final", True), span(layout, "final", False), span(layout, "0", True)
        ((8, 14), (8, 12), (0, 8))
    """
    names = layout.names[: layout.trainable]
    if layer == "final":
        at = layout.final_layer()
        held = [n for n in names if at.start <= layout.span(n).start]
    else:
        held = [n for n in names if n == layer or n.rpartition(".")[0] == layer]
    if not held:
        layers = dict.fromkeys(n.rpartition(".")[0] or n for n in names)
        what = "unknown layer"
        expected = f"'final' or one of {', '.join(map(repr, layers))}"
        raise ConfigError("unknown-choice", "algorithm.layer", what, got=layer, allowed=expected)
    if not bias and layer not in names:
        # Biases have one dimension. A layer of nothing else, as a normalisation, stays whole.
        held = [n for n in held if len(layout.shapes[layout.names.index(n)]) > 1] or held
    spans = [layout.span(n) for n in held]
    if any(a.stop != b.start for a, b in pairwise(spans)):
        what = "its parameters are not contiguous"
        expected = f"one of {', '.join(held)}"
        raise ConfigError("does-not-fit", "algorithm.layer", what, got=layer, allowed=expected)
    return spans[0].start, spans[-1].stop


# --- what the server keeps ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SignatureMemory(GrowingRecord):
    """What one-shot grouping remembers: for newcomers, and for the report.

    Args:
        origin: float32 ``[d]``, the model that the signatures were made with.
        signature: float32 ``[N, ...]``, the signature of each client, or of those in ``kept`` alone,
            ``[s, ...]``.
        cluster: int64 ``[N]``, the group that each signature stands for, -1 for no signature.
        threshold: the distance up to which clusters were merged.
        tree: float64 ``[n - 1, 4]``, the merges, as SciPy writes them.
        leaves: int64 ``[n]``, the client of each leaf of the tree.
        proximity: float64 ``[n, n]``, distances of the leaves, for up to 500 clients.
        kept: int64 ``[s]``, ascending, the clients whose signatures are kept; ``None``: all.
        least_samples: newcomers with fewer join at any distance.
    """

    record_name: ClassVar[str] = "signatures"
    newcomer: ClassVar[Mapping[str, float]] = {"signature": 0.0, "cluster": -1}
    origin: Tensor
    signature: Tensor
    cluster: IntArray
    threshold: float
    tree: FloatArray
    leaves: IntArray
    proximity: FloatArray | None = None
    kept: IntArray | None = None
    least_samples: float = 0.0

    def stored(self) -> tuple[Tensor, IntArray]:
        """The signatures that stand for a group, ``[s, ...]``, and the group of each."""
        if self.kept is None:
            known = np.flatnonzero(self.cluster >= 0)
            return self.signature[torch.from_numpy(known)], self.cluster[known]
        cluster = self.cluster[self.kept]
        stands = np.flatnonzero(cluster >= 0)
        return self.signature[torch.from_numpy(stands)], cluster[stands]

    def with_clients(
        self, ids: IntArray, rows: Tensor, cluster: IntArray, opened: BoolArray
    ) -> SignatureMemory:
        """The memory after some clients sent their signatures, and some of these ``opened`` their
        group. Where not all signatures are kept, the latter's are."""
        clusters = self.cluster.copy()
        clusters[ids] = cluster
        if self.kept is None:
            signature = self.signature.clone()
            signature[torch.from_numpy(ids)] = rows
            return replace(self, signature=signature, cluster=clusters)
        # A client that joins an existing group adds nothing to what stands for it already. So the
        # memory grows with the groups, and not with the clients that come.
        others = np.flatnonzero(~np.isin(self.kept, ids))
        newer = np.flatnonzero(opened | np.isin(ids, self.kept))
        kept = np.concatenate([self.kept[others], ids[newer]])
        signature = torch.cat(
            [self.signature[torch.from_numpy(others)], rows[torch.from_numpy(newer)]]
        )
        # Ascending, as `kept` promises, whoever came when.
        order = np.argsort(kept)
        signature = signature[torch.from_numpy(order)]
        return replace(self, signature=signature, cluster=clusters, kept=kept[order])


def signature_distances(
    memory: SignatureMemory, signature: Signature, linkage: Linkage, k: int, rows: Tensor
) -> Matrix:
    """The distances of newcomers to the groups, by the stored signatures of each, ``[n, k]``. A
    client that lost its group because its data drifted still stands for that group."""
    stored, cluster = memory.stored()
    # Ward's linkage alone needs the distances inside the clusters.
    inside = np.empty((0, 0))
    if linkage == "ward":
        inside = signature.distance(stored)
    to_stored = signature.distance(rows, stored)
    return linkage_distance(to_stored, inside, cluster, k, linkage)


# --- many clients ---------------------------------------------------------------------------------


# All distances of a million clients are 10^12 numbers. Up to 10,000 clients nothing here changes
# anything.

# Of more clients a sample makes the tree: the distances of 10,000 clients take 0.8 GB.
MOST = 10_000
SAMPLE = 4096
# A distance of so many projected values has a standard error of 3 %.
SKETCH = 512

Ask = Literal["all", "sample"]
SampleSize = Annotated[int, Field(ge=16)] | None
SketchSize = Annotated[int, Field(ge=16)] | None


@dataclass(frozen=True, slots=True)
class LargeFederation:
    """How many clients are clustered, and what becomes of the others.

    Args:
        sample: clients that make the tree. The others join the nearest cluster by the distance of
            the linkage, or open one beyond the threshold. ``None``: all of up to 10,000 clients, of
            more 4,096.
        sketch: values that a longer signature is projected to at random where a sample makes the
            tree (``coterie.math.similarity``); ``None``: 512.
        ask: ``all`` clients send their signature before the first round, or the ``sample`` alone:
            each other client does when it is first selected.
    """

    sample: int | None = None
    sketch: int | None = None
    ask: Ask = "all"

    def tree_size(self, clients: int) -> int:
        """How many of so many clients make the tree."""
        size = self.sample
        if size is None:
            size = SAMPLE
            if clients <= MOST:
                size = clients
        return min(size, clients)

    def draw(self, clients: IntArray, round: Round) -> IntArray:
        """The clients that make the tree, ascending."""
        size = self.tree_size(len(clients))
        if size == len(clients):
            return clients
        rng = round.key.of("tree").generator()
        return np.sort(rng.choice(clients, size, replace=False))

    def shortened(self, rows: Tensor, round: Round) -> Tensor:
        """Signatures ``[n, d]`` as ``[n, q]``; the same projection in every round of a run."""
        values = self.sketch or SKETCH
        # A projection to half as many values or more would save nothing that its error is worth.
        if rows.shape[1] <= 2 * values:
            return rows
        return project(rows, values, Key(round.key.seed).of("sketch"))


# --- requests -------------------------------------------------------------------------------------


# Bytes of signatures, and clients, that are handled at once: so many clients' distances to 4,096
# others take 0.3 GB.
_BLOCK_BYTES = 2**27
_BLOCK_CLIENTS = 8192


@dataclass(frozen=True, slots=True)
class Signatures:
    """Signatures that were received and are not zero.

    Args:
        ids: int64 ``[n]``, the clients.
        rows: float32 ``[n, ...]``, what they sent.
        size: ``[n]``, their numbers of samples.
    """

    ids: IntArray
    rows: Tensor
    size: NDArray[Any]

    def of(self, chosen: BoolArray) -> Signatures:
        """Those of some clients, bool ``[n]``."""
        if chosen.all():
            return self
        return Signatures(self.ids[chosen], self.rows[torch.from_numpy(chosen)], self.size[chosen])


def ask_signatures(
    signature: Signature, origin: Tensor, ids: IntArray, round: Round, notes: Counter[str]
) -> Signatures:
    """The signatures that were received; the notes count as ``unsigned`` those who sent none that
    is usable."""
    work = signature.work(round)
    if isinstance(work, Train):
        name = "delta"
        reply = round.clients.run(work, ids, origin, key=round.key)
    else:
        # No model is sent for a statistic of a client's data.
        name = work.statistic
        reply = round.clients.run(work, ids, key=round.key)
    rows = torch.from_numpy(reply.fields[name]).to(torch.float32)
    # A zero signature would be equally near to all, and a zero vector has no angle.
    usable = rows.flatten(1).any(dim=1).numpy()
    if len(ids) > int(usable.sum()):
        notes["unsigned"] += len(ids) - int(usable.sum())
    return Signatures(reply.ids, rows, reply.size).of(usable)


def ask_shortened(
    signature: Signature,
    large: LargeFederation,
    origin: Tensor,
    ids: IntArray,
    round: Round,
    notes: Counter[str],
) -> Signatures:
    """What `ask_signatures` gives, each block of clients shortened before the next one is asked."""
    blocks = []
    for block in blocks_of(ids, signature.work(round), len(origin)):
        some = ask_signatures(signature, origin, block, round, notes)
        blocks.append(replace(some, rows=large.shortened(some.rows, round)))
    return Signatures(
        np.concatenate([some.ids for some in blocks]),
        torch.cat([some.rows for some in blocks]),
        np.concatenate([some.size for some in blocks]),
    )


def blocks_of(ids: IntArray, work: Train | Describe, d: int) -> Iterator[IntArray]:
    """The clients in blocks whose answers fit into memory."""
    width = d
    if isinstance(work, Train) and work.upload is not None:
        width = work.upload[1] - work.upload[0]
    block = min(_BLOCK_CLIENTS, max(1, _BLOCK_BYTES // (4 * width)))
    for at in range(0, len(ids), block):
        yield ids[at : at + block]
