"""Assign rules that train groups one client after another, and groups side by side: FedGSP,
NaiveGSP, Astraea.

There is one model. A client belongs to it (``member`` 0) once the server knows what it needs to
know of it; one of which it knows nothing (``member`` -1) is a newcomer, and is asked when it is
first there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.groups import NO_GROUP, Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.work import Describe
from coterie.math.balanced import (
    Growth,
    Init,
    Leftover,
    at_random,
    grow,
    inter_cluster,
    mediators,
    share,
)
from coterie.math.similarity import Matrix
from coterie.math.transport import Exact

_MOST = 100.0  # times the median of what clients tell
Privacy = Literal["none", "discrete_laplace", "randomised_response"]


@dataclass(frozen=True)
class Histograms:
    """What the server keeps of its clients: their label histograms, asked once when a client is
    new.

    Counts are clipped to ``0..cap`` of the gate, and scaled where they sum up to more than 100
    times the median of all told, since one such client would leave no room for differences among
    the others. A client that does not answer stays new.

    Args:
        privacy: how a client makes its histogram private before it sends it.
        epsilon: privacy budget.
    """

    privacy: Privacy = "none"
    epsilon: float = 1.0

    def ask(self, groups: Groups, cohort: IntArray, door: Clients, key: Key) -> tuple[Groups, int]:
        """Have every newcomer of the cohort described; the groups that know them, and how many
        answered."""
        fresh = cohort[groups.member[cohort] < 0]
        kept = groups.memory.get(
            "histogram", torch.zeros(len(groups.member), door.classes, dtype=torch.float64)
        )
        if not len(fresh):
            return groups.remember(histogram=kept), 0
        work = Describe("histogram", door.classes, privacy=self.privacy, epsilon=self.epsilon)
        no_model = np.empty((len(fresh), 0), np.int64)
        reply = door.run(work, fresh, groups.models, no_model, key=key.of("describe"))
        told = np.clip(reply.fields["histogram"].astype(np.float64), 0, door.validator.cap)
        kept = kept.clone()
        member = groups.member.copy()
        kept[torch.from_numpy(reply.ids)] = torch.from_numpy(told)
        member[reply.ids] = 0
        if len(reply):
            total = kept.sum(dim=1)
            most = _MOST * max(1.0, float(np.median(total[torch.from_numpy(member >= 0)])))
            kept *= (most / total).clamp_max(1.0)[:, None]
        return replace(groups, member=member).remember(histogram=kept), len(reply)

    @staticmethod
    def of(groups: Groups, ids: IntArray) -> Matrix:
        """The histograms ``[n, c]`` of clients that were described."""
        known: Matrix = groups.memory["histogram"][torch.from_numpy(ids)].numpy()
        return known


def _plan(ids: IntArray, chain: IntArray, drawn: IntArray, newcomers: int, groups: int) -> Plan:
    """The plan of the chains drawn, out of all clients in the order in which they would train."""
    taking = np.isin(chain, drawn)
    notes = {
        "newcomers": newcomers,
        "groups": groups,
        "sampled": len(drawn),
        "idle": int((chain < 0).sum()),
    }
    return Plan(ids[taking], np.zeros(int(taking.sum()), np.int64), chain[taking], notes=notes)


@dataclass(frozen=True)
class Growing:
    """FedGSP: every round ``f(r)`` new groups by ICG, ``kappa`` of them drawn, each a chain in
    shuffled order (Alg. 1).

    Args: as ``coterie.algorithms.fedgsp``.
    """

    histograms: Histograms
    growth: Growth = "log"
    alpha: float = 2.0
    beta: int = 10
    kappa: float = 0.3
    leftover: Leftover = "idle"
    normalize: bool = False
    iterations: int = 10
    init: Init = "random"
    solver: Exact = "transport"

    def __call__(
        self, groups: Groups, cohort: IntArray, door: Clients, key: Key
    ) -> tuple[Groups, Plan]:
        groups, newcomers = self.histograms.ask(groups, cohort, door, key)
        ids = cohort[groups.member[cohort] >= 0]
        if not len(ids):
            return groups, Plan(ids, ids, ids)
        m = grow(self.growth, key.round + 1, self.alpha, self.beta, len(ids))
        group = inter_cluster(
            Histograms.of(groups, ids),
            m,
            key.of("icg"),
            self.leftover,
            self.normalize,
            self.iterations,
            self.init,
            self.solver,
        )
        drawn = key.of("draw").generator().choice(m, share(self.kappa, m), replace=False)
        order = key.of("order").generator().permutation(len(ids))
        return groups, _plan(ids[order], group[order], drawn, newcomers, m)


@dataclass(frozen=True)
class Fixed:
    """NaiveGSP: a fixed number of groups made once, each a chain in an order that never changes.

    Clients that come later open the groups that are missing, or go to the smallest one, at the end
    of its chain; who is not there is left out.

    Args:
        groups: ``M``.
        kappa: share of the groups that take part in a round.
        icg: by inter-cluster grouping of label histograms instead of at random.
        histograms: how they are had, with ``icg``.
    """

    groups: int
    kappa: float
    icg: bool
    histograms: Histograms

    def __call__(
        self, groups: Groups, cohort: IntArray, door: Clients, key: Key
    ) -> tuple[Groups, Plan]:
        newcomers = int((groups.member[cohort] < 0).sum())
        if self.icg:
            groups, newcomers = self.histograms.ask(groups, cohort, door, key)
        else:
            groups = replace(groups, member=_placed(groups.member, cohort))
        ids = cohort[groups.member[cohort] >= 0]
        if not len(ids):
            return groups, Plan(ids, ids, ids)
        chain, place = self._chains(groups, ids, key)
        groups = groups.remember(chain=torch.from_numpy(chain), place=torch.from_numpy(place))
        there = np.unique(chain[ids])
        drawn = (
            key.of("draw").generator().choice(there, share(self.kappa, len(there)), replace=False)
        )
        ids = ids[np.argsort(place[ids], kind="stable")]
        return groups, _plan(ids, chain[ids], drawn, newcomers, len(there))

    def _chains(self, groups: Groups, ids: IntArray, key: Key) -> tuple[IntArray, IntArray]:
        """The group of every client and its place in the chain, each int64 ``[N]``; -1 for one
        never seen."""
        if "chain" in groups.memory:
            chain, place = (groups.memory[name].numpy().copy() for name in ("chain", "place"))
            new = ids[chain[ids] < 0]
        else:
            chain = np.full(len(groups.member), NO_GROUP)
            place = np.full(len(groups.member), -1)
            new = ids[:0]
            m = min(self.groups, len(ids))
            make = key.of("groups")
            chain[ids] = (
                inter_cluster(Histograms.of(groups, ids), m, make, "append")
                if self.icg
                else at_random(len(ids), m, make)
            )
            place[ids] = make.of("order").generator().permutation(len(ids))
        for id in key.of("newcomers").generator().permutation(new).tolist():
            chain[id] = np.bincount(chain[chain >= 0], minlength=self.groups).argmin()
            place[id] = place.max() + 1
        return chain, place


def _placed(member: IntArray, cohort: IntArray) -> NDArray[np.int64]:
    member = member.copy()
    member[cohort] = 0
    return member


@dataclass(frozen=True)
class Mediated:
    """Astraea: the cohort is dealt to mediators whose labels are nearly uniform, anew in every
    round.

    Args:
        most: clients per mediator, ``gamma``.
        histograms: how they are had.
    """

    most: int
    histograms: Histograms

    def __call__(
        self, groups: Groups, cohort: IntArray, door: Clients, key: Key
    ) -> tuple[Groups, Plan]:
        groups, newcomers = self.histograms.ask(groups, cohort, door, key)
        ids = cohort[groups.member[cohort] >= 0]
        order, mediator = mediators(Histograms.of(groups, ids), self.most)
        return groups, _plan(
            ids[order], mediator, np.unique(mediator), newcomers, len(np.unique(mediator))
        )
