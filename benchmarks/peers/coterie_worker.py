"""Coterie's pool engine."""

import os
import sys

import numpy as np
import torch
from task import Task, serve
from torch import nn

import coterie as ct
from coterie.engines import make_clients
from coterie.methods.algorithm import as_algorithm
from coterie.models import build_model
from coterie.runs.loop import simulate
from coterie.runs.schedule import Schedule

task = Task(sys.argv[1])
out = sys.argv[2]
held: dict[int, np.ndarray] = {}
for t, ids in enumerate(task._cohort):
    for k, id in enumerate(ids.tolist()):
        held[id] = task._rows[slice(*task._at[t, k])]
everyone = int(task._cohort.max()) + 1
none = np.empty(0, np.int64)
data = ct.Population(
    torch.from_numpy(task.x),
    torch.from_numpy(task.y),
    tuple(held.get(i, none) for i in range(everyone)),
    (none,) * everyone,
    10,
)
net = build_model(task.model, data.shape, 10, ct.Key(0).of("model"))
nn.utils.vector_to_parameters(torch.from_numpy(task.w0), net.parameters())
local = ct.Solver(epochs=task.epochs, batch_size=task.batch, lr=task.lr)
with make_clients(data, net, local, "pool", workers=int(os.environ["CORES"])) as clients:
    rounds = simulate(
        as_algorithm(ct.fedavg()),
        clients,
        data,
        torch.from_numpy(task.w0),
        Schedule(
            lambda t: np.sort(task._cohort[t]),
            ct.Training(len(task._cohort) + 1, evaluate_every=10**9),
            ct.Key(0),
        ),
    )
    serve(lambda round: next(rounds).groups.models[0].numpy(), out)
