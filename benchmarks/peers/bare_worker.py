"""A loop written by hand: one process, so many threads."""

import os
import sys

import numpy as np
import torch
from nets import fit, flat, load, net
from task import Task, serve

task = Task(sys.argv[1])
out = sys.argv[2]
threads = int(os.environ["THREADS"])
torch.set_num_threads(threads)
module = net(task.model)
vector = task.w0


def run(round: int) -> np.ndarray:
    global vector
    total = np.zeros_like(vector)
    size = 0
    for number in range(task.clients):
        _, x, y, order = task.client(round, number)
        load(module, vector)
        fit(module, x, y, order, task.lr, task.batch)
        total = total + flat(module) * len(y)
        size = size + len(y)
    vector = total / size
    return vector


serve(run, out)
