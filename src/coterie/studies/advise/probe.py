"""What the clients' data and first updates show before any method is tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, lgamma
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.clients.clients import Clients
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.core.work import Train
from coterie.data import Population
from coterie.math.clustering import kmeans
from coterie.math.group_count import count
from coterie.math.similarity import cosine, edc_embedding
from coterie.objectives import plain

STEPS = 50
MOST_GROUPS = 8
MEMORY = 2e8  # clients times parameters that are held at once
# counts on parts of the clients, and how many clients a part has
AGAIN = 5
SHARE = 0.8
SHUFFLES = 199
MOST_SAMPLES = 200
PER_CLIENT = 20
FEATURES = 128
LEAST = 4


@dataclass(frozen=True, slots=True)
class Found:
    """The groups that first updates show.

    Args:
        ids: int64 ``[n]``, the clients that were asked and answered.
        groups: how many groups there are.
        again: how many were found in each of some parts of the clients.
        member: int64 ``[N]``, the group of each client, ``-1`` for one that did not answer.
        margin: float64 ``[N]``, how much nearer a client is to its group's direction than to the
            next: a difference of cosines; NaN for one that did not answer, and for all where there
            is one group.
    """

    ids: IntArray
    groups: int
    again: tuple[int, ...]
    member: IntArray
    margin: FloatArray

    @property
    def sure(self) -> float:
        """The share of the parts in which as many groups were found."""
        if self.again:
            return float(np.mean([m == self.groups for m in self.again]))
        return 1.0


def look(door: Clients, population: Population, start: Tensor, key: Key) -> Found:
    """Let clients take 50 steps from the same model, and count the groups among their updates.

    Args:
        door: to the clients.
        population: who holds what.
        start: ``[d]``, the model.
        key: random stream.
    """
    able = np.flatnonzero(population.sizes("train") > 0)
    room = max(2 * MOST_GROUPS, int(MEMORY // len(start)))
    asked = np.sort(key.of("asked").generator().permutation(able)[:room])
    reply = door.run(
        Train(plain, steps=STEPS), asked, start[None], np.zeros_like(asked), key=key.of("probe")
    )
    delta = torch.from_numpy(reply.fields["delta"])
    told = (delta != 0).any(dim=1)
    ids = reply.ids[told.numpy()]
    delta = delta[told]
    m = count(delta, MOST_GROUPS, key.of("count")) if len(ids) >= LEAST else 1
    again = (
        tuple(_part(delta, key.of("again").at(turn)) for turn in range(AGAIN))
        if len(ids) >= 2 * LEAST
        else ()
    )
    member = np.full(population.clients, -1)
    margin = np.full(population.clients, np.nan)
    member[ids] = 0
    if m > 1:
        member[ids], margin[ids] = _placed(delta, m, key.of("cluster"))
    return Found(ids, m, again, member, margin)


def _part(delta: Tensor, key: Key) -> int:
    n = len(delta)
    some = np.sort(key.generator().permutation(n)[: max(LEAST, int(SHARE * n))])
    return count(delta[torch.from_numpy(some)], MOST_GROUPS, key.of("count"))


def _placed(delta: Tensor, m: int, key: Key) -> tuple[IntArray, FloatArray]:
    """The group of each row, the largest first, and by how much it is nearer to its direction than
    to the next."""
    labels = kmeans(edc_embedding(delta, m), m, key)
    order = np.argsort(-np.bincount(labels, minlength=m), kind="stable")
    labels = np.argsort(order)[labels]
    centre = torch.stack(
        [delta[torch.from_numpy(labels == j)].to(torch.float64).mean(dim=0) for j in range(m)]
    )
    near = cosine(delta, centre.to(torch.float32))
    own = near[np.arange(len(labels)), labels]
    near[np.arange(len(labels)), labels] = -np.inf
    return labels, own - near.max(axis=1)


# --- in what the groups differ --------------------------------------------------------------------


def differences(population: Population, member: IntArray, key: Key) -> dict[str, Any]:
    """In what the groups differ: the mix of their labels, their inputs, or neither, by tests on
    shuffled groups.

    ``labels`` and ``inputs``: the mean squared distance of a group's mean label share, or mean
    random feature of its inputs, to that of all clients, divided by what it is when the clients are
    dealt to the groups at random. ``p_labels`` and ``p_inputs``: the share of 199 such shuffles
    (and the groups themselves) that are at least as far apart; ``None`` where there are too few
    clients for it to be below 0.01. All ``None`` with one group.
    """
    known = np.flatnonzero(member >= 0)
    if len(np.unique(member[known])) < 2:
        return {"labels": None, "inputs": None, "p_labels": None, "p_inputs": None}
    histograms = population.histograms()[known].astype(np.float64)
    share = histograms / np.maximum(histograms.sum(axis=1, keepdims=True), 1)
    found: dict[str, Any] = {}
    for name, rows in (("labels", share), ("inputs", _features(population, known, key))):
        ratio, p = _apart(rows, member[known], key.of(name))
        found |= {name: ratio, f"p_{name}": p if _dealings(member[known]) >= SHUFFLES else None}
    return found


def _features(population: Population, ids: IntArray, key: Key) -> FloatArray:
    """The mean random Fourier features of each client's inputs, ``[n, 128]``: alike only for like
    distributions.

    ``mean cos(w_j . z + b_j)`` over a client's samples (at most 200), with each value of an input
    standardised and cut at 3, and ``w_j ~ N(0, 1/d)``.

    Source: Rahimi, Recht, Random Features for Large-Scale Kernel Machines (2007).
    """
    rng = key.of("features").generator()
    held = [
        torch.from_numpy(np.sort(rng.permutation(population.train[i])[:MOST_SAMPLES])) for i in ids
    ]
    rows = [population.x[one].flatten(1).to(torch.float32) for one in held]
    some = torch.cat([one[:PER_CLIENT] for one in rows])
    middle = some.mean(dim=0)
    scale = some.std(dim=0).clamp_min(1e-6)
    w = torch.from_numpy(rng.normal(size=(len(middle), FEATURES)) / np.sqrt(len(middle))).to(
        torch.float32
    )
    b = torch.from_numpy(rng.uniform(0, 2 * np.pi, FEATURES)).to(torch.float32)
    means = [torch.cos(((one - middle) / scale).clamp(-3, 3) @ w + b).mean(dim=0) for one in rows]
    return torch.stack(means).numpy().astype(np.float64)


def _apart(rows: FloatArray, member: IntArray, key: Key) -> tuple[float, float]:
    rng = key.generator()
    rows = rows - rows.mean(axis=0)
    own = _between(rows, member)
    drawn = np.array([_between(rows, rng.permutation(member)) for _ in range(SHUFFLES)])
    return float(own / max(drawn.mean(), 1e-30)), float((1 + (drawn >= own).sum()) / (1 + SHUFFLES))


def _dealings(member: IntArray) -> float:
    """In how many ways clients can be dealt to groups of these sizes, whatever the groups are
    called.

    Example:
        >>> round(_dealings(np.array([0, 0, 1, 1])))
        3
    """
    sizes = np.unique(member, return_counts=True)[1]
    alike = np.unique(sizes, return_counts=True)[1]
    logs = lgamma(len(member) + 1) - sum(lgamma(n + 1) for n in (*sizes.tolist(), *alike.tolist()))
    return exp(min(logs, 700.0))


def _between(rows: FloatArray, member: IntArray) -> float:
    groups = np.unique(member)
    return float(
        sum((member == g).sum() * (rows[member == g].mean(axis=0) ** 2).sum() for g in groups)
        / len(rows)
    )


def in_words(differing: Mapping[str, Any]) -> str:
    """What tells the groups apart.

    Example:
        >>> in_words({"labels": 1.0, "p_labels": 0.4, "inputs": 9.0, "p_inputs": 0.005})
        'Their labels are mixed alike, their inputs differ: clients of different groups see different things.'
    """
    if differing["labels"] is None:
        return ""
    if differing["p_labels"] is None:
        return "The clients are too few to tell in what the groups differ."
    labels = differing["p_labels"] <= 0.01
    inputs = differing["p_inputs"] <= 0.01
    if labels:
        rest = "and so do their inputs" if inputs else "their inputs do not"
        return (
            f"Their label mixes differ, {rest}: clients of different groups have different classes."
        )
    if inputs:
        return "Their labels are mixed alike, their inputs differ: clients of different groups see different things."
    return "Neither label mixes nor inputs are seen to differ: the same inputs may have different labels."
