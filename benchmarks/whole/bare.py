"""A loop written by hand: one process, so many threads."""

import os
import sys

import numpy as np
import torch
from networks import NETWORKS, accuracy, fit
from recipe_file import Recipe, report

recipe = Recipe(sys.argv[1])
torch.set_num_threads(int(os.environ["THREADS"]))
torch.manual_seed(0)
draw = np.random.default_rng(0)
x = torch.from_numpy(recipe.x)
y = torch.from_numpy(recipe.y)
module = NETWORKS[recipe.network](x.shape[1:], recipe.classes)
last = 0.0
for round in range(1, recipe.rounds + 1):
    before = {name: value.clone() for name, value in module.state_dict().items()}
    total = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in before.items()}
    samples = 0
    for client in draw.choice(recipe.clients, recipe.cohort, replace=False):
        rows = torch.from_numpy(recipe.client(client))
        module.load_state_dict(before)
        fit(module, x[rows], y[rows], recipe.epochs, recipe.batch, recipe.lr)
        for name, value in module.state_dict().items():
            total[name] += value.double() * len(rows)
        samples += len(rows)
    module.load_state_dict(
        {name: (value / samples).to(before[name].dtype) for name, value in total.items()}
    )
    if round % recipe.every == 0:
        test = torch.from_numpy(recipe.test)
        last = accuracy(module, x[test], y[test])
report(last)
