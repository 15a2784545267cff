"""Statistics of clients' inputs: k-means centres (k-FED), subspaces (PACFL), and moments of what a
network makes of them (FLUX).
"""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coterie.core import Describe, FloatArray, IntArray, Key, Layout, one_library_thread, state_dict
from coterie.core.startup import starting_up
from coterie.data.population import Population
from coterie.errors import ConfigError
from coterie.local.training.batches import convolves
from coterie.math.clustering import kmeans


def centres(population: Population, ids: IntArray, count: int, key: Key) -> NDArray[np.float32]:
    """The k-means centres of some clients' raw inputs, and the share of samples that each stands
    for, in the last column of ``[n, k', features + 1]``. Centres that a client has too few samples
    for are zero.

    Source: Dennis, Li, Smith, Heterogeneity for the Win (2021), Alg. 1.
    """
    features = math.prod(population.shape)
    found = np.zeros((len(ids), count, features + 1), np.float32)
    for out, client in zip(found, ids.tolist(), strict=True):
        held = torch.from_numpy(population.train[client])
        x = population.x[held].reshape(len(held), features).numpy()
        out[:] = centres_of(x, count, key.client(client))
    return found


def centres_of(samples: NDArray[np.float32], count: int, key: Key) -> NDArray[np.float32]:
    """The centres of some samples ``[n, features]``, see `centres`.

    Example:
        >>> centres_of(np.array([[1.0, 4.0], [3.0, 0.0]], np.float32), 1, Key(0)).tolist()
        [[2.0, 2.0, 1.0]]
    """
    x = samples.astype(np.float64)
    features = x.shape[1]
    found = np.zeros((count, features + 1), np.float32)
    m = min(count, len(x))
    labels = np.zeros(len(x), np.int64)
    if m > 1:
        labels = kmeans(x, m, key)
    for j in range(m):
        found[j, :features] = x[labels == j].mean(axis=0)
        found[j, features] = (labels == j).mean()
    return found


_RANK = 1e-10  # of the largest eigenvalue; below it an eigenvalue is rounding


def leading(samples: FloatArray, p: int) -> FloatArray:
    """The first ``p`` left singular vectors ``[features, p]`` of ``D = samples^T``, from the
    smaller of its two Gram matrices.

    With ``n < features``: ``D^T D = V S^2 V^T`` and ``U = D V S^{-1}``. LAPACK leaves the sign of a
    singular vector open; here the components of each add up to a positive number. Beyond the rank
    the columns are zero.
    """
    with starting_up():
        from scipy.linalg import eigh

    # A Gram matrix has the squares of the singular values: in float32 those below 3e-4 of the
    # largest would be rounding.
    rows = np.asarray(samples, np.float64)
    n, features = rows.shape
    found = np.zeros((features, p))
    tall = n < features
    # The smaller Gram matrix has the same eigenvalues but for zeros, and costs less.
    if tall:
        gram = rows @ rows.T
    else:
        gram = rows.T @ rows
    size = len(gram)
    keep = min(p, n, features)
    if keep == 0:
        return found
    values, vectors = eigh(gram, subset_by_index=[size - keep, size - 1])
    # Eigenvalues come in ascending order, singular vectors are wanted with the largest first.
    values = values[::-1]
    vectors = vectors[:, ::-1]
    rank = int((values > _RANK * max(values[0], np.finfo(np.float64).tiny)).sum())
    basis = vectors[:, :rank]
    if tall:  # the eigenvectors are V then, and U = D V S^{-1}
        basis = rows.T @ basis / np.sqrt(values[:rank])
    # One sign for all machines: a principal angle does not depend on it, a checkpoint does.
    found[:, :rank] = basis * np.where(basis.sum(axis=0) < 0, -1.0, 1.0)
    return found


def subspaces(population: Population, ids: IntArray, vectors: int) -> NDArray[np.float32]:
    """The data subspaces of some clients' raw inputs, float32 ``[n, features, p * c]``. The columns
    of class ``j`` are ``j p .. (j + 1) p - 1``, zero where the client holds none of it, or fewer
    than ``p`` independent samples.

    Source: Vahidian et al., PACFL (2023), Alg. 1.
    """
    features = math.prod(population.shape)
    found = np.zeros((len(ids), features, vectors * population.classes), np.float32)
    with one_library_thread():
        for out, client in zip(found, ids.tolist(), strict=True):
            held = torch.from_numpy(population.train[client])
            x = population.x[held].reshape(len(held), features).numpy()
            labels = population.y[held].numpy()
            for j in np.unique(labels):
                out[:, j * vectors : (j + 1) * vectors] = leading(x[labels == j], vectors)
    return found


# Samples that pass through the network at once.
_CHUNK = 1024
# What stands for the moments of a class of which a client has no two samples.
MISSING = -1.0


