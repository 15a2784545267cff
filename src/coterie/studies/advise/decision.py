"""Which candidate is recommended, by the gains of methods, their uncertainty and their cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coterie.errors import ConfigError
from coterie.measures.gains import Gain, gain_of
from coterie.measures.seeds import SeedOverlap
from coterie.studies.advise.trials import Trial

FORCED_GROUPS = 2  # groups that are tried where one was found
EQUAL_BYTES = 1.02  # traffic within 2 % counts as the same


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


def gain(ours: Trial, theirs: Trial) -> Gain:
    """What clients gain by one method in place of another, on the same held-out samples.

    Raises:
        ConfigError: if no client has a headline of its own.
    """
    # The same samples are held out for every seed.
    overlap = SeedOverlap(fixed=len(ours.by_client) > 1)
    size = ours.sums["size"]
    found = gain_of(ours.by_client, theirs.by_client, size, ours.headline, overlap)
    if found is None:
        what = f"no client has {ours.headline.title} of its own"
        got = "held-out samples of one class in each of them"
        expected = "another task.headline"
        raise ConfigError("does-not-fit", "advise", what, found=got, allowed=expected)
    return found


def recommend(
    trials: Mapping[str, Trial], gains: Mapping[str, Gain], shifting: bool = False
) -> str | None:
    """The candidate recommended, ``None`` where none helps.

    Of those that help, within the uncertainty of the best one, it is the one that moves the fewest
    bytes. Among equals it is FlexCFL if the data shift, else the first.
    """
    helpful = [name for name, found in gains.items() if found.answer == "helps"]
    if not helpful:
        return None
    return _cheapest(helpful, trials, gains, shifting)


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
