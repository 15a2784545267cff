"""What releases of noised sums cost together, by Google's ``dp-accounting`` (extra ``privacy``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import Any, Literal

from coterie.errors import ConfigError, install_command

Accountant = Literal["pld", "rdp"]

# Integers: orders between 1 and 2 hardly ever give the best bound, and their series may not converge.
ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512, 1024)
# Of privacy losses. Epsilons of 2 to 40 differ from those at 0.0001 in the fifth digit, upwards.
INTERVAL = 1e-3
# Losses are of the size of one over the square of the noise. With less noise than this one the
# interval grows with them, or a distribution would fill the memory.
LITTLE_NOISE = 0.1
# Of the epsilon that the noise that is searched for may leave unspent.
UNSPENT = 0.005
LARGEST_NOISE = 1e5
# With less, the numbers of loss distributions overflow.
LEAST_NOISE = 1e-3


@dataclass(frozen=True, slots=True)
class Release:
    """Sums with Gaussian noise, over a random sample of the clients.

    Args:
        noise: standard deviation, in multiples of how far one client can move the sums.
        sampled: ``q`` where each client is in the sample with this probability, independently of the
            others (Poisson); ``(n, N)`` where it is ``n`` of ``N`` clients, without replacement.
        count: how often, each time with a new sample.

    With ``q`` the guarantee is for one client more or less, with ``(n, N)`` for one client in the
    place of another. "How far one client can move" is meant in the same sense.
    """

    noise: float
    sampled: float | tuple[int, int] = 1.0
    count: int = 1

    def event(self) -> Any:
        """The same as a record of ``dp-accounting``."""
        import dp_accounting as dp

        gaussian = dp.GaussianDpEvent(self.noise)
        if isinstance(self.sampled, tuple):
            size, population = self.sampled
            sampled = dp.SampledWithoutReplacementDpEvent(population, size, gaussian)
        else:
            sampled = dp.PoissonSampledDpEvent(self.sampled, gaussian)
        return dp.SelfComposedDpEvent(sampled, self.count)


def check_package() -> None:
    """Refuse accounting where the package is missing."""
    if find_spec("dp_accounting") is None:
        what = "the package 'dp-accounting' is not installed"
        do = f"install it with {install_command('privacy')}"
        raise ConfigError("not-installed", "privacy", what, do=do)


# Rows of a resumed run, and runs of a sweep, ask for the same figures again.
@lru_cache(maxsize=4096)
def epsilon_of(
    releases: tuple[Release, ...], delta: float, accountant: Accountant = "pld"
) -> float:
    """The ``epsilon`` of releases together: they are ``(epsilon, delta)``-differentially private.
    Infinity for a release without noise, 0 for no release.

    ``pld`` uses privacy loss distributions, which are tight, ``rdp`` Renyi divergences.
    """
    # A run that has not begun has released nothing.
    spent = [release for release in releases if release.count]
    if any(release.noise == 0 for release in spent):
        return math.inf
    if accountant == "rdp" or any(release.noise < LEAST_NOISE for release in spent):
        found = _divergences(spent)
    else:
        found = _losses(spent)
    # The bound of little noise for a small delta may be computed as slightly below zero.
    return max(0.0, float(found(delta)))


def _divergences(releases: Sequence[Release]) -> Any:
    """A function from delta to epsilon, by Renyi divergences."""
    import dp_accounting as dp

    # A cohort of a fixed size stays as large as it is when a client is exchanged, not when one is
    # added, so dp-accounting knows this sampling for the first relation alone.
    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    if any(isinstance(release.sampled, tuple) for release in releases):
        relation = dp.NeighboringRelation.REPLACE_ONE
    accountant = dp.rdp.RdpAccountant(ORDERS, relation)
    for release in releases:
        accountant.compose(release.event())
    return accountant.get_epsilon


def _losses(releases: Sequence[Release]) -> Any:
    """A function from delta to epsilon, by privacy loss distributions."""
    from dp_accounting.pld import privacy_loss_distribution as losses

    # What dp-accounting's own accountant does, but each distribution is made once for all rounds.
    least = min((release.noise for release in releases), default=LITTLE_NOISE)
    interval = INTERVAL * max(1.0, (LITTLE_NOISE / least) ** 2)
    together = losses.identity(value_discretization_interval=interval)
    for release in releases:
        once = _loss(release.noise, release.sampled, interval)
        together = together.compose(once.self_compose(release.count))
    return together.get_epsilon_for_delta


@lru_cache(maxsize=8)
def _loss(noise: float, sampled: float | tuple[int, int], interval: float) -> Any:
    """The privacy loss distribution of one release."""
    from dp_accounting.pld import privacy_loss_distribution as losses

    assert not isinstance(sampled, tuple), "dp-accounting has no such distribution"
    return losses.from_gaussian_mechanism(
        noise, value_discretization_interval=interval, sampling_prob=sampled
    )


@lru_cache(maxsize=256)
def least_noise(
    releases: tuple[Release, ...],
    epsilon: float,
    delta: float,
    accountant: Accountant = "pld",
    fixed: tuple[Release, ...] = (),
) -> float:
    """The least factor by which the noise of these releases must be multiplied so that together,
    and with the ``fixed`` ones, they cost ``epsilon`` at most; at most 0.5 % of it is left unspent.
    """

    def cost(factor: float, by: Accountant) -> float:
        scaled = tuple(replace(release, noise=factor * release.noise) for release in releases)
        return epsilon_of((*scaled, *fixed), delta, by)

    high = 1.0
    while cost(high, "rdp") > epsilon:
        high = 2 * high
        if high > LARGEST_NOISE:
            what = "no amount of noise is enough"
            expected = f"a larger epsilon, or a delta above {delta:g}"
            raise ConfigError(
                "out-of-range", "privacy.epsilon", what, got=epsilon, allowed=expected
            )
    # The bound of Renyi divergences is cheap, and hardly below that of loss distributions.
    high = _lowered(partial(cost, by="rdp"), epsilon, high)
    if accountant == "rdp":
        return high
    # It can be, by the width of an interval, where the noise is large.
    while cost(high, accountant) > epsilon:
        high = 1.01 * high
    return _lowered(partial(cost, by=accountant), epsilon, high)


def _lowered(cost: Callable[[float], float], epsilon: float, high: float) -> float:
    """A factor that costs ``epsilon``, but for what may stay unspent; ``high`` costs no more."""
    low = 0.0
    spent = cost(high)
    while spent < (1 - UNSPENT) * epsilon:
        # Epsilon falls with the noise about as a power between -1 and -2, so the root of what is
        # unspent hardly ever goes too far.
        tried = high * math.sqrt(max(spent, epsilon / 100) / epsilon)
        if tried <= low:
            tried = (low + high) / 2
        found = cost(tried)
        if found > epsilon:
            low = tried
        else:
            high = tried
            spent = found
    return high


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run spends.

    Args:
        each: the release of one round.
        before: releases before the first round, such as those of a cold start.
        repeated: rounds that were released and are done again.
    """

    each: Release
    delta: float
    accountant: Accountant
    before: tuple[Release, ...] = ()
    repeated: int = 0

    def with_repeats(self, rounds: int, starts: int) -> Budget:
        """The same where rounds, and what comes before the first, were released more than once."""
        before = tuple(replace(one, count=one.count * (1 + starts)) for one in self.before)
        return replace(self, before=before, repeated=rounds)

    def epsilon(self, rounds: int) -> float:
        """What so many rounds cost, with what was released before them."""
        spent = (*self.before, replace(self.each, count=rounds + self.repeated))
        return epsilon_of(spent, self.delta, self.accountant)
