"""What a centrally fitted logistic regression reaches on a draw of Synthetic(1,1)."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.synthetic_draws import DATA_SEEDS, config_of, reached
from coterie.data.population import Population


def opposites() -> Population:
    """Two clients that label the same inputs the other way round, and one with a single class."""
    side = torch.tensor([[-1.0], [1.0]]).repeat(10, 1)
    label = torch.tensor([0, 1]).repeat(10)
    one_class = torch.zeros(20, dtype=torch.int64)
    x = torch.cat([side, side, side])
    y = torch.cat([label, 1 - label, one_class])
    train = tuple(np.arange(start, start + 16) for start in (0, 20, 40))
    test = tuple(np.arange(start + 16, start + 20) for start in (0, 20, 40))
    return Population(x, y, train, test, classes=2)


def test_clients_that_contradict_each_other_need_models_of_their_own() -> None:
    population = opposites()
    # One model can please one of the first two clients, and the third.
    assert reached(population, np.array([0, 0, 0]), l2=0.001) < 70
    assert reached(population, np.array([0, 1, 2]), l2=0.001) == 100


def test_the_configuration_is_the_papers_line_with_another_draw() -> None:
    config = config_of(DATA_SEEDS[1])
    assert (config.data.seed, config.algorithm.name, config.local.l2) == (2205, "flexcfl", 0.001)
