"""Engines agree to the bit, whatever clients train by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.core.keys import Key
from coterie.core.work import Train
from coterie.engines.simulation import SerialEngine
from coterie.local import LocalRunner
from coterie.local.device import Device
from coterie.objectives import plain
from coterie.tasks import CLASSIFICATION
from tests.conftest import blobs, small_net

SOLVERS = {
    "adamw": ct.Solver(
        epochs=2,
        batch_size=5,
        lr=0.01,
        optimizer="adamw",
        round_schedule=ct.LrSchedule("cosine", warmup=1),
    ),
    # Batches of 32 samples and more, which a library multiplies in compiled steps.
    "adam in large batches": ct.Solver(epochs=2, batch_size=40, lr=0.01, optimizer="adam"),
    "everything": ct.Solver(
        epochs=2,
        batch_size=5,
        lr=0.01,
        optimizer="rmsprop",
        momentum=0.5,
        weight_decay=0.1,
        clip_norm=1.0,
        label_smoothing=0.1,
        precision="bfloat16",
        step_schedule=ct.LrSchedule("cosine", warmup=2),
    ),
}
every = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())


def run(solver: ct.Solver, engine: str | dict[str, Any], **options: Any) -> ct.Result:
    return ct.run(
        ct.fedgroup(groups=2, alpha=3),
        data=blobs(),
        model=small_net(),
        local=solver,
        rounds=3,
        clients_per_round=6,
        engine=engine,
        **options,
    )


@pytest.mark.sampled(1)
@every
def test_workers_do_not_matter(solver: ct.Solver) -> None:
    serial = run(solver, "serial")
    pool = run(solver, {"name": "pool", "workers": 2})
    assert torch.equal(serial.state.models, pool.state.models)
    assert serial.accuracy == pool.accuracy
    # And the solver does: the run is not that of plain SGD.
    sgd = run(ct.Solver(epochs=2, batch_size=5, lr=0.01), "serial")
    assert not torch.equal(serial.state.models, sgd.state.models)


@every
def test_an_actor_of_ray_trains_as_serial(solver: ct.Solver) -> None:
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    from coterie.engines.ray.actor import Actor, ActorJob, ActorOptions, Equipment

    solver = solver.over_rounds(3)
    data = blobs(clients=2)
    net = small_net()
    runner = LocalRunner(data, net, solver)
    models = torch.cat([p.detach().reshape(-1) for p in net.parameters()])[None]
    ids = np.arange(2)
    key = Key(1).at(1)
    (reply,) = SerialEngine(runner).run(Train(), ids, models, 0 * ids, key=key)
    rows = [torch.from_numpy(held) for held in data.train]
    x = data.x[torch.cat(rows)].numpy()
    first, second = (len(held) for held in rows)
    places = (("all", slice(0, first)), ("all", slice(first, first + second)))
    labels = tuple(data.y[held].numpy() for held in rows)
    # The main process gives the work the loss that is trained.
    objective = plain.for_task(runner.trained_task)
    work = replace(Train(), objective=objective)
    keys = tuple(key.client(i) for i in range(2))
    actor = Actor()
    actor.equip(Equipment(net, solver, (), CLASSIFICATION, ActorOptions(device=Device("cpu"))))
    delta, *_ = actor.train(
        ActorJob(work, keys, 0 * ids, labels, places, ("all",)), models.numpy(), x
    )
    assert np.array_equal(delta, reply.fields["delta"])
