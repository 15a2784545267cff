"""A method whose server sees noised sums of updates, where its rules allow it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from coterie.config.participation_table import NOT_PRIVATE
from coterie.errors import ConfigError
from coterie.methods.algorithm import Algorithm, method_of
from coterie.methods.method import Method
from coterie.methods.traits import Feature, traits_of
from coterie.rules.assigning import Assign
from coterie.rules.migration import Migrating
from coterie.rules.private_start import StartsPrivately
from coterie.rules.private_sums import PrivateSums, noised
from coterie.rules.rebalancing import Rebalanced
from coterie.rules.weighing import evenly

_SINGLE = "with these options its server needs single updates or statistics of clients"
_PART = "clips whole updates, not parts of them"
_PRIVACY = (
    Feature(
        "algorithm.name",
        "one that does with sums, as fedavg, fedprox, fedadam, ifca, fedgroup, or no [privacy]",
        {"own_step": _SINGLE, "reads_clients": _SINGLE},
    ),
    # A client reports its drift to the server without noise, and may change its group by that.
    Feature(
        "migration.detector",
        "'none' with [privacy]",
        {"migrates": "what drift reveals of a client is not counted"},
    ),
    # Who begins depends on who trains already, and an update is used rounds after its client was
    # drawn: neither is what the budget counts.
    Feature("asynchronous", "none with [privacy]", {"asynchronous": NOT_PRIVATE}),
    Feature(
        "privacy",
        "a method whose clients send one whole update each, or no [privacy]",
        {
            # What stays with a client is added to its model after the sums, and would not be clipped.
            "uploads_a_part": _PART,
            "keeps_layers": _PART,
            "mixture": "clips one update of each client, not those of several models",
            # SCAFFOLD's server takes the number of steps of each client from its update.
            "moves_beside": "sees the noised sum of updates alone, and the method's server also moves a vector "
            "beside the model, by the single update and the number of steps of each client",
        },
    ),
    # A rule of weights by samples is replaced: a client could claim as many as it likes.
    Feature(
        "weigh",
        "none with [privacy]",
        {"weighs_unevenly": "no sum in which all clients count the same"},
    ),
    Feature(
        "privacy",
        "one that does with sums, or no [privacy]",
        {"regroups": "sees no single update, by which the method groups clients"},
    ),
)


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
        >>> check_private(fedavg()).needs
        ()
    """
    method = method_of(made)
    traits = set(traits_of(made))
    # Its cold start has a form that reads noised sums.
    if method is not None and isinstance(_placing(method), StartsPrivately):
        traits.discard("reads_clients")
    for feature in _PRIVACY:
        feature.check(traits, name)
    assert method is not None
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


def _placing(method: Method) -> Assign:
    """The rule that places clients, without what migration adds."""
    if isinstance(method.assign, Migrating):
        return method.assign.assign
    return method.assign
