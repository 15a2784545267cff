"""A method with asynchronous rounds, where its rules allow it."""

from __future__ import annotations

from dataclasses import replace

from coterie.core.own_model import SendsBeside
from coterie.errors import ConfigError
from coterie.methods.algorithm import Algorithm
from coterie.methods.method import Method
from coterie.methods.override import method_of
from coterie.rules.buffering import Buffering
from coterie.rules.combining import mean


def make_asynchronous(made: Method | Algorithm, rule: Buffering, name: str = "method") -> Method:
    """The method with asynchronous rounds.

    Args:
        made: a method.
        rule: when models move, and how much old updates count.
        name: what to call the method in an error.

    Raises:
        ConfigError: for a method whose rules need all replies of a round together.

    Example:
        >>> from coterie.algorithms import fedgroup
        >>> make_asynchronous(fedgroup(), Buffering(buffer=5)).asynchronous.buffer
        5
    """
    method = method_of(made)
    why = _why_not(method)
    if method is None or why is not None:
        expected = "one that does without, as fedavg, fedgroup or ifca, or no [asynchronous]"
        raise ConfigError(f"algorithm.name: {why}, got {name!r}; expected {expected}")
    return replace(method, asynchronous=rule)


def _why_not(method: Method | None) -> str | None:
    """Why a method needs rounds that wait for their clients."""
    if method is None:
        return "has a step of its own"
    reasons = {
        "regroups the replies of a round": method.recluster is not None,
        "its clients train several models": method.local.mixture,
        "moves a vector beside the model by the replies of a round": isinstance(
            method.local.own_model, SendsBeside
        ),
        "samples its clients itself": method.samples_cohort,
        "all data are in one place": method.pools_data,
        "its server sees sums of a round alone": method.aggregate.sums
        and method.aggregate != mean(),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
