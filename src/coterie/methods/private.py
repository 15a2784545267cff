"""A method whose server sees noised sums of updates, where its rules allow it."""

from __future__ import annotations

from dataclasses import replace

from coterie.errors import ConfigError
from coterie.methods.algorithm import Algorithm
from coterie.methods.method import Method
from coterie.methods.override import method_of
from coterie.rules.migration import Migrating
from coterie.rules.private_sums import PrivateSums
from coterie.rules.weighing import by_size, evenly

WORKING = "fedavg, fedprox, fedavgm, fedadam, ifca"


def make_private(made: Method | Algorithm, sums: PrivateSums, name: str = "method") -> Method:
    """The method with noised sums in place of its weighted means.

    All clients of a group count the same, whatever the method's own rule of weighing says.

    Args:
        made: a method that does with sums of updates.
        sums: how they are clipped and noised.
        name: what to call it in an error.

    Raises:
        ConfigError: for a method that needs single updates.

    Example:
        >>> from coterie.algorithms import fedavg
        >>> make_private(fedavg(), PrivateSums(clip=1.0, noise=1.0, clients=20)).private.noise
        1.0
    """
    method = method_of(made)
    if method is None or not method.sums_only:
        raise ConfigError(
            f"algorithm.name: with these options its server needs single updates or statistics of "
            f"clients, got {name!r}; expected one that does with sums, as {WORKING}, or no [privacy]"
        )
    if isinstance(method.assign, Migrating):
        raise ConfigError(
            "migration.detector: what drift reveals of a client is not counted, got migration with "
            "[privacy]; expected 'none'"
        )
    _check_whole_updates(method)
    return replace(method, private=sums, weigh=evenly)


def _check_whole_updates(method: Method) -> None:
    """Refuse clients that send parts of an update, and rules that compare updates.

    Raises:
        ConfigError: naming what it is.
    """
    if method.local.upload is not None or method.local.keep is not None:
        raise ConfigError(
            "privacy: clips whole updates, got a method whose clients send a part of theirs; "
            "expected whole updates, or no [privacy]"
        )
    if method.weigh not in (by_size, evenly):
        raise ConfigError(
            "weigh: no sum in which all clients count the same, got a rule of its own; expected none "
            "with privacy"
        )
    if method.recluster is not None:
        raise ConfigError(
            "privacy: sees no single update, got a method that groups clients by their updates; "
            "expected one that does with sums, or no [privacy]"
        )
