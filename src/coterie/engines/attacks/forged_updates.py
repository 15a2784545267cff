"""Attacks by what is sent: attackers train honestly, and send a forged update.

Each function makes an `Attack` with a ``forge`` (see `Forge`), which
`coterie.engines.attacks.attack` calls with the updates of a request. ``delta_i`` is the update that
client ``i`` would send honestly. Attacks by changed training data are in
`coterie.engines.attacks.changed_data`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from coterie.config.arguments import validated
from coterie.core import FloatArray, Key
from coterie.core.startup import starting_up
from coterie.engines.attacks.attack import Attack, Factor, Ids, Share


@validated
def sign_flip(share: Share = 0.2, clients: Ids = None, factor: Factor = 1.0) -> Attack:
    """Attackers send ``-factor * delta_i``, their update in the opposite direction.

    Args:
        share: share of the clients that attack.
        clients: the numbers of the attackers, in place of a share.
        factor: factor by which the update is multiplied.

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
        share: share of the clients that attack.
        clients: the numbers of the attackers, in place of a share.
        factor: how much longer the update becomes; ``1e14`` is nearly the largest number that the
            validation of replies accepts.

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
        share: share of the clients that attack.
        clients: the numbers of the attackers, in place of a share.
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
        # Clients that share no part of the model send updates of no values.
        length = np.linalg.norm(own, axis=1, keepdims=True) / np.sqrt(max(1, own.shape[1]))
        return own + factor * length * drawn

    return Attack(share, clients, forge)


@validated
def alie(
    share: Share = 0.2, clients: Ids = None, z: Annotated[float, Field(gt=0)] | None = None
) -> Attack:
    """ALIE, "a little is enough": attackers send ``mu - z sigma``, coordinate by coordinate.

    ``mu`` and ``sigma`` are the mean and the standard deviation of the honest updates for the same
    model. The update is far from the mean, but not farther than many honest ones.

    Args:
        share: share of the clients that attack.
        clients: the numbers of the attackers, in place of a share.
        z: number of standard deviations; ``None``: as in the paper, for ``n`` updates with ``m``
            attackers, the largest ``z`` with ``Phi(z) < (n - m - s) / (n - m)``,
            ``s = floor(n / 2 + 1) - m``.

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
    # Phi and its inverse. `scipy.stats` has them too, but takes a second to import, in each process.
    with starting_up():
        from scipy.special import ndtr, ndtri

    supporters = (attackers + honest) // 2 + 1 - attackers
    below = min((honest - supporters) / honest, float(ndtr(3.0)))
    return max(0.0, float(ndtri(below)))


@validated
def ipm(share: Share = 0.2, clients: Ids = None, factor: Factor = 0.5) -> Attack:
    """Inner product manipulation: attackers send ``-factor * mu``.

    ``mu`` is the mean of the honest updates for the same model. The sum of all updates then has a
    smaller or a negative inner product with ``mu``.

    Args:
        share: share of the clients that attack.
        clients: the numbers of the attackers, in place of a share.
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
