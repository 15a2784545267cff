"""A method whose server sees noised sums of updates, where its rules allow it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from coterie.config.participation_table import NOT_PRIVATE
from coterie.core.own_model import SendsBeside
from coterie.errors import ConfigError
from coterie.methods.algorithm import Algorithm
from coterie.methods.method import Method
from coterie.methods.override import method_of
from coterie.rules.migration import Migrating
from coterie.rules.private_start import StartsPrivately
from coterie.rules.private_sums import PrivateSums, noised
from coterie.rules.rebalancing import Rebalanced
from coterie.rules.weighing import by_size, evenly

# Examples for an error line; each method says by itself what it reads (`Method.reads`).
WORKING = "fedavg, fedprox, fedadam, ifca, fedgroup"


@dataclass(frozen=True, slots=True)
class PrivateStart:
    """The noised sums of a cold start.

    Args:
        noise: noise multiplier of all of them together.
        rate: probability with which each client takes part.
        clients: how many could be drawn.
    """

    noise: float
    rate: float
    clients: int


def check_private(made: Method | Algorithm, name: str = "method") -> Method:
    """The method, if it does with sums of updates.

    Args:
        made: a method.
        name: what to call it in an error.

    Raises:
        ConfigError: for a method that needs single updates.

    Example:
        >>> from coterie.algorithms import fedavg
        >>> check_private(fedavg()).reads
        ()
    """
    method = method_of(made)
    if method is None or not _sums_suffice(method):
        raise ConfigError(
            f"algorithm.name: with these options its server needs single updates or statistics of "
            f"clients, got {name!r}; expected one that does with sums, as {WORKING}, or no [privacy]"
        )
    # A client reports its drift to the server without noise, and may change its group by that.
    if isinstance(method.assign, Migrating):
        raise ConfigError(
            "migration.detector: what drift reveals of a client is not counted, got migration with "
            "[privacy]; expected 'none'"
        )
    _check_whole_updates(method)
    return method


def start_size(method: Method) -> int | None:
    """Clients of a method's cold start, on average; ``None`` where it has none.

    Raises:
        ConfigError: for an option of it that needs single updates.
    """
    if isinstance(method.assign, StartsPrivately):
        return method.assign.start_size()
    return None


def make_private(
    method: Method,
    sums: PrivateSums,
    start: PrivateStart | None = None,
    least_group: float | None = None,
) -> Method:
    """The method with noised sums in place of its weighted means.

    All clients of a group count the same, whatever the method's own rule of weighing says.

    Args:
        method: that does with sums of updates.
        sums: how they are clipped and noised.
        start: of its cold start, where it has one.
        least_group: clients of a round that each group should have; ``None``: no client moves.

    Raises:
        ConfigError: for groups that no client can move to before they train.

    Example:
        >>> from coterie.algorithms import fedavg
        >>> make_private(fedavg(), PrivateSums(clip=1.0, noise=1.0, clients=20)).aggregate.every_round
        True
    """
    assign = method.assign
    if isinstance(assign, StartsPrivately):
        assert start is not None
        assign = assign.with_private_start(start.noise, start.rate, start.clients, sums.secret)
    if least_group is not None:
        if method.groups < 2 or method.local.choose is not None:
            raise ConfigError(
                "privacy.least_group: needs groups that are known before clients train, got "
                f"{least_group:g}; expected none, or fedgroup"
            )
        assign = Rebalanced(assign, least_group, sums.secret)
        sums = replace(sums, counts=True)
    return replace(method, assign=assign, aggregate=noised(sums), weigh=evenly)


def _sums_suffice(method: Method) -> bool:
    """Whether the assign rule reads no single clients, or has a form that reads noised sums."""
    rule = method.assign
    if isinstance(rule, Migrating):
        rule = rule.assign
    if isinstance(rule, StartsPrivately):
        return True
    return method.reads == ()


def _check_whole_updates(method: Method) -> None:
    """Refuse clients that send parts of an update, and rules that compare updates.

    Raises:
        ConfigError: naming what it is.
    """
    # Who begins depends on who trains already, and an update is used rounds after its client was
    # drawn: neither is what the budget counts.
    if method.asynchronous is not None:
        raise ConfigError(
            f"asynchronous: {NOT_PRIVATE}, got asynchronous rounds; expected none with [privacy]"
        )
    # What stays with a client is added to its model after the sums, and would not be clipped.
    if method.local.upload is not None or method.local.keep is not None:
        raise ConfigError(
            "privacy: clips whole updates, got a method whose clients send a part of theirs; "
            "expected whole updates, or no [privacy]"
        )
    if method.local.mixture:
        raise ConfigError(
            "privacy: clips one update of each client, got a method whose clients train several "
            "models; expected one that trains one, or no [privacy]"
        )
    # SCAFFOLD's server takes the number of steps of each client from its update.
    if isinstance(method.local.own_model, SendsBeside):
        raise ConfigError(
            "privacy: sees the noised sum of updates alone, got a method whose server also moves a "
            "vector beside the model, by the single update and the number of steps of each client; "
            "expected one that sends the model alone, or no [privacy]"
        )
    # A rule of weights by samples is replaced: a client could claim as many as it likes.
    if method.weigh not in (by_size, evenly) or not method.aggregate.sums:
        raise ConfigError(
            "weigh: no sum in which all clients count the same, got a rule of its own; expected none "
            "with privacy"
        )
    if method.recluster is not None:
        raise ConfigError(
            "privacy: sees no single update, got a method that groups clients by their updates; "
            "expected one that does with sums, or no [privacy]"
        )
