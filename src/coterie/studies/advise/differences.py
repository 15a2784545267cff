"""In what groups of clients differ: in their labels, in their inputs, or in how inputs are labelled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.data import Population

SHUFFLES = 199  # so that p is a multiple of 1 / 200
LEVEL = 0.01
# A smaller share of the variance is no difference, however certain it is: with many clients every
# share is certain. Set on federations with known groups, see `benchmarks.blind`.
LEAST_SHARE = 0.005
SAMPLES_PER_CLIENT = 200
SAMPLES_FOR_SCALE = 20  # of each client, to standardise all
MOST_SAMPLES = 100_000  # of all clients together
FEATURES = 128
EIGHTHS = 8  # bins of targets that are numbers

WORDS = {
    "classes": "clients of different groups have different classes",
    "inputs": "clients of different groups see different inputs",
    "labels": "the same inputs have different labels in different groups",
}


@dataclass(frozen=True, slots=True)
class GroupEffect:
    """How much groups differ in one respect.

    Args:
        share: the share of the samples' variance that lies between groups, less what it is on average
            for random groups of the same sizes.
        noise: the standard deviation of that share over random groups.
        p: share of the random groups, the groups themselves included, that are at least as far apart.
    """

    share: float
    noise: float
    p: float

    @property
    def found(self) -> bool | None:
        """Whether groups differ; ``None`` where these clients cannot tell.

        Example:
            >>> GroupEffect(0.2, 0.01, 0.005).found, GroupEffect(0.001, 0.0001, 0.005).found
            (True, False)
            >>> GroupEffect(0.2, 0.1, 0.035).found is None
            True
        """
        if self.p <= LEVEL and self.share >= LEAST_SHARE:
            return True
        if self.share + 2 * self.noise < LEAST_SHARE:
            return False
        return None


@dataclass(frozen=True, slots=True)
class GroupDifferences:
    """In what groups differ; all ``None`` for one group.

    Args:
        labels: in the shares of labels, ``p(y)``.
        inputs: in random features of the inputs, ``p(x)``.
        labelling: in random features of the inputs of each class, ``p(x | y)``.
    """

    labels: GroupEffect | None = None
    inputs: GroupEffect | None = None
    labelling: GroupEffect | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """Every explanation that fits what was found: ``classes``, ``inputs`` or ``labels``."""
        if self.labels is None or self.inputs is None or self.labelling is None:
            return ()
        labels = self.labels.found
        inputs = self.inputs.found
        labelling = self.labelling.found
        fits = {
            # Other classes have other inputs, but each class has the same inputs in all groups.
            "classes": labels is not False and labelling is not True,
            # Without a difference in labels, inputs that differ need no second explanation.
            "inputs": inputs is not False and not (labels is True and labelling is False),
            "labels": labelling is not False and not (inputs is True and labels is False),
        }
        return tuple(kind for kind, possible in fits.items() if possible)


def differences(population: Population, member: IntArray, key: Key) -> GroupDifferences:
    """Test in what groups differ, by random groups of the same sizes; all ``None`` for one group."""
    ids = np.flatnonzero(member >= 0)
    groups = member[ids]
    if len(np.unique(groups)) < 2:
        return GroupDifferences()
    values, labels, owner = _samples(population, ids, key)
    indicators, cell = _label_indicators(labels, classes=population.classes)
    features = _features(values, owner, key)
    sizes = np.bincount(cell)
    means = _sums(features, cell) / np.maximum(sizes, 1)[:, None]
    # With random signs the residuals of one class do not cancel those of another, as they would
    # where groups label the same inputs differently.
    signs = key.of("signs").generator().choice([-1.0, 1.0], means.shape)
    residuals = (features - means[cell]) * signs[cell]
    # The squared length of a mean of c parts with random signs is c times smaller.
    parts = len(cell) ** 2 / float((sizes.astype(np.float64) ** 2).sum())
    return GroupDifferences(
        labels=_compare(indicators, owner, groups, key.of("labels")),
        inputs=_compare(features, owner, groups, key.of("inputs")),
        labelling=_compare(residuals, owner, groups, key.of("labelling"), parts),
    )


def _samples(
    population: Population, ids: IntArray, key: Key
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Inputs ``[n, d]``, targets ``[n, t]`` and the place in ``ids`` of the clients that hold them."""
    rng = key.of("samples").generator()
    # So that large clients do not decide alone, and all fit into memory.
    most = min(SAMPLES_PER_CLIENT, max(1, MOST_SAMPLES // len(ids)))
    # Sorted rows are read in the order of memory.
    held = [np.sort(rng.permutation(population.train[client])[:most]) for client in ids]
    rows = torch.from_numpy(np.concatenate(held))
    inputs = population.x[rows].flatten(1).to(torch.float32).numpy()
    targets = population.y[rows].double().numpy().reshape(len(rows), -1)
    return inputs, targets, np.repeat(np.arange(len(ids)), [len(one) for one in held])


def _label_indicators(targets: FloatArray, classes: int) -> tuple[FloatArray, IntArray]:
    """Which class each sample has, 0 or 1 in ``[n, c]``, and its number; of targets that are not
    classes, which eighth of all values, and that of the first target."""
    if not classes:
        # Edges by all clients together, so that a client's share of each eighth says how it differs.
        edges = np.quantile(targets, np.linspace(0, 1, EIGHTHS + 1)[1:-1], axis=0)
        columns = zip(targets.T, edges.T, strict=True)
        bins = [np.searchsorted(inner, column, side="right") for column, inner in columns]
        return np.concatenate([np.eye(EIGHTHS)[places] for places in bins], axis=1), bins[0]
    numbers = targets[:, 0].astype(np.int64)
    return np.eye(classes)[numbers], numbers


def _compare(
    values: FloatArray, owner: IntArray, groups: IntArray, key: Key, parts: float = 1.0
) -> GroupEffect:
    """The share of the variance of samples' values that lies between groups of their owners,
    compared with random groups."""
    centred = values - values.mean(axis=0)
    # Values that are all equal have no variance: 0 / 0.
    total = max(float((centred**2).sum(axis=1).mean()), 1e-30) / parts
    sums = _sums(centred, owner)
    sizes = np.bincount(owner)
    rng = key.generator()
    observed = _between(sums, sizes, groups) / total
    shuffled = np.array(
        [_between(sums, sizes, rng.permutation(groups)) / total for _ in range(SHUFFLES)]
    )
    # The observed grouping counts as one of the random ones, so p is never 0. A random grouping may
    # be the observed one, and differ in its last digits.
    p = (1 + (shuffled >= observed * (1 - 1e-9)).sum()) / (1 + SHUFFLES)
    return GroupEffect(float(observed - shuffled.mean()), float(shuffled.std()), float(p))


def _between(sums: FloatArray, sizes: IntArray, groups: IntArray) -> float:
    """Mean squared distance of a sample's group mean to the mean of all samples, which is 0."""
    total = 0.0
    for group in np.unique(groups):
        inside = groups == group
        total += float((sums[inside].sum(axis=0) ** 2).sum() / sizes[inside].sum())
    return total / float(sizes.sum())


def _sums(values: FloatArray, owner: IntArray) -> FloatArray:
    """The sum of the values of each owner, ``[owners, f]``."""
    found = np.zeros((int(owner.max()) + 1, values.shape[1]))
    np.add.at(found, owner, values)
    return found


def _features(inputs: FloatArray, owner: IntArray, key: Key) -> FloatArray:
    """Random Fourier features of inputs, ``[n, 128]``.

    ``cos(w_j . z + b_j)`` with each value of an input standardised and cut at 3, and ``w_j ~ N(0,
    1/d)``. Samples of the same distribution have the same mean features; the mean of the inputs
    alone would not show that images are turned.

    Source: Rahimi, Recht, Random Features for Large-Scale Kernel Machines (2007).
    """
    rng = key.of("features").generator()
    # A few samples of each client, so that large clients do not set the scale alone.
    starts = np.searchsorted(owner, owner)
    few = inputs[np.arange(len(owner)) - starts < SAMPLES_FOR_SCALE]
    d = inputs.shape[1]
    w = (rng.normal(size=(d, FEATURES)) / np.sqrt(d)).astype(np.float32)
    b = rng.uniform(0, 2 * np.pi, FEATURES).astype(np.float32)
    standard = (inputs - few.mean(axis=0)) / np.maximum(few.std(axis=0), 1e-6)
    # Cut at 3: a single extreme value would decide the cosine of a whole input.
    return np.cos(np.clip(standard, -3, 3) @ w + b).astype(np.float64)


def describe_differences(found: GroupDifferences, classes: bool = True) -> str:
    """In what the groups differ, as a sentence; empty if there is one group."""
    if found.labels is None:
        return ""
    words = dict(WORDS)
    if not classes:
        words |= {"classes": "clients of different groups have different values"}
    fits = [words[kind] for kind in found.kinds]
    if len(fits) == len(words):
        return "There are too few clients to tell how the groups differ."
    if not fits:
        return "No difference in labels, inputs or labelling was found between the groups."
    if len(fits) > 1:
        return f"It is not clear how the groups differ: {' or '.join(fits)}."
    return f"How the groups differ: {fits[0]}."
