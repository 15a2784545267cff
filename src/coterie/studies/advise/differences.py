"""In what groups of clients differ: in the mix of their labels, in their inputs, or in neither."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, lgamma

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.data import Population

SHUFFLES = 199  # so that p is a multiple of 1 / 200
LEVEL = 0.01
SAMPLES_PER_CLIENT = 200
SAMPLES_FOR_SCALE = 20  # of each client, to standardise all
FEATURES = 128
EIGHTHS = 8  # bins of targets that are numbers


@dataclass(frozen=True, slots=True)
class GroupDifferences:
    """How far apart groups are, compared with random groups of the same sizes.

    Args:
        labels: mean squared distance of a group's mean label shares to those of all clients,
            divided by what it is on average for random groups.
        p_labels: share of the random groups, the groups themselves included, that are at least as
            far apart. ``None`` if there are too few clients for it to be below 0.01.
        inputs: the same as `labels` of mean random features of the inputs.
        p_inputs: the same as `p_labels` for them.
    """

    labels: float | None = None
    p_labels: float | None = None
    inputs: float | None = None
    p_inputs: float | None = None


def differences(population: Population, member: IntArray, key: Key) -> GroupDifferences:
    """Test in what groups differ, by random groups of the same sizes; all ``None`` for one group."""
    known = np.flatnonzero(member >= 0)
    groups = member[known]
    if len(np.unique(groups)) < 2:
        return GroupDifferences()
    histograms = _target_counts(population)[known]
    # Shares, so that a client with many samples does not count more than one with few.
    shares = histograms / np.maximum(histograms.sum(axis=1, keepdims=True), 1)
    labels, p_labels = _compare(shares, groups, key.of("labels"))
    features = _features(population, known, key)
    inputs, p_inputs = _compare(features, groups, key.of("inputs"))
    # With fewer distinct groupings than shuffles, chance alone often repeats the true groups.
    if _groupings(groups) < SHUFFLES:
        return GroupDifferences(labels=labels, inputs=inputs)
    return GroupDifferences(labels, p_labels, inputs, p_inputs)


def _target_counts(population: Population) -> FloatArray:
    """How many training samples of each class the clients have, float64 ``[N, c]``; of targets that
    are not classes, how many in each eighth of all values."""
    if population.classes:
        return population.histograms().astype(np.float64)
    targets = population.y.double().numpy().reshape(len(population.y), -1)
    # Edges by all clients together, so that a client's share of each eighth says how it differs.
    held = targets[np.concatenate(population.train)]
    inner = np.linspace(0, 1, EIGHTHS + 1)[1:-1]
    counts = np.zeros((population.clients, targets.shape[1], EIGHTHS))
    for at in range(targets.shape[1]):
        edges = np.quantile(held[:, at], inner)
        for client, rows in enumerate(population.train):
            places = np.searchsorted(edges, targets[rows, at], side="right")
            counts[client, at] = np.bincount(places, minlength=EIGHTHS)
    return counts.reshape(population.clients, -1)


def _compare(rows: FloatArray, groups: IntArray, key: Key) -> tuple[float, float]:
    """The distance between groups relative to that of random groups, and its p-value."""
    rng = key.generator()
    centred = rows - rows.mean(axis=0)
    observed = _between(centred, groups)
    shuffled = np.array([_between(centred, rng.permutation(groups)) for _ in range(SHUFFLES)])
    # Equal rows everywhere give 0 / 0.
    ratio = observed / max(shuffled.mean(), 1e-30)
    # The observed grouping counts as one of the random ones, so p is never 0.
    p = (1 + (shuffled >= observed).sum()) / (1 + SHUFFLES)
    return float(ratio), float(p)


def _between(centred: FloatArray, groups: IntArray) -> float:
    """Mean squared distance of a row's group mean to the mean of all rows, which is 0."""
    total = 0.0
    for group in np.unique(groups):
        inside = groups == group
        total += inside.sum() * (centred[inside].mean(axis=0) ** 2).sum()
    return float(total / len(centred))


def _groupings(groups: IntArray) -> float:
    """In how many ways clients can form groups of these sizes, whatever the groups are called.

    Example:
        >>> round(_groupings(np.array([0, 0, 1, 1])))
        3
    """
    sizes = np.unique(groups, return_counts=True)[1]
    # Groups of the same size may be exchanged without another grouping.
    equal = np.unique(sizes, return_counts=True)[1]
    divisors = sum(lgamma(n + 1) for n in (*sizes.tolist(), *equal.tolist()))
    # exp(700) is near the largest float.
    return exp(min(lgamma(len(groups) + 1) - divisors, 700.0))


def _features(population: Population, ids: IntArray, key: Key) -> FloatArray:
    """The mean random Fourier features of each client's inputs, ``[n, 128]``.

    ``mean cos(w_j . z + b_j)`` over a client's samples (at most 200), with each value of an input
    standardised and cut at 3, and ``w_j ~ N(0, 1/d)``. Clients of the same input distribution have
    the same features; the mean of the inputs alone would not show that images are turned.

    Source: Rahimi, Recht, Random Features for Large-Scale Kernel Machines (2007).
    """
    rng = key.of("features").generator()
    inputs = []
    for client in ids:
        rows = np.sort(rng.permutation(population.train[client])[:SAMPLES_PER_CLIENT])
        # Sorted rows are read in the order of memory.
        inputs.append(population.x[torch.from_numpy(rows)].flatten(1).to(torch.float32))
    # A few samples of each client, so that large clients do not set the scale alone.
    few = torch.cat([one[:SAMPLES_FOR_SCALE] for one in inputs])
    mean = few.mean(dim=0)
    scale = few.std(dim=0).clamp_min(1e-6)
    d = len(mean)
    w = _float32(rng.normal(size=(d, FEATURES)) / np.sqrt(d))
    b = _float32(rng.uniform(0, 2 * np.pi, FEATURES))
    # Cut at 3: a single extreme value would decide the cosine of a whole input.
    features = [
        torch.cos(((one - mean) / scale).clamp(-3, 3) @ w + b).mean(dim=0) for one in inputs
    ]
    return torch.stack(features).numpy().astype(np.float64)


def _float32(values: FloatArray) -> Tensor:
    return torch.from_numpy(values).to(torch.float32)


def describe_differences(found: GroupDifferences, *, classes: bool = True) -> str:
    """In what the groups differ, as a sentence; empty if there is one group."""
    if found.labels is None:
        return ""
    if found.p_labels is None or found.p_inputs is None:
        return "There are too few clients to tell how the groups differ."
    labels_differ = found.p_labels <= LEVEL
    inputs_differ = found.p_inputs <= LEVEL
    inputs = "their inputs do not"
    if inputs_differ:
        inputs = "and so do their inputs"
    if labels_differ and not classes:
        return f"Their targets differ, {inputs}: clients of different groups have different values."
    if labels_differ:
        return (
            f"Their label mixes differ, {inputs}: clients of different groups have different "
            "classes."
        )
    if inputs_differ:
        return (
            "Their label mixes are similar, but their inputs differ: clients of different groups "
            "see different inputs."
        )
    return (
        "No difference in label mixes or inputs was found: the same inputs may have different "
        "labels."
    )