def latent_layer(module: nn.Module) -> nn.Linear:
    """The layer whose inputs are the latent representation of a sample.

    The first dense layer of a convolutional network, else the last one. A network of one dense
    layer has its inputs there.

    Example:
        >>> latent_layer(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))).in_features
        3
    """
    dense = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    if not dense:
        what = "the method needs a latent representation, which is the input of a dense layer"
        got = "the network has no dense layer"
        expected = "a network such as mlp, lenet5 or cnn_mnist"
        raise ConfigError("does-not-fit", "model.name", what, found=got, allowed=expected)
    if convolves(module):
        return dense[0]
    return dense[-1]


@torch.no_grad()
def latents(module: nn.Module, x: Tensor) -> FloatArray:
    """What enters the latent layer, float64 ``[n, features]``."""
    entered: list[Tensor] = []
    hook = latent_layer(module).register_forward_pre_hook(
        lambda _, inputs: entered.append(inputs[0].flatten(1))
    )
    try:
        for part in x.split(_CHUNK):
            module(part)
    finally:
        hook.remove()
    return torch.cat(entered).to(torch.float64).numpy()


def projection(features: int, dimensions: int, key: Key) -> FloatArray:
    """Random orthonormal directions ``[features, dimensions]``, the same for every client; those
    beyond ``features`` are zero. Of the key only the seed counts."""
    found = np.zeros((features, dimensions))
    width = min(features, dimensions)
    stream = Key(key.seed).of("latent")
    gaussian = stream.generator().normal(size=(features, width))
    found[:, :width] = np.linalg.qr(gaussian)[0]
    return found


def moments(points: FloatArray, labels: IntArray, classes: int) -> FloatArray:
    """Means and standard deviations of points, of all and of each class.

    Args:
        classes: ``c``; 0 for points without labels.

    Returns:
        float64 ``[2 + 2c, l]``: the mean, the standard deviation, the means of the classes, their
        standard deviations. A class with fewer than two samples has -1 for all of them.

    Source: Fenoglio et al., FLUX (2025), and its reference code.

    Example:
        >>> moments(np.array([[0.0], [2.0], [7.0]]), np.array([0, 0, 1]), 2).ravel().round(1).tolist()
        [3.0, 2.9, 1.0, -1.0, 1.0, -1.0]
    """
    found = np.full((2 + 2 * classes, points.shape[1]), MISSING)
    found[0], found[1] = _mean_and_deviation(points)
    for label in range(classes):
        own = points[labels == label]
        if len(own) > 1:
            found[2 + label], found[2 + classes + label] = _mean_and_deviation(own)
    return found


def _mean_and_deviation(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """``points.mean(axis=0)`` and ``points.std(axis=0)``, to the bit. For the few samples of a
    class these two take ten times as long as their arithmetic, twenty times per client."""
    n = len(points)
    mean = np.add.reduce(points, axis=0) / n
    centred = points - mean
    variance = np.add.reduce(centred * centred, axis=0) / n
    return mean, np.sqrt(variance)


class LatentMoments:
    """Reports the moments of clients' samples in the latent space of a model."""

    def __init__(self, work: Describe, module: nn.Module, key: Key) -> None:
        self._work = work
        self._key = key
        self._layout = Layout.of(module)
        self._network = copy.deepcopy(module).eval()
        features = latent_layer(module).in_features
        self._projection = projection(features, work.vectors, key)
        self._loaded: Tensor | None = None

    def of(self, vector: Tensor, x: Tensor, y: Tensor) -> FloatArray:
        """The moments ``[2 + 2c, l]`` of some samples."""
        # All clients of a request are sent the same model more often than not.
        if self._loaded is None or not torch.equal(self._loaded, vector):
            self._network.load_state_dict(state_dict(self._layout, vector), strict=False)
            self._loaded = vector.clone()
        with one_library_thread():
            points = latents(self._network, x) @ self._projection
        return moments(points, y.numpy(), self._work.classes)

    def of_clients(
        self, population: Population, ids: IntArray, models: Tensor, which: IntArray
    ) -> NDArray[np.float32]:
        """The moments of clients' training samples, float32 ``[n, 2 + 2c, l]``."""
        shape = (2 + 2 * self._work.classes, self._work.vectors)
        found = np.zeros((len(ids), *shape), np.float32)
        for out, client, row in zip(found, ids.tolist(), which.reshape(len(ids)), strict=True):
            held = torch.from_numpy(self._drawn(population.train[client], client))
            out[:] = self.of(models[int(row)], population.x[held], population.y[held])
        return found

    def _drawn(self, held: IntArray, client: int) -> IntArray:
        """The samples that are described: all of them, or random halves, one after another."""
        if not self._work.draws:
            return held
        rng = self._key.of("halves").client(client).generator()
        half = (len(held) + 1) // 2
        halves = [rng.permutation(held)[:half] for _ in range(self._work.draws)]
        return np.concatenate(halves)
