"""How far a number of one client may be above those of the others in its request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.core.arrays import FloatArray, IntArray

# Fewer replies are too few to tell which of them is unusual.
FEWEST = 4
# A group with fewer replies is compared with the whole request.
OWN_SCALE = 5
# Multiple of the request's median that the median of a group can be.
APART = 20.0
# From so many replies on, the spread of a request is known well enough for the lower floor.
MANY = 10
FEW = 10.0  # the floor where fewer than ten clients replied
_TO_SIGMA = 1.4826  # times the median absolute deviation: the standard deviation of a Gaussian


@dataclass(frozen=True, slots=True)
class Scale:
    """How far a positive number may be above the typical one.

    With ``l_i`` the logarithm of the number of client ``i``, ``m_i`` the median of ``l`` over its
    group (at most that of the request plus ``log 20``), and ``s`` the median of ``|l_i - m_i|``
    over the request times 1.4826, the number of the client may be ``exp(m_i) * c`` at most, with
    ``c = exp(spread * s)`` held between ``floor`` and ``ceiling``. Medians bear any values of fewer
    than half of the clients.

    Args:
        spread: how many robust standard deviations of the logarithms are allowed.
        floor: multiple of the median that is always allowed.
        few: the same where fewer than ten clients replied.
        ceiling: multiple that is never allowed.
    """

    spread: float
    floor: float = 3.0
    few: float = FEW
    ceiling: float = np.inf

    def typical(self, values: FloatArray, group: IntArray) -> FloatArray:
        """The number ``exp(m_i)`` that is typical for each client, float64 ``[n]``; infinite where
        there are too few clients to tell.

        Args:
            values: float64 ``[n]``, at least 0. A value of 0 says nothing and is left out.

        Example:
            >>> values = np.array([1.0, 2.0, 3.0, 4.0, 100.0])
            >>> Scale(spread=6.0).typical(values, np.zeros(5, np.int64)).round(6).tolist()
            [3.0, 3.0, 3.0, 3.0, 3.0]
        """
        typical = np.full(len(values), np.inf)
        known = values > 0
        if known.sum() >= FEWEST:
            typical[known] = np.exp(_medians(np.log(values[known]), group[known]))
        return typical

    def limits(self, values: FloatArray, group: IntArray) -> FloatArray:
        """The largest value that each client may have, float64 ``[n]``; infinite where there are
        too few clients to tell."""
        known = values > 0
        limits = np.full(len(values), np.inf)
        if known.sum() < FEWEST:
            return limits
        logs = np.log(values[known])
        middle = _medians(logs, group[known])
        sigma = _TO_SIGMA * _upper_median(np.abs(logs - middle))
        floor = self.floor
        if known.sum() < MANY:
            floor = self.few
        # The ceiling inside the exponential, which would else overflow.
        width = min(max(np.log(floor), self.spread * sigma), np.log(self.ceiling))
        with np.errstate(over="ignore"):
            limits[known] = np.exp(middle + width)
        return limits


def _medians(logs: FloatArray, group: IntArray) -> FloatArray:
    """The median of each client's group, or of all where the group is small, float64 ``[n]``."""
    of_all = _lower_median(logs)
    middle = np.full(len(logs), of_all)
    for j in np.unique(group):
        of_group = group == j
        if of_group.sum() >= OWN_SCALE:
            middle[of_group] = _lower_median(logs[of_group])
    # Most replies of a group may be hostile by chance, and then its median is, too.
    apart = of_all + np.log(APART)
    return np.minimum(middle, apart)


def _lower_median(values: FloatArray) -> float:
    # Of two middle values the lower one: with half of the clients hostile it is still honest.
    return float(np.sort(values)[(len(values) - 1) // 2])


def _upper_median(values: FloatArray) -> float:
    # Of two middle values the upper one, since a spread that is too small would hit the honest.
    return float(np.sort(values)[len(values) // 2])
