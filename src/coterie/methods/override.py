"""A method with another server, objective, migration or weighing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from coterie.core.keep import KeepLayers
from coterie.core.objective import Objective
from coterie.core.own_model import OwnModel
from coterie.core.training import FullGradient, Phases
from coterie.errors import ConfigError
from coterie.methods.algorithm import Algorithm
from coterie.methods.method import Method
from coterie.methods.step import Clustered
from coterie.rules.combining import Aggregate, mean
from coterie.rules.migration import Migration, migrating
from coterie.rules.server import Server
from coterie.rules.weighing import Weigh


def override(
    made: Method | Algorithm,
    name: str = "method",
    *,
    server: Server | None = None,
    objective: Objective | None = None,
    migration: Migration | None = None,
    weigh: Weigh | Aggregate | None = None,
    personal: Sequence[str] = (),
    own_model: OwnModel | None = None,
) -> Method | Algorithm:
    """The method with another server, objective, migration or weighing, with layers that stay with
    clients, or with models of the clients' own; with none of them, what it is.

    The objective is that of local training, and of every training by which a rule places clients
    (FedGroup's cold starts), so FedGroup with ``proximal(mu)`` is FedGrouProx.

    Args:
        made: a method; of an algorithm with a step of its own nothing can be replaced.
        name: what to call it in an error.
        server: how models move, from ``coterie.rules.server``.
        objective: what clients minimise, from ``coterie.objectives``.
        migration: which clients lose their group because their data drifted, from
            ``coterie.rules.migration``.
        weigh: how much replies count, or how they are combined, from ``coterie.rules.robust``. A
            robust average is that of the replies that the method's own rule weighs.
        personal: layers that stay with clients, as `coterie.core.keep.keep_layers` reads them.
        own_model: what clients have of their own beside the method's models, as
            ``coterie.algorithms.ditto.Ditto``.

    Raises:
        ConfigError: if something is to be replaced in what is no ``Method``, for migration in a
            method of one group, and for layers or own models in a method that cannot leave any with
            its clients.

    Example:
        >>> from coterie.algorithms import fedgroup
        >>> from coterie.objectives import proximal
        >>> override(fedgroup(), objective=proximal(0.1)).local.objective.mu
        0.1
    """
    replaced: dict[str, Any] = {
        "server": server,
        "objective": objective,
        "migration": migration,
        "weigh": weigh,
        "personal": tuple(personal) or None,
        "own_model": own_model,
    }
    wanted = [key for key, value in replaced.items() if value is not None]
    if not wanted:
        return made
    method = method_of(made)
    if method is None:
        raise ConfigError(
            f"{wanted[0]}: the algorithm has a step of its own, got {name!r}; expected one made "
            f"of the slots of a Method, or no {wanted[0]}"
        )
    if objective is not None:
        method = replace(method, local=replace(method.local, objective=objective))
    if server is not None:
        method = replace(method, server=server)
    if isinstance(weigh, Aggregate):
        # Which replies count for which model stays the method's decision, as in soft groups.
        method = replace(method, aggregate=weigh)
    elif weigh is not None:
        method = replace(method, weigh=weigh, aggregate=mean())
    if migration is not None:
        method = replace(method, assign=migrating(method.assign, migration))
    if personal:
        method = with_personal_layers(method, tuple(personal), name)
    if own_model is not None:
        method = with_own_model(method, own_model, name)
    return method


def with_personal_layers(method: Method, names: tuple[str, ...], name: str = "method") -> Method:
    """The method with layers that stay with its clients.

    Args:
        method: of slots.
        names: of the layers, as `coterie.core.keep.keep_layers` reads them.
        name: what to call the method in an error.

    Raises:
        ConfigError: for a method whose clients keep something already, whose clients send no
            training, or that brings their data to one place.

    Example:
        >>> from coterie.algorithms import fedgroup
        >>> with_personal_layers(fedgroup(), ("head",)).local.keep.names
        ('head',)
    """
    why = None
    if method.pools_data:
        why = "all data are in one place, where no client could keep a layer"
    elif method.local.mixture:
        why = "its clients train several models, of which no layer could be theirs"
    elif method.local.keep is not None or method.local.own_model is not None:
        why = "the method says itself what stays with its clients"
    elif method.local.upload is not None:
        why = "the method says itself which part of an update is sent"
    elif isinstance(method.local.how, FullGradient):
        why = "clients send a gradient and train nothing that they could keep"
    if why is not None:
        raise ConfigError(
            f"personal.layers: {why}, got {name!r}; expected another algorithm, or no [personal]"
        )
    keep = KeepLayers(names, "personal.layers")
    return replace(method, local=replace(method.local, keep=keep))


def with_own_model(method: Method, rule: OwnModel, name: str = "method") -> Method:
    """The method whose clients have a model of their own beside those of the method.

    Args:
        method: of slots.
        rule: what a client has of its own, and how it trains.
        name: what to call the method in an error.

    Raises:
        ConfigError: for a method whose clients keep something already, or that has no training
            which the rule could be.

    Example:
        >>> from coterie.algorithms import ifca
        >>> from coterie.algorithms.ditto import Ditto
        >>> with_own_model(ifca(), Ditto(lam=0.5)).local.own_model
        Ditto(lam=0.5)
    """
    why = None
    if method.pools_data:
        why = "all data are in one place, where no client could have a model of its own"
    elif method.local.mixture:
        why = "its clients train several models"
    elif method.local.keep is not None or method.local.own_model is not None:
        why = "something stays with the clients already"
    elif isinstance(method.local.how, FullGradient):
        why = "clients send a gradient and train nothing"
    elif isinstance(method.local.how, Phases):
        why = "its clients train in phases"
    if why is not None:
        raise ConfigError(
            f"own_model: {why}, got {name!r}; expected another algorithm, or no [own_model]"
        )
    return replace(method, local=method.local.by_rule(rule))


def method_of(made: Method | Algorithm) -> Method | None:
    """The slots of a method; ``None`` for an algorithm with a step of its own.

    Args:
        made: a method, or what runs it.
    """
    if isinstance(made, Clustered):
        return made.method
    if isinstance(made, Method):
        return made
    return None
