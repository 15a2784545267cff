"""Which candidate is recommended, by the gains of methods, their uncertainty and their cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from coterie.core.keys import Key
from coterie.headline import ACCURACY, Headline
from coterie.studies.advise.trials import Trial

MIN_GAIN = 0.005  # a gain below half a point is not worth groups
FORCED_GROUPS = 2  # groups that are tried where one was found
EQUAL_BYTES = 1.02  # traffic within 2 % counts as the same
RESAMPLES = 1000  # of the bootstrap
LEVEL = 0.95
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # seeds -> Student's t of a 95 % interval

Verdict = Literal["helps", "splits", "groups without gain", "one group"]


@dataclass(frozen=True, slots=True)
class Gain:
    """How much better a method is than another, by the task's headline.

    Args:
        mean: over all clients' samples, and over seeds; positive where it is better.
        half: half the width of its 95 % interval: the larger of that over clients (bootstrap) and
            that over seeds (Student's t).
        least: a smaller gain is not worth groups.
    """

    mean: float
    half: float
    won: int
    lost: int
    least: float = MIN_GAIN
    headline: Headline = ACCURACY


def gain(ours: Trial, theirs: Trial, key: Key) -> Gain:
    """What one method gains over another on the same held-out samples."""
    headline = ours.headline
    size = ours.sums["size"][0]
    scored = np.flatnonzero(size > 0)
    rng = key.of("bootstrap").generator()
    # Clients are drawn with replacement, each with all its samples: samples of one client
    # are not independent.
    drawn = rng.choice(scored, (RESAMPLES, len(scored)))
    times = np.stack([np.bincount(one, minlength=len(size)) for one in drawn]).astype(np.float64)
    means = ours.resampled(times) - theirs.resampled(times)
    # A drawn set may have samples of one class alone, for which some metrics are undefined.
    low, high = np.nanquantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    seeds = ours.by_seed() - theirs.by_seed()
    over_seeds = 0.0
    if len(seeds) > 1:
        # With few seeds the normal distribution's 1.96 would be far too small.
        t = T_95.get(len(seeds), 2.0)
        over_seeds = float(t * float(seeds.std(ddof=1)) / np.sqrt(len(seeds)))
    by_client = ours.by_client() - theirs.by_client()
    least = MIN_GAIN
    if headline.better == "lower":
        by_client = -by_client
        # An error has no scale of its own: half a percent of what it is.
        least = MIN_GAIN * abs(theirs.score)
    return Gain(
        mean=headline.gain(ours.score, over=theirs.score),
        half=max(float(high - low) / 2, over_seeds),
        won=int((by_client > 0).sum()),
        lost=int((by_client < 0).sum()),
        least=least,
        headline=headline,
    )


def trial_options(name: str, groups: int, clients: int) -> dict[str, Any]:
    """The options with which a candidate is tried: as many groups as were found, or two if one.

    Example:
        >>> trial_options("fedgroup", 3, 60), trial_options("ifca", 1, 60)
        ({'groups': 3, 'alpha': 20}, {'groups': 2})
        >>> trial_options("fedclust", 3, 60)
        {}
    """
    if name == "fedclust":
        # FedClust finds the number by its threshold. Where there is one group it would not split.
        if groups > 1:
            return {}
        return {"groups": FORCED_GROUPS}
    tried = min(max(groups, FORCED_GROUPS), clients)
    if name in ("ifca", "clove", "cornflqs"):
        return {"groups": tried}
    # The cold start asks alpha clients for each group, and there may be few.
    return {"groups": tried, "alpha": max(1, min(20, clients // tried))}


def decide(
    groups: int, trials: Mapping[str, Trial], gains: Mapping[str, Gain], shifting: bool = False
) -> tuple[Verdict, str | None]:
    """The verdict, and the candidate recommended, if any.

    A candidate helps if its gain is above zero by more than its uncertainty, and at least half a
    point, or half a percent of an error. Of those within the uncertainty of the best one, the one
    that moves the fewest bytes is recommended. Among equals it is FlexCFL if the data shift, else
    the first.

    Returns:
        ``helps``: there are groups, and a candidate helps. ``splits``: there are none, yet a split
        helps. ``groups without gain``: there are groups, but no candidate helps. ``one group``:
        there are none, and no split helps.
    """
    # A method that ended with one group gained by something else than groups.
    helpful = [
        name
        for name, found in gains.items()
        if found.mean - found.half > 0 and found.mean >= found.least and trials[name].groups > 1
    ]
    if not helpful:
        if groups > 1:
            return "groups without gain", None
        return "one group", None
    verdict: Verdict = "splits"
    if groups > 1:
        verdict = "helps"
    return verdict, _cheapest(helpful, trials, gains, shifting)


def _cheapest(
    helpful: list[str], trials: Mapping[str, Trial], gains: Mapping[str, Gain], shifting: bool
) -> str:
    """The candidate that moves the fewest bytes, among those as good as the best one."""
    best = gains[max(helpful, key=lambda name: gains[name].mean)]
    # Within the uncertainty of the best one it would be chance to prefer it.
    as_good = [name for name in helpful if gains[name].mean >= best.mean - best.half]
    # FlexCFL moves more bytes than FedGroup, but it alone follows clients whose data change.
    if shifting and "flexcfl" in as_good:
        return "flexcfl"
    least = min(_bytes_of(trials[name]) for name in as_good)
    return next(name for name in as_good if _bytes_of(trials[name]) <= EQUAL_BYTES * least)


def _bytes_of(trial: Trial) -> float:
    if not trial.rows:
        return 0.0
    return trial.cost(len(trial.rows))["bytes"]
