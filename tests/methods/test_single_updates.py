"""What a method says it reads of single clients is what its rules read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.algorithms import ALGORITHMS
from coterie.clients.clients import Clients, ClientStores
from coterie.clients.cohort import Sampler
from coterie.core.arrays import IntArray
from coterie.core.describe import Describe
from coterie.core.engine import Reply
from coterie.core.keep import ClientStore
from coterie.core.keys import Key
from coterie.core.updates import Updates
from coterie.core.work import Score, Train
from coterie.engines import KeepingEngine, OwnModelEngine, SerialEngine
from coterie.local import LocalRunner
from coterie.methods.algorithm import as_algorithm
from coterie.methods.fit_to_model import fit_to_model
from coterie.methods.method import Method
from coterie.methods.traits import single_updates
from coterie.models import initial_models
from coterie.rules import weighing
from coterie.rules.robust import coordinate_median
from coterie.rules.weighing import WeighsAlone
from coterie.runs.loop import simulate
from coterie.runs.schedule import Schedule
from tests.conftest import blobs, small_net
from tests.contract.cases import contract_cases
from tests.contract.test_algorithms import shape_of

VARIANTS = (
    "cfl-splits",
    "fedgroup-rac",
    "fesem-flexcfl",
    "fesem-auto",
    "ida-factors",
    "ifca-auto",
    "naive_gsp-icg",
    "rfedavg-one",
)
CASES = {name: make for name, make in contract_cases().items() if name in {*ALGORITHMS, *VARIANTS}}
CASES |= {
    "fedgroup-latest": lambda m: ct.fedgroup(groups=m, alpha=2, newcomer="aux_latest"),
    "ifca-starts": lambda m: ct.ifca(groups=m, restarts=2, alpha=3),
    "ifca-cold": lambda m: ct.ifca(groups=m, init="cold_start", alpha=3),
    # Before the first split no client can descend to a half.
    "cfl": lambda m: ct.cfl(eps1=9.0, eps2=0.0, after=0),
}
every = pytest.mark.parametrize("name", CASES)


class NoDrift:
    """Clients that choose their group by themselves, and whose data do not drift: as in a
    deployment."""

    def compare(self, assignment_version: IntArray) -> IntArray:
        return np.empty(0, np.int64)


@dataclass
class Seen:
    """What a server saw of single clients.

    Args:
        asked: rounds in which updates were asked for by a rule, outside the round's own training.
        kinds: of the work that was asked for.
        chains: whether models were passed on.
    """

    asked: list[int] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    chains: bool = False


def masked(method: Method, updates: Updates, k: int, round: Any) -> Updates:
    """The updates with masks that are long, and cancel in the weighted sum of each group.

    Clients that count for several of the ``k`` models are in one sum here.
    """
    weight = np.ones(len(updates))
    if isinstance(method.weigh, WeighsAlone):
        weight = method.weigh.weight_of(updates.size)
    delta = updates.delta.to(torch.float64)
    drawn = round.key.of("mask").generator().standard_normal(delta.shape)
    mask = 10.0 * torch.from_numpy(drawn)
    row = np.minimum(updates.row, k)
    for j in np.unique(row):
        mine = torch.from_numpy(np.flatnonzero(row == j))
        share = torch.from_numpy(weight)[mine, None]
        mask[mine] -= (share * mask[mine]).sum(0) / share.sum()
    return replace(updates, delta=(delta + mask).to(torch.float32))


def without(reply: Reply, client: int) -> Reply:
    """The reply without a client."""
    others = reply.ids != client
    fields = {name: values[others] for name, values in reply.fields.items()}
    return replace(reply, ids=reply.ids[others], fields=fields)


# Auxo looks for halves among five updates or more.
COHORTS = {"auxo": 6}


def run(method: Method, mask: bool, cohort: int) -> tuple[list[Any], Seen]:
    """Six rounds of twelve clients; with masks the server sees sums alone."""
    seen = Seen()
    in_training = [False]
    train = weighing.train
    ask = Clients.post

    def training(local: Train, groups: Any, plan: Any, round: Any) -> Updates:
        in_training[0] = True
        updates = train(local, groups, plan, round)
        in_training[0] = False
        seen.chains |= plan.chain is not None
        if mask:
            updates = masked(method, updates, groups.k, round)
        return updates

    def asking(
        self: Clients, work: Any, *arguments: Any, key: Key, counts: bool = True
    ) -> Callable[[], Reply]:
        reply = ask(self, work, *arguments, key=key, counts=counts)()
        if counts:
            reply = watched(work, reply, key)
        return lambda: reply

    def watched(work: Any, reply: Reply, key: Key) -> Reply:
        # What clients say of their data when they train all models.
        if "shares" in reply.fields:
            seen.kinds.add("statistics")
        if in_training[0] or not len(reply):
            return reply
        # Where clients choose a model, the rule is rounds of IFCA, which add up.
        if isinstance(work, Train) and work.choose is None:
            if not seen.asked:
                # One client misses the first groups, and is a newcomer later.
                reply = without(reply, population.clients - 1)
            seen.asked.append(key.round)
        if isinstance(work, Describe) or (isinstance(work, Score) and work.split == "train"):
            seen.kinds.add("statistics")
        return reply

    population = blobs()
    fitted, net = fit_to_model(method, small_net(), Key(3))
    store = ClientStore()
    engine = SerialEngine(LocalRunner(population, net, ct.Solver(epochs=1, batch_size=5, lr=0.1)))
    sampler = Sampler("cover_then_uniform", np.arange(population.clients), cohort, Key(3))
    shape = shape_of(net, population)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weighing, "train", training)
        patch.setattr(Clients, "post", asking)
        with Clients(
            KeepingEngine(OwnModelEngine(engine), store),
            shape=shape,
            stores=ClientStores(store),
            drift_reports=NoDrift(),
        ) as clients:
            schedule = Schedule(sampler, ct.Training(6), Key(3))
            models = initial_models(net, Key(3))
            rounds = simulate(as_algorithm(fitted), clients, population, models, schedule)
            return [result.groups for result in rounds], seen


def method_of(name: str) -> Method:
    made: Callable[[int], Any] = CASES[name]
    method = made(2)
    assert isinstance(method, Method)
    return method


@cache
def plain_run(name: str, cohort: int) -> tuple[list[Any], Seen]:
    """The run whose updates the server sees, which both tests need."""
    return run(method_of(name), mask=False, cohort=cohort)


@pytest.mark.sampled(12)
@every
def test_masked_updates_give_the_same_models_where_sums_are_said_to_be_enough(name: str) -> None:
    method = method_of(name)
    cohort = COHORTS.get(name, 4)
    plain, seen = plain_run(name, cohort)
    spoiled, _ = run(method, mask=True, cohort=cohort)
    same = all(
        np.array_equal(a.member, b.member)
        and a.models.shape == b.models.shape
        and float((a.models - b.models).abs().max()) <= 1e-4 * float(a.models.abs().max())
        for a, b in zip(plain, spoiled, strict=True)
    )
    needs = single_updates(method)
    one_by_one = {"grouping", "second_vector", "weights", "shares"}
    assert same == (not one_by_one & set(needs)), needs
    assert seen.chains == ("chains" in needs)
    assert ("statistics" in seen.kinds) == ("statistics" in (method.needs or ()))


@every
def test_updates_of_single_clients_are_asked_for_when_the_method_says_so(name: str) -> None:
    method = method_of(name)
    _, seen = plain_run(name, 4)
    needs = set(single_updates(method)) & {"start", "newcomers"}
    found = set()
    if seen.asked and name.partition("-")[0] != "cfl":
        found.add("start")
    # Once more, or again later: clients that had no part in the first groups. CFL makes its groups of
    # rounds, so whom it asks apart is new.
    if len(seen.asked) > 1 or (seen.asked and name.partition("-")[0] == "cfl"):
        found.add("newcomers")
    assert found == needs


def test_a_robust_rule_reads_single_updates() -> None:
    from coterie.methods.override import override

    method = override(ct.fedavg(), weigh=coordinate_median())
    assert isinstance(method, Method)
    assert single_updates(method) == ("weights",)


def test_a_method_that_says_nothing_is_taken_to_read_updates() -> None:
    from coterie.rules.assigning import everyone

    assert single_updates(Method(everyone)) == ("start", "newcomers")
