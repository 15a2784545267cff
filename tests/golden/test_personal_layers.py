"""Rounds of FedPer, LG-FedAvg and FedBN, worked out from the papers' formulas.

Every client takes one step on all its samples in each of two rounds. What it keeps is its own from then
on; the rest is the mean, by samples, of what the clients send. FedRep's rule, which trains its parts
one after another, is in ``tests/local/training/test_phases.py``.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from tests.conftest import blobs, small_net

RATE = 0.1
ROUNDS = 2
CLIENTS = 3
DATA = blobs(CLIENTS)
SIZES = tuple(len(rows) for rows in DATA.train)
# The parameters of a client, by name.
Parameters = dict[str, Tensor]


def logits(p: Parameters, x: Tensor) -> Tensor:
    """A dense layer, the normalisation of FedBN if there is one, ReLU, and the classifier."""
    hidden = x @ p["0.weight"].T + p["0.bias"]
    if "1.weight" in p:
        centred = hidden - hidden.mean(dim=0)
        scaled = centred / (centred.square().mean(dim=0) + 1e-5).sqrt()
        hidden = scaled * p["1.weight"] + p["1.bias"]
    last = max(name.split(".")[0] for name in p)
    return torch.relu(hidden) @ p[f"{last}.weight"].T + p[f"{last}.bias"]


def trained(p: Parameters, client: int) -> Parameters:
    """The parameters after a step: ``w <- w - eta grad f_i(w)``."""
    rows = torch.from_numpy(DATA.train[client])
    moving = {name: value.clone().requires_grad_() for name, value in p.items()}
    outputs = logits(moving, DATA.x[rows])
    chosen = outputs.log_softmax(dim=1)[torch.arange(len(rows)), DATA.y[rows]]
    gradients = torch.autograd.grad(-chosen.mean(), list(moving.values()))
    return {name: value - RATE * g for (name, value), g in zip(p.items(), gradients, strict=True)}


def by_hand(start: Parameters, kept: tuple[str, ...], weights: tuple[int, ...]) -> list[Parameters]:
    """What each client has after the rounds: the mean of all that is sent, and its own of the rest."""
    clients = [dict(start) for _ in range(CLIENTS)]
    for _ in range(ROUNDS):
        clients = [trained(p, i) for i, p in enumerate(clients)]
        for name in start:
            if name not in kept:
                total = sum(n * p[name] for n, p in zip(weights, clients, strict=True))
                mean = total / sum(weights)
                for p in clients:
                    p[name] = mean
    return clients


def normalised_net() -> nn.Module:
    with torch.random.fork_rng():
        torch.random.default_generator.manual_seed(1)
        return nn.Sequential(
            nn.Linear(6, 5),
            nn.BatchNorm1d(5),
            nn.ReLU(),
            nn.Linear(5, 4),
        )


@pytest.mark.parametrize(
    ("method", "net", "kept", "weights"),
    [
        (ct.fedper(), small_net(), ("2.weight", "2.bias"), SIZES),
        (ct.lg_fedavg(), small_net(), ("0.weight", "0.bias"), SIZES),
        (ct.fedbn(), normalised_net(), ("1.weight", "1.bias"), (1, 1, 1)),
    ],
    ids=["fedper", "lg_fedavg", "fedbn"],
)
def test_two_rounds(
    method: ct.Method, net: nn.Module, kept: tuple[str, ...], weights: tuple[int, ...]
) -> None:
    start = {name: p.detach().clone() for name, p in net.named_parameters()}
    result = ct.run(
        method,
        data=DATA,
        model=net,
        local=ct.Solver(epochs=1, batch_size=999, lr=RATE),
        rounds=ROUNDS,
        clients_per_round=CLIENTS,
        engine="serial",
    )
    for client, expected in enumerate(by_hand(start, kept, weights)):
        found = dict(result.model_for(client).named_parameters())
        assert set(found) == set(expected)
        for name, value in expected.items():
            torch.testing.assert_close(found[name].detach(), value, rtol=1e-4, atol=1e-6)
    # What stays is really a client's own.
    own = [result.model_for(client).get_parameter(kept[0]) for client in range(CLIENTS)]
    assert not torch.equal(own[0], own[1])
