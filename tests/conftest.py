"""Small federations that tests share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from torch import nn

from coterie.clients.clients import Clients
from coterie.clients.round import Round
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.data.population import Population

settings.register_profile("coterie", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("coterie")


def blobs(
    clients: int = 12, groups: int = 2, size: int = 24, classes: int = 4, seed: int = 0
) -> Population:
    """A planted federation: clients of group ``g`` see the same inputs with labels shifted by
    ``g``."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, 6)) * 2
    x = []
    y = []
    train = []
    test = []
    planted = np.arange(clients) % groups
    for i in range(clients):
        n = size + int(rng.integers(0, size))
        truth = rng.integers(classes, size=n)
        start = sum(len(part) for part in y)
        x.append(centres[truth] + rng.normal(size=(n, 6)))
        y.append((truth + planted[i]) % classes)
        index = start + rng.permutation(n)
        train.append(index[: n * 3 // 4])
        test.append(index[n * 3 // 4 :])
    return Population(
        torch.tensor(np.concatenate(x), dtype=torch.float32),
        torch.tensor(np.concatenate(y)),
        tuple(train),
        tuple(test),
        classes,
        planted=planted,
    )


def small_net(classes: int = 4) -> nn.Module:
    torch_state = torch.random.get_rng_state()
    torch.random.default_generator.manual_seed(5)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, classes))
    torch.random.set_rng_state(torch_state)
    return net


@pytest.fixture(scope="session")
def population() -> Population:
    return blobs()


@pytest.fixture
def net() -> nn.Module:
    return small_net()


def round_of(clients: Clients, cohort: Any, key: Key) -> Round:
    """The round of a key, as the loop makes it for a method's step."""
    return Round(key.round, key, np.asarray(cohort, np.int64), clients)


def same_memory(one: Groups, other: Groups) -> bool:
    """Whether the rules remember the same, to the bit."""
    mine = one.memory.tensors()
    theirs = other.memory.tensors()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[n], theirs[n]) for n in mine)


def no_round() -> Round:
    """A round that reaches no client, for rules that only compute."""
    return round_of(Clients(None), [], Key(3).at(0))  # type: ignore[arg-type]
