"""The arithmetic of secure aggregation, without its cryptography: rounding to whole numbers, whose
shares bring a sum back, and what the messages weigh.

Sources: Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning (2017);
Bell et al., Secure Single-Server Aggregation with (Poly)Logarithmic Overhead (2020), SecAgg+.
"""

from __future__ import annotations

import math

import numpy as np

from coterie.core.arrays import BoolArray, FloatArray, IntArray
from coterie.core.keys import Key

# Bytes of a public key and of a share of a secret, 256 bits each (Bonawitz et al., sec. 7).
KEY_BYTES = 32
SHARE_BYTES = 32


def quantise(values: FloatArray, reach: float, levels: int, key: Key) -> IntArray:
    """Values as whole numbers from 0 to ``levels``, rounded at random so that they are right on
    average.

    A value is cut to ``[-reach, reach]``. With a step of ``2 reach / levels`` the error of each is
    less than a step, and its standard deviation at most half a step.

    Args:
        reach: largest absolute value.

    Example:
        >>> quantise(np.array([-1.0, 0.0, 2.0]), reach=1.0, levels=4, key=Key(0)).tolist()
        [0, 2, 4]
    """
    exact = (np.clip(values, -reach, reach) + reach) * (levels / (2 * reach))
    above = np.ceil(exact)
    down = key.generator().random(exact.shape) < above - exact
    whole: IntArray = above.astype(np.int64) - down
    return whole


def neighbourhoods(clients: int, shares: int, key: Key) -> BoolArray:
    """Who holds a share of whose secrets: bool ``[n, n]``, each client of its own, too.

    The clients stand in a circle in random order, and each shares with the nearest on both sides (the
    graph of SecAgg+). With as many shares as clients all share with all (Bonawitz et al.).

    Args:
        shares: of each secret, odd, or all.

    Example:
        >>> neighbourhoods(5, 3, Key(0)).sum(axis=1).tolist()
        [3, 3, 3, 3, 3]
    """
    if shares >= clients:
        return np.ones((clients, clients), bool)
    place = key.generator().permutation(clients)
    apart = np.abs(place[:, None] - place[None, :])
    near: BoolArray = np.minimum(apart, clients - apart) <= shares // 2
    return near


def recoverable(near: BoolArray, replied: BoolArray, threshold: int) -> bool:
    """Whether the masks of a sum can be taken off: of every client's secrets enough shares are with
    clients that replied.

    Args:
        threshold: shares that bring a secret back.
    """
    return bool(((near & replied).sum(axis=1) >= threshold).all())


def client_bytes(shares: int, values: int, bits: int) -> int:
    """Bytes that one client sends and receives in a round, without models and headers.

    ``2 n a_K + (5 n - 4) a_S + ceil(m b / 8)``: two public keys of each of the ``n`` clients that
    share, two shares for each of the others, sent and received, one share of each at the end, and the
    masked vector of ``m`` numbers of ``b`` bits (Bonawitz et al., sec. 7).

    Example:
        >>> client_bytes(shares=10, values=7851, bits=32)
        33516
    """
    return 2 * shares * KEY_BYTES + (5 * shares - 4) * SHARE_BYTES + math.ceil(values * bits / 8)
