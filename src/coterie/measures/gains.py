"""How much better a method serves clients than another, and how certain that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coterie.core.arrays import BoolArray, FloatArray
from coterie.headline import Headline
from coterie.math.intervals import half_width
from coterie.measures.client_table import DIGITS, ScoredClients, clients_mean, mean_over_seeds
from coterie.measures.seeds import SeedOverlap, overlap_of

MIN_GAIN = 0.005  # a gain below half a point is not worth groups

Answer = Literal["helps", "does not help", "not shown", "unknown"]
Pair = tuple[ScoredClients, ScoredClients]  # of runs with the same seed, ours first


@dataclass(frozen=True, slots=True)
class Gain:
    """How much better a method serves clients than another.

    Args:
        mean: over clients, weighted by their samples, and over seeds; positive where it is better.
        half: half the width of its 95 % interval: the larger of that over clients and that over
            seeds (Student's t both).
        overlap: what the seeds share.
        won: clients that it serves better, by their means over the seeds. If seeds have
            different clients, those of every seed are counted.
        least: a smaller gain is not worth groups.
        ours, theirs: the clients' means that are compared, of the method and of the other one.
    """

    mean: float
    half: float
    won: int
    lost: int
    clients: int
    seeds: int
    headline: Headline
    least: float = MIN_GAIN
    overlap: SeedOverlap = SeedOverlap()
    ours: float = 0.0
    theirs: float = 0.0

    @property
    def answer(self) -> Answer:
        """Whether the gain is real and large enough, cannot be, or is not known."""
        if self.mean - self.half > 0 and self.mean >= self.least:
            return "helps"
        if self.mean + self.half < self.least:
            return "does not help"
        return "not shown"

    @property
    def same(self) -> int:
        """Clients that it serves equally well."""
        return self.clients - self.won - self.lost

    @property
    def text(self) -> str:
        """The gain and its interval in the unit of the headline."""
        mean, half = self.texts
        return f"{mean} ± {half} {self.headline.step}".rstrip()

    @property
    def texts(self) -> tuple[str, str]:
        """The gain and its interval without the unit, with the decimals of the figures compared."""
        headline = self.headline.with_decimals_for([self.ours, self.theirs], DIGITS)
        return headline.short(self.mean, "+"), headline.short(self.half)

    @property
    def figures(self) -> tuple[str, str]:
        """The clients' means of the method and of the other one."""
        headline = self.headline.with_decimals_for([self.ours, self.theirs], DIGITS)
        return headline.text(self.ours), headline.text(self.theirs)


def gain_of(
    ours: FloatArray,
    theirs: FloatArray,
    samples: FloatArray,
    headline: Headline,
    overlap: SeedOverlap = SeedOverlap(),
) -> Gain | None:
    """What clients gain by one method in place of another; ``None`` if no client has both values.

    With the gain ``d`` and the test samples ``w`` of a client under a seed, the mean is ``sum w d / sum
    w``. Over clients its standard error is that of a ratio, of the sums ``sum_s w (d - mean)`` of
    each client; over seeds that of the means of the seeds, see `half_width`.

    Args:
        ours, theirs: the headline of each client, ``[seeds, N]``, NaN where it has none.
        samples: its test samples, ``[seeds, N]``.
        overlap: what the seeds share.

    Source: Cochran, Sampling Techniques, 3rd ed. (1977), section 6.4, for the ratio.

    Example:
        >>> one = np.array([[0.75, 0.5]])
        >>> gain_of(one, one - 0.25, np.array([[4.0, 2.0]]), Headline()).mean
        0.25
    """
    sign = 1.0 if headline.better == "higher" else -1.0
    gains = sign * (ours - theirs)
    known = np.isfinite(gains) & (samples > 0)
    if not known.any():
        return None
    weights = np.where(known, samples, 0.0).astype(np.float64)
    gains = np.where(known, gains, 0.0)
    mean = float((weights * gains).sum() / weights.sum())
    of_client = _by_client(weights, overlap)
    scored = of_client > 0
    residuals = _by_client(weights * (gains - mean), overlap)[scored] / of_client[scored].mean()
    by_seed = (weights * gains).sum(axis=1)[known.any(axis=1)]
    by_seed /= weights.sum(axis=1)[known.any(axis=1)]
    half = half_width(residuals)
    if len(by_seed) > 1:
        half = max(half, half_width(by_seed, overlap.reuse))
    by_client = _by_client(gains, overlap)[scored]
    level = clients_mean(np.where(known, theirs, np.nan), samples)
    least = MIN_GAIN
    if headline.better == "lower":
        # An error has no scale of its own: half a percent of what it is.
        least = MIN_GAIN * abs(level)
    return Gain(
        mean=mean,
        half=half,
        won=int((by_client > 0).sum()),
        lost=int((by_client < 0).sum()),
        clients=int(scored.sum()),
        seeds=len(by_seed),
        headline=headline,
        least=least,
        overlap=overlap,
        ours=level + sign * mean,
        theirs=level,
    )


def _by_client(values: FloatArray, overlap: SeedOverlap) -> FloatArray:
    """Sums over the seeds, unless these have other clients."""
    return values.ravel() if overlap.redrawn else values.sum(axis=0)


# --- single clients -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientGains:
    """What each client gains by one method in place of another: means over seeds, float64 ``[N]``
    each, NaN where nothing is known.

    Args:
        theirs, ours: its headline under the other method and under this one.
        half: half the width of the 95 % interval of the difference; NaN for one seed.
        few: bool ``[N]``, whether its figures rest on fewer than ten samples of a class.
    """

    theirs: FloatArray
    ours: FloatArray
    half: FloatArray
    few: BoolArray


def pairs_of_same_clients(pairs: Sequence[Pair]) -> Sequence[Pair]:
    """The pairs with the clients of the first."""
    return [pair for pair in pairs if pair[0].client_id == pairs[0][0].client_id]


def client_gains(pairs: Sequence[Pair], headline: Headline) -> ClientGains:
    """What each client of the first seed gains, over the seeds that have the same clients."""
    pairs = pairs_of_same_clients(pairs)
    values = np.array([[one.value(headline) for one in pair] for pair in pairs])
    differences = values[:, 0] - values[:, 1]
    known = np.isfinite(differences)
    # Only seeds in which both are known: so the difference of the means is the mean difference.
    ours, theirs = (mean_over_seeds(np.where(known, values[:, at], np.nan)) for at in (0, 1))
    reuse = overlap_of(one.split for one, _ in pairs).reuse
    half = np.full(len(ours), np.nan)
    for client in np.flatnonzero(known.sum(axis=0) > 1):
        half[client] = half_width(differences[known[:, client], client], reuse)
    few = np.any([one.few for pair in pairs for one in pair], axis=0)
    return ClientGains(theirs, ours, half, few)


def gain_of_runs(pairs: Sequence[Pair], headline: Headline) -> Gain | None:
    """What clients gain, as `gain_of`; ``None`` also without a pair."""
    if not pairs:
        return None
    return gain_of(
        np.stack([one.value(headline) for one, _ in pairs]),
        np.stack([other.value(headline) for _, other in pairs]),
        np.stack([one.samples.astype(np.float64) for one, _ in pairs]),
        headline,
        overlap_of(one.split for one, _ in pairs),
    )
