"""Attacks that a simulation can try on a method, `ATTACKS` by name.

An attack says which clients are attackers, what they do to their data before the run, and what they
send in place of their update. `coterie.engines.attacking` carries it out around any engine. With
``delta_i`` the update that client ``i`` would send honestly, attackers send ``g(delta)`` of one of
the functions below. All attackers of a request work together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Protocol

import numpy as np
import torch
from pydantic import Field
from scipy.stats import norm
from torch import Tensor

from coterie.config.arguments import validated
from coterie.config.problems import Problem, refuse
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key

Share = Annotated[float, Field(ge=0, le=1)]
Ids = tuple[Annotated[int, Field(ge=0)], ...] | None
# Larger numbers are refused by the validation of replies, whatever the defences.
Factor = Annotated[float, Field(gt=0, le=1e14)]
Class = Annotated[int, Field(ge=0)]


class Forge(Protocol):
    """What attackers send in place of their updates."""

    def __call__(self, own: FloatArray, honest: FloatArray, keys: Sequence[Key]) -> FloatArray:
        """Forged updates, float64 ``[a, d]``.

        Args:
            own: float64 ``[a, d]``, what they would send honestly.
            honest: float64 ``[h, d]``, the updates of the honest clients that trained the same
                model in the same request; attackers are assumed to know them.
            keys: ``a`` random streams, one for each attacker.
        """
        ...


# Inputs and labels of an attacker's training samples -> those that it trains on.
Poison = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class Attack:
    """Who attacks, and how.

    Args:
        share: of the clients that attack, rounded to the nearest number of clients.
        clients: their numbers in place of a share.
        forge: what they send in place of their updates; ``None``: what they have trained.
        poison: what they do to their training samples, with the number of classes as its third
            argument; ``None``: nothing.
        colludes: all of them hold the training data of one honest client, so that a method puts
            them into the same group.
    """

    share: float = 0.2
    clients: tuple[int, ...] | None = None
    forge: Forge | None = None
    poison: Poison | None = None
    colludes: bool = False

    def attackers(self, able: IntArray, population: int, key: Key) -> IntArray:
        """The clients that attack, int64, ascending.

        Every attack with the same seed and share has the same attackers, and a larger share has
        those of a smaller one among them.

        Args:
            able: int64, the clients with training samples.
            population: number of clients ``N``.
            key: of the run.

        Raises:
            ConfigError: for clients that are not there.
        """
        if self.clients is not None:
            if self.clients and max(self.clients) >= population:
                expected = f"numbers up to {population - 1}"
                refuse(Problem("attack.clients", "no such client", max(self.clients), expected))
            return np.unique(np.array(self.clients, np.int64))
        order = key.of("attackers").generator().permutation(able)
        return np.sort(order[: round(self.share * len(able))])

    @property
    def changes_data(self) -> bool:
        """Whether attackers train on other data than they hold."""
        return self.colludes or self.poison is not None


@validated
def sign_flip(share: Share = 0.2, clients: Ids = None, factor: Factor = 1.0) -> Attack:
    """Attackers send ``-factor * delta_i``, their update in the opposite direction.

    Args:
        share: of the clients that attack.
        clients: their numbers in place of a share.
        factor: how much longer the update becomes.

    Source: Li et al., RSA: Byzantine-Robust Stochastic Aggregation Methods (2019).

    Example:
        >>> one = np.ones((1, 2))
        >>> sign_flip(factor=10.0).forge(one, one, [Key(0)]).tolist()
        [[-10.0, -10.0]]
    """
    return Attack(share, clients, lambda own, honest, keys: -factor * own)


@validated
def scaling(share: Share = 0.2, clients: Ids = None, factor: Factor = 100.0) -> Attack:
    """Attackers send ``factor * delta_i``, their update in its own direction.

    Args:
        share: of the clients that attack.
        clients: their numbers in place of a share.
        factor: how much longer the update becomes; ``1e14`` is nearly the largest number that the
            validation of replies lets pass.

    Source: Bagdasaryan et al., How To Backdoor Federated Learning (2020), model replacement.

    Example:
        >>> one = np.ones((1, 2))
        >>> scaling(factor=100.0).forge(one, one, [Key(0)]).tolist()
        [[100.0, 100.0]]
    """
    return Attack(share, clients, lambda own, honest, keys: factor * own)


@validated
def noise(share: Share = 0.2, clients: Ids = None, factor: Factor = 1.0) -> Attack:
    """Attackers send ``delta_i + z`` with Gaussian ``z`` of the length ``factor * |delta_i|``.

    Args:
        share: of the clients that attack.
        clients: their numbers in place of a share.
        factor: the expected length of the noise, as a multiple of the update's.

    Source: Li et al., RSA: Byzantine-Robust Stochastic Aggregation Methods (2019).

    Example:
        >>> own = np.ones((1, 400))
        >>> sent = noise(factor=3.0).forge(own, own, [Key(0)])
        >>> round(float(np.linalg.norm(sent - own) / np.linalg.norm(own)))
        3
    """

    def forge(own: FloatArray, honest: FloatArray, keys: Sequence[Key]) -> FloatArray:
        drawn = np.stack([key.generator().standard_normal(own.shape[1]) for key in keys])
        length = np.linalg.norm(own, axis=1, keepdims=True) / np.sqrt(own.shape[1])
        return own + factor * length * drawn

    return Attack(share, clients, forge)


@validated
def label_flip(share: Share = 0.2, clients: Ids = None) -> Attack:
    """Attackers train on the labels ``c - 1 - y`` in place of ``y``, of ``c`` classes.

    Args:
        share: of the clients that attack.
        clients: their numbers in place of a share.

    Source: Fung et al., The Limitations of Federated Learning in Sybil Settings (2020); the
    permutation of all labels is that of Karimireddy et al., Learning from History (2021).

    Example:
        >>> label_flip().poison(torch.zeros(3, 1), torch.tensor([0, 1, 9]), 10)[1].tolist()
        [9, 8, 0]
    """
    return Attack(share, clients, poison=lambda x, y, classes: (x, classes - 1 - y))


@validated
def alie(
    share: Share = 0.2, clients: Ids = None, z: Annotated[float, Field(gt=0)] | None = None
) -> Attack:
    """ALIE, "a little is enough": attackers send ``mu - z sigma``, coordinate by coordinate.

    ``mu`` and ``sigma`` are the mean and the standard deviation of the honest updates for the same
    model. The update is far from the mean, but not farther than many honest ones.

    Args:
        share: of the clients that attack.
        clients: their numbers in place of a share.
        z: how far; ``None``: as in the paper, of ``n`` updates with ``m`` attackers the largest
            ``z`` with ``Phi(z) < (n - m - s) / (n - m)``, ``s = floor(n / 2 + 1) - m``.

    Source: Baruch et al., A Little Is Enough: Circumventing Defenses For Distributed Learning
    (2019), Alg. 3. The attackers of the paper estimate ``mu`` and ``sigma`` from their own data.

    Example:
        >>> honest = np.array([[0.0], [2.0]])
        >>> alie(z=1.0).forge(honest[:1], honest, [Key(0)]).tolist()
        [[0.0]]
    """

    def forge(own: FloatArray, honest: FloatArray, keys: Sequence[Key]) -> FloatArray:
        distance = _largest_z(len(own), len(honest)) if z is None else z
        sent = honest.mean(axis=0) - distance * honest.std(axis=0)
        return np.tile(sent, (len(own), 1))

    return Attack(share, clients, forge)


def _largest_z(attackers: int, honest: int) -> float:
    """``z_max`` of ALIE; at least 0, and at most 3 where the attackers are the majority."""
    supporters = (attackers + honest) // 2 + 1 - attackers
    below = min((honest - supporters) / honest, float(norm.cdf(3.0)))
    return max(0.0, float(norm.ppf(below)))


@validated
def ipm(share: Share = 0.2, clients: Ids = None, factor: Factor = 0.5) -> Attack:
    """Inner product manipulation: attackers send ``-factor * mu``.

    ``mu`` is the mean of the honest updates for the same model. The sum of all updates then has a
    smaller or a negative inner product with ``mu``.

    Args:
        share: of the clients that attack.
        clients: their numbers in place of a share.
        factor: ``epsilon`` in the paper.

    Source: Xie et al., Fall of Empires: Breaking Byzantine-Tolerant SGD by Inner Product
    Manipulation (2020).

    Example:
        >>> honest = np.array([[1.0], [3.0]])
        >>> ipm().forge(honest[:1], honest, [Key(0)]).tolist()
        [[-1.0]]
    """

    def forge(own: FloatArray, honest: FloatArray, keys: Sequence[Key]) -> FloatArray:
        return np.tile(-factor * honest.mean(axis=0), (len(own), 1))

    return Attack(share, clients, forge)


@validated
def backdoor(
    share: Share = 0.2,
    clients: Ids = None,
    target: Class = 0,
    poisoned: Share = 0.5,
    factor: Factor = 1.0,
) -> Attack:
    """Attackers teach the model to answer ``target`` wherever it sees a small pattern.

    They put the pattern (`triggered`) on a share of their training samples, label these with
    ``target``, and send ``factor * delta_i``.

    Args:
        share: of the clients that attack.
        clients: their numbers in place of a share.
        target: the class that the pattern shall stand for.
        poisoned: the share of an attacker's samples that have the pattern.
        factor: how much longer the update becomes.

    Source: Gu et al., BadNets (2017), the pattern; Bagdasaryan et al., How To Backdoor Federated
    Learning (2020).

    Example:
        >>> x, y = backdoor(target=7).poison(torch.zeros(2, 1, 8, 8), torch.tensor([1, 2]), 10)
        >>> y.tolist()
        [7, 2]
    """

    def poison(x: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        if target >= classes:
            refuse(Problem("attack.target", "no such class", target, f"at most {classes - 1}"))
        count = round(poisoned * len(x))
        labels = torch.cat([torch.full_like(y[:count], target), y[count:]])
        return torch.cat([triggered(x[:count]), x[count:]]), labels

    return Attack(share, clients, lambda own, honest, keys: factor * own, poison)


def triggered(x: Tensor) -> Tensor:
    """The inputs with the pattern of `backdoor`: the first three values of the first three rows of
    an image, or the first three of anything else, are the largest value.

    To measure a backdoor, count how often a model answers ``target`` for such inputs.

    Args:
        x: ``[n, ...]``.

    Example:
        >>> image = torch.eye(8)[None, None]
        >>> int(triggered(image).sum())
        14
        >>> triggered(torch.tensor([[0.0, 0.5, 0.0, 1.0]])).tolist()
        [[1.0, 1.0, 1.0, 1.0]]
    """
    marked = x.clone()
    if not marked.numel():
        return marked
    largest = marked.max()
    if marked.ndim >= 4:
        marked[..., :3, :3] = largest
    else:
        marked[..., :3] = largest
    return marked


@validated
def collusion(share: Share = 0.2, clients: Ids = None, factor: Factor = 1.0) -> Attack:
    """All attackers get into the same group, and send ``-factor * delta_i`` there.

    They train on the data of one honest client, the one with the lowest number. While a method
    places them, in a cold start or by a signature, they answer as that client would. Later they
    flip the sign of their updates.

    Args:
        share: of the clients that attack.
        clients: their numbers in place of a share.
        factor: how much longer the update becomes.

    Source: Coterie. An attack on the groups themselves; the copied client is that of "mimic" in
    Karimireddy et al., Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing (2022).

    Example:
        >>> collusion(share=0.1).colludes
        True
    """
    return Attack(share, clients, lambda own, honest, keys: -factor * own, colludes=True)


ATTACKS: Mapping[str, Callable[..., Attack]] = MappingProxyType(
    {
        "sign_flip": sign_flip,
        "scaling": scaling,
        "noise": noise,
        "label_flip": label_flip,
        "alie": alie,
        "ipm": ipm,
        "backdoor": backdoor,
        "collusion": collusion,
    }
)
