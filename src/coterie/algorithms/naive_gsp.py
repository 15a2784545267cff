"""NaiveGSP, FedGSP's ablation: Zeng et al., FedGSP (2022), sec. 4.1.

The paper's groups are chains here: the clients of a chain train one model in sequence. All chains
start from the same model, and their ends are averaged. What is shared with FedGSP and Astraea is in
`coterie.rules.chains`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core import NO_GROUP, Groups, GrowingRecord, IntArray, Plan
from coterie.core.describe import Epsilon
from coterie.core.traits import Need
from coterie.math.balanced import groups_sampled, inter_cluster, random_equal_groups
from coterie.methods.method import Method
from coterie.rules.chains import Histograms, Privacy, empty_plan, plan_of_chains
from coterie.rules.weighing import evenly


@dataclass(frozen=True, slots=True)
class ChainMemory(GrowingRecord):
    """The groups that NaiveGSP made once.

    Args:
        chain: int64 ``[N]``, the group of each client, -1 for a client that was never present.
        place: int64 ``[N]``, its place in one order of all clients, of which the clients of a group
            are a part; -1 likewise.
    """

    record_name: ClassVar[str] = "chains"
    newcomer: ClassVar[Mapping[str, float]] = {"chain": -1, "place": -1}
    chain: IntArray
    place: IntArray


@dataclass(frozen=True)
class FixedChains:
    """The assign rule of NaiveGSP: a fixed number of groups made once, each a chain in an order
    that never changes.

    A client that arrives later begins a new chain while there are fewer than ``count``. After that
    it goes to the end of the smallest chain. Clients that are not present are left out.

    Args:
        icg: group by inter-cluster grouping of label histograms instead of at random.
        histograms: how the server collects them; used only with ``icg``.
    """

    count: int
    kappa: float
    icg: bool
    histograms: Histograms

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        cohort = round.cohort
        # All chains train one model, so `Groups` has one group, 0. Its members are the clients that
        # the server knows; the paper's groups are the chains.
        if self.icg:
            groups, newcomers = self.histograms.ask(groups, round)
        else:
            newcomers = int((groups.member[cohort] < 0).sum())
            groups = groups.with_members(cohort, 0)
        ids = cohort[groups.member[cohort] >= 0]
        if not len(ids):
            return groups, empty_plan(ids)
        memory = self._chains(groups, ids, round)
        groups = groups.remember(memory)
        chains_present = np.unique(memory.chain[ids])
        sample = round.key.of("draw").generator()
        count = groups_sampled(self.kappa, len(chains_present))
        sampled = sample.choice(chains_present, count, replace=False)
        # Always the same order. The model learns it, which is the paper's case against this
        # ablation.
        ids = ids[np.argsort(memory.place[ids], kind="stable")]
        plan = plan_of_chains(ids, memory.chain[ids], sampled, newcomers, len(chains_present))
        return groups, plan

    def _chains(self, groups: Groups, ids: IntArray, round: Round) -> ChainMemory:
        """The chain of every client, with those that are present for the first time."""
        memory = groups.memory.get(ChainMemory)
        if memory is None:
            return self._first_chains(groups, ids, round)
        chain = memory.chain.copy()
        place = memory.place.copy()
        new = ids[chain[ids] < 0]
        for client in round.key.of("newcomers").generator().permutation(new).tolist():
            sizes = np.bincount(chain[chain >= 0], minlength=self.count)
            chain[client] = sizes.argmin()
            place[client] = place.max() + 1
        return ChainMemory(chain, place)

    def _first_chains(self, groups: Groups, ids: IntArray, round: Round) -> ChainMemory:
        """The first chains, made of the clients that are present then."""
        chain = np.full(len(groups.member), NO_GROUP)
        place = np.full(len(groups.member), -1)
        count = min(self.count, len(ids))
        key = round.key.of("groups")
        if self.icg:
            # "append": these groups stay, so who is left over once would never train.
            chain[ids] = inter_cluster(Histograms.of(groups, ids), count, key, "append")
        else:
            chain[ids] = random_equal_groups(len(ids), count, key)
        place[ids] = key.of("order").generator().permutation(len(ids))
        return ChainMemory(chain, place)


@validated
def naive_gsp(
    groups: Annotated[int, Field(ge=1)] = 10,
    kappa: Annotated[float, Field(gt=0, le=1)] = 0.3,
    icg: bool = False,
    privacy: Privacy = "none",
    epsilon: Epsilon = 1.0,
) -> Method:
    """NaiveGSP: FedGSP with a fixed number of groups, formed once.

    The groups are of equal size, and the order inside them never changes.

    With ``icg`` this is NaiveGSP+ICG, whose groups are made by inter-cluster grouping. The method
    draws its clients itself; the paper trains one local epoch: ``local.epochs = 1``.

    Args:
        groups: number of groups ``M``.
        kappa: share of the groups that train in a round.
        icg: inter-cluster grouping of label histograms instead of random groups.
        privacy: with ``icg``, how a client makes its histogram private before it sends it.
        epsilon: privacy budget.

    Models: one.

    Source: Zeng et al., Heterogeneous Federated Learning via Grouped Sequential-to-Parallel
    Training (2022), sec. 4.1.

    Example:
        >>> naive_gsp(icg=True).assign.icg
        True
    """
    rule = FixedChains(groups, kappa, icg, Histograms(privacy, epsilon))
    needs: tuple[Need, ...] = ("chains", "class_labels", "all_clients")
    if icg:
        needs = ("statistics", *needs)
    return Method(rule, weigh=evenly, needs=needs)
