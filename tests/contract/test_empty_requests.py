"""What engines and their wrappers make of a request to nobody, of no reply, and of one client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import coterie as ct
from coterie.algorithms import OWN_MODELS
from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.engine import Engine, Reply
from coterie.core.keep import ClientStore, Keep
from coterie.core.keys import Key
from coterie.core.vectors import flatten
from coterie.core.work import Score, Train, Work
from coterie.engines import ATTACKS, AttackingEngine, KeepingEngine, OwnModelEngine, SerialEngine
from coterie.engines.keeping import RememberingEngine
from coterie.local import LocalRunner
from tests.conftest import blobs, small_net
from tests.simulations import ONE_EPOCH

KEY = Key(1, "/train", 3)


class Unheard:
    """An engine whose replies are lost: no reply comes, or one of nobody."""

    def __init__(self, engine: Engine, of_nobody: bool) -> None:
        self.engine = engine
        self.of_nobody = of_nobody

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        replies = self.engine.run(work, ids, models, which, key=key)
        if not self.of_nobody:
            return []
        return [reply.rows(np.empty(0, np.int64)) for reply in replies]

    def set_population(self, population: Any) -> None:
        self.engine.set_population(population)

    def close(self) -> None:
        self.engine.close()


WRAPPERS: dict[str, Any] = {
    "keeping": KeepingEngine,
    "own models": OwnModelEngine,
    "remembering": lambda engine: RememberingEngine(engine, ClientStore()),
    **{
        name: lambda engine, make=make: AttackingEngine(engine, make(), np.arange(12))
        for name, make in ATTACKS.items()
    },
}
WORKS: dict[str, Train | Score] = {
    "train": Train(),
    "choose": Train(choose="least_loss"),
    "keep": Train(keep=Keep(((0, 8),))),
    "score": Score("train"),
    **{f"own {name}": Train().by_rule(make()) for name, make in OWN_MODELS.items()},
}


@pytest.fixture(scope="module")
def serial() -> SerialEngine:
    return SerialEngine(LocalRunner(blobs(), small_net(), ONE_EPOCH))


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("heard", ["nothing", "nobody", "one"])
def test_a_wrapper_passes_on_what_it_hears(wrapper: str, heard: str, serial: SerialEngine) -> None:
    model = flatten(small_net())
    ids = np.array([4])
    inner: Engine = serial
    if heard != "one":
        inner = Unheard(serial, of_nobody=heard == "nobody")
    for name, work in WORKS.items():
        # Only these know what stays with a client.
        if name == "keep" and wrapper != "keeping":
            continue
        if name.startswith("own ") and wrapper != "own models":
            continue
        which = np.zeros((1, 1), np.int64)
        if name not in ("choose", "score"):
            which = which[:, 0]
        replies = WRAPPERS[wrapper](inner).run(work, ids, model[None], which, key=KEY)
        found = [client for reply in replies for client in reply.ids.tolist()]
        assert found == [4] * (heard == "one"), name


class Refuses:
    """An engine that must not be asked."""

    def run(self, *arguments: Any, **named: Any) -> Sequence[Reply]:
        raise AssertionError("asked")


@pytest.mark.parametrize("work", [Train(), Train(choose="least_loss"), Score("train")])
def test_nobody_is_asked_nothing(work: Train | Score) -> None:
    clients = Clients(Refuses())  # type: ignore[arg-type]
    reply = clients.run(work, np.empty(0, np.int64), torch.zeros(2, 3), key=KEY)
    assert len(reply) == 0
    assert reply.size.shape == (0,)


@pytest.mark.parametrize("method", [ct.fedavg(), ct.fedem(groups=2), ct.fedrep(), ct.ditto()])
@pytest.mark.parametrize("attack", [None, {"kind": "sign_flip", "share": 1.0}])
def test_a_round_whose_clients_are_all_too_late_moves_no_model(
    method: ct.Method, attack: dict[str, Any] | None
) -> None:
    result = ct.run(
        method,
        data=blobs(),
        model=small_net(),
        local=ONE_EPOCH,
        rounds=1,
        engine={"name": "serial", "round_timeout": 1e-9},
        attack=attack,
    )
    assert result.rows[0]["skipped"]
    assert torch.isfinite(result.state.models).all()


def test_a_cluster_that_is_asked_about_nobody_under_attack() -> None:
    """StoCFL describes newcomers in each round, and in the second one there is none."""
    result = ct.run(
        ct.stocfl(tau=0.3),
        data=blobs(),
        model=small_net(),
        local=ONE_EPOCH,
        rounds=2,
        clients_per_round=12,
        engine="serial",
        attack={"kind": "alie"},
    )
    assert [row["skipped"] for row in result.rows] == [False, False]
