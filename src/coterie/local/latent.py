"""Moments of what a network makes of a client's samples: FLUX's descriptor."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.describe import Describe
from coterie.core.keys import Key
from coterie.core.process import one_library_thread
from coterie.core.vectors import Layout, state_dict
from coterie.data.population import Population
from coterie.errors import ConfigError
from coterie.local.batches import convolves

# Samples that pass through the network at once.
_CHUNK = 1024
# What stands for the moments of a class of which a client has no two samples.
MISSING = -1.0


def latent_layer(module: nn.Module) -> nn.Linear:
    """The layer whose inputs are the latent representation of a sample.

    The first dense layer of a convolutional network, else the last one. A network of one dense
    layer has its inputs there.

    Raises:
        ConfigError: for a network without a dense layer.

    Example:
        >>> latent_layer(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))).in_features
        3
    """
    dense = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    if not dense:
        raise ConfigError(
            "model.name: a latent representation is what enters a dense layer, got a network "
            "without one; expected a network such as mlp, lenet5 or cnn_mnist"
        )
    if convolves(module):
        return dense[0]
    return dense[-1]


@torch.no_grad()
def latents(module: nn.Module, x: Tensor) -> FloatArray:
    """What enters the latent layer, float64 ``[n, features]``.

    Args:
        module: the network with the parameters that count, in evaluation mode.
        x: ``[n, ...]``, the inputs.
    """
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
    """Random orthonormal directions ``[features, dimensions]``, the same for every client.

    Args:
        features: of the latent representation.
        dimensions: of the projection; those beyond ``features`` are zero.
        key: only its seed counts.
    """
    found = np.zeros((features, dimensions))
    width = min(features, dimensions)
    stream = Key(key.seed).of("latent")
    gaussian = stream.generator().normal(size=(features, width))
    found[:, :width] = np.linalg.qr(gaussian)[0]
    return found


def moments(points: FloatArray, labels: IntArray, classes: int) -> FloatArray:
    """Means and standard deviations of points, of all and of each class.

    Args:
        points: ``[n, l]``, at least one.
        labels: int64 ``[n]``; not read for no classes.
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
    """``points.mean(axis=0)`` and ``points.std(axis=0)``, to the bit.

    Of the few samples of a class these two take ten times as long as their arithmetic, and a
    client has twenty of them.
    """
    n = len(points)
    mean = np.add.reduce(points, axis=0) / n
    centred = points - mean
    variance = np.add.reduce(centred * centred, axis=0) / n
    return mean, np.sqrt(variance)


class LatentMoments:
    """Reports the moments of clients' samples in the latent space of a model.

    Args:
        work: how many classes and dimensions.
        module: the network; it is copied.
        key: of the request; its seed names the projection.
    """

    def __init__(self, work: Describe, module: nn.Module, key: Key) -> None:
        self._work = work
        self._key = key
        self._layout = Layout.of(module)
        self._network = copy.deepcopy(module).eval()
        features = latent_layer(module).in_features
        self._projection = projection(features, work.vectors, key)
        self._loaded: Tensor | None = None

    def of(self, vector: Tensor, x: Tensor, y: Tensor) -> FloatArray:
        """The moments ``[2 + 2c, l]`` of some samples.

        Args:
            vector: float32 ``[d]``, the model.
            x: ``[n, ...]``, the inputs, at least one.
            y: int64 ``[n]``, their labels.
        """
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
        """The moments of clients' training samples, float32 ``[n, 2 + 2c, l]``.

        Args:
            population: who holds what.
            ids: int64 ``[n]``, the clients.
            models: float32 ``[k, d]``.
            which: int64 ``[n]`` or ``[n, 1]``, the model of each client.
        """
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
        drawn: IntArray = np.concatenate(
            [rng.permutation(held)[:half] for _ in range(self._work.draws)]
        )
        return drawn
