"""One-shot grouping: every client sends a signature once, and the server clusters them (FedClust,
PACFL, FL+HC)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Literal, Protocol

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.groups import NO_GROUP, Groups
from coterie.core.keys import Key
from coterie.core.objective import Objective
from coterie.core.plan import Plan
from coterie.core.vectors import Layout
from coterie.core.work import Describe, Train
from coterie.errors import ConfigError
from coterie.math.clustering import Linkage, agglomerate, between
from coterie.math.group_count import Number
from coterie.math.similarity import Matrix, cosine_distance, entry_min, l1, l2, principal_angles
from coterie.rules.group_count import enough
from coterie.rules.single_group import everyone

Metric = Literal["l1", "l2", "cosine"]
Angle = Literal["entry_min", "principal"]
Threshold = Annotated[float, Field(gt=0)] | Literal["auto"]
SHOWN = 500
_METRICS = {"l1": l1, "l2": l2, "cosine": cosine_distance}
_ANGLES = {"entry_min": entry_min, "principal": principal_angles}


class Signature(Protocol):
    """What clients are asked for, and how far apart two answers are."""

    def work(self, door: Clients, objective: Objective) -> Train | Describe:
        """The request."""
        ...

    def distance(self, a: Tensor, b: Tensor | None = None) -> Matrix:
        """``[n, l]`` between answers ``[n, ...]`` and ``[l, ...]``; with ``None`` among ``a``
        themselves."""
        ...


@dataclass(frozen=True)
class Trained:
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

    def work(self, door: Clients, objective: Objective) -> Train:
        upload = None if self.layer is None else span(door.layout, self.layer, self.bias)
        return Train(objective, epochs=self.epochs, upload=upload)

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

    def work(self, door: Clients, objective: Objective) -> Describe:
        return Describe("subspace", door.classes, door.features, self.vectors)

    def distance(self, a: Tensor, b: Tensor | None = None) -> Matrix:
        return _ANGLES[self.angle](a, b)


def span(layout: Layout | None, layer: str, bias: bool) -> tuple[int, int]:
    """Where a layer lies in the flat vector, ``(start, stop)``.

    Args:
        layout: of the model.
        layer: ``final``, a layer's name (what stands before ``.weight``), or a tensor's name.
        bias: with the layer's bias.

    Raises:
        ConfigError: for a name that the model does not have, or a layer that is not in one piece.

    Example:
        >>> from torch import nn
        >>> layout = Layout.of(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)))
        >>> span(layout, "final", True), span(layout, "final", False), span(layout, "0", True)
        ((8, 14), (8, 12), (0, 8))
    """
    assert layout is not None, "the door knows no layout"
    names = layout.names[: layout.trainable]
    if layer == "final":
        at = layout.final_layer()
        held = [n for n in names if at.start <= layout.span(n).start]
    else:
        held = [n for n in names if n == layer or n.rpartition(".")[0] == layer]
    if not held:
        layers = dict.fromkeys(n.rpartition(".")[0] or n for n in names)
        raise ConfigError(
            f"algorithm.layer: unknown layer, got {layer!r}; expected 'final' or one of {', '.join(layers)}"
        )
    if not bias and layer not in names:
        held = [n for n in held if len(layout.shapes[layout.names.index(n)]) > 1] or held
    spans = [layout.span(n) for n in held]
    if any(a.stop != b.start for a, b in pairwise(spans)):
        raise ConfigError(
            f"algorithm.layer: not in one piece, got {layer!r}; expected one of {', '.join(held)}"
        )
    return spans[0].start, spans[-1].stop


@dataclass(frozen=True)
class Agglomerative:
    """Assign rule: one round in which all clients send a signature and are clustered; then
    newcomers, as they come.

    A newcomer sends its signature, too, and joins the nearest cluster; beyond the threshold it
    opens a group of its own (newcomers of one round who are alike share it). Groups start from the
    model that the signatures were made with. A client whose signature did not come home, or is zero
    throughout, has no group until it is asked again.

    Remembered for the report: ``tree``, ``leaves`` (whose they are), ``threshold``, and
    ``proximity`` of up to 500 clients; for newcomers: ``origin``, all signatures ``[N, ...]`` and
    ``home [N]``, the group that each stands for.

    Args:
        signature: what is asked for.
        objective: what clients minimise, where a signature is trained.
        linkage: how clusters are merged.
        threshold: ``lambda``, or ``auto`` for the largest gap (``clustering.largest_gap``).
        groups: number of groups instead of a threshold; newcomers then never open one.
        after: rounds of FedAvg before; newcomers train in it as all do.
    """

    signature: Signature
    objective: Objective
    linkage: Linkage = "average"
    threshold: float | Literal["auto"] = "auto"
    groups: int | None = None
    after: int = 0

    def __post_init__(self) -> None:
        if self.groups is not None and self.threshold != "auto":
            raise ConfigError(
                f"algorithm.groups: a number of groups and a threshold, got {self.groups} and {self.threshold}; "
                "expected one of them"
            )

    def __call__(
        self, groups: Groups, cohort: IntArray, door: Clients, key: Key
    ) -> tuple[Groups, Plan]:
        notes: Counter[str] = Counter()
        level = None
        if "signature" not in groups.memory:
            if self.groups is not None and self.groups > len(groups.member):
                raise ConfigError(
                    f"algorithm.groups: more groups than clients, got {self.groups}; expected 1 to {len(groups.member)}"
                )
            if self.after and key.round < self.after:
                return everyone(groups, cohort, door, key)
            groups = self._cluster(groups, door, key.of("signatures"), notes)
            level = groups.memory.get("threshold")
        elif len(
            new := cohort[(groups.member[cohort] < 0) | (groups.memory["home"].numpy()[cohort] < 0)]
        ):
            groups = self._place(groups, new, door, key.of("newcomers"), notes)
        ids = cohort[groups.member[cohort] >= 0]
        found = {} if level is None else {"groups": groups.k, "threshold": _finite(float(level))}
        return groups, Plan(ids, groups.member[ids], notes={**notes, **found})

    def _cluster(self, groups: Groups, door: Clients, key: Key, notes: Counter[str]) -> Groups:
        """Signatures of all who can be asked, and their clusters; where too few came home all stays
        as it was."""
        clients = len(groups.member)
        able = np.arange(clients) if door.able is None else door.able
        origin = groups.models[0]
        ids, rows = self._ask(origin, able, door, key, notes)
        least = max(1, door.quorum.min_replies)
        if len(ids) < (
            enough(door, able) if self.groups is None and self.threshold == "auto" else least
        ):
            notes["unclustered"] = 1
            return groups
        proximity = self.signature.distance(rows)
        found = agglomerate(proximity, self.linkage, self.threshold, self.groups)
        member = np.full(clients, NO_GROUP)
        signature = rows.new_zeros(clients, *rows.shape[1:])
        member[ids] = found.labels
        signature[torch.from_numpy(ids)] = rows
        notes["cold_start"] = len(ids)
        shown = {"proximity": torch.from_numpy(proximity)} if len(ids) <= SHOWN else {}
        return replace(groups.taking([0] * found.count), member=member).remember(
            origin=origin,
            signature=signature,
            home=torch.from_numpy(member),
            threshold=torch.tensor(found.threshold, dtype=torch.float64),
            tree=torch.from_numpy(found.tree),
            leaves=torch.from_numpy(ids),
            **shown,
        )

    def _ask(
        self, origin: Tensor, ids: IntArray, door: Clients, key: Key, notes: Counter[str]
    ) -> tuple[IntArray, Tensor]:
        """The signatures that came home and say something: int64 ``[n]`` and float32 ``[n,
        ...]``."""
        work = self.signature.work(door, self.objective)
        if isinstance(work, Train):
            name = "delta"
            which = np.zeros(len(ids), np.int64)
        else:
            name = work.statistic
            which = np.zeros((len(ids), 0), np.int64)
        reply = door.run(work, ids, origin[None], which, key=key)
        rows = torch.from_numpy(reply.fields[name]).to(torch.float32)
        usable = rows.flatten(1).any(dim=1)
        if len(ids) > int(usable.sum()):
            notes["unsigned"] = len(ids) - int(usable.sum())
        return reply.ids[usable.numpy()], rows[usable]

    def _place(
        self, groups: Groups, new: IntArray, door: Clients, key: Key, notes: Counter[str]
    ) -> Groups:
        """Newcomers to their nearest clusters; those beyond the threshold, clustered by themselves,
        to new groups."""
        ids, rows = self._ask(groups.memory["origin"], new, door, key, notes)
        if not len(ids):
            return groups
        notes["newcomers"] = len(ids)
        far = self._distances(groups, rows)
        level = float(groups.memory["threshold"]) if self.groups is None else np.inf
        reached = np.isfinite(far.min(axis=1)) & (far.min(axis=1) <= level)
        joined = far.argmin(axis=1)
        if not reached.all():
            alone = self.signature.distance(rows[torch.from_numpy(~reached)])
            opened = agglomerate(alone, self.linkage, level, self.groups)
            joined[~reached] = groups.k + opened.labels
            notes["opened"] = opened.count
            groups = _open(groups, opened.count)
        member = groups.member.copy()
        where = torch.from_numpy(ids)
        member[ids] = joined
        signature = groups.memory["signature"].clone()
        home = groups.memory["home"].clone()
        signature[where] = rows
        home[where] = torch.from_numpy(joined)
        return replace(groups, member=member).remember(signature=signature, home=home)

    def _distances(self, groups: Groups, rows: Tensor) -> Matrix:
        """``[n, k]``: newcomers to the groups, by the stored signatures of each.

        A client that has lost its group because its data drifted still stands for that group by the
        signature it sent.
        """
        home = groups.memory["home"].numpy()
        inside = np.flatnonzero(home >= 0)
        stored = groups.memory["signature"][torch.from_numpy(inside)]
        within = self.signature.distance(stored) if self.linkage == "ward" else np.empty((0, 0))
        return between(
            self.signature.distance(rows, stored), within, home[inside], groups.k, self.linkage
        )


def number(groups: Number | None) -> int | None:
    """The number of groups that was asked for; ``auto`` is none, the threshold's own ``auto``.

    Example:
        >>> number(3), number("auto")
        (3, None)
    """
    if groups == "auto":
        return None
    return groups


def _open(groups: Groups, count: int) -> Groups:
    """More groups, from the model that the signatures were made with, and without rows of a server
    optimiser."""
    return replace(
        groups, models=torch.cat([groups.models, groups.memory["origin"].repeat(count, 1)])
    )


def _finite(value: float) -> float | None:
    if np.isfinite(value):
        return value
    return None
