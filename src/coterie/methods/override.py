"""A method with another server optimiser or another objective, and a method fitted to its
network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import nn

from coterie.core.keys import Key
from coterie.core.objective import Objective, Reshaping
from coterie.core.vectors import Layout
from coterie.errors import ConfigError
from coterie.methods.method import Method
from coterie.methods.step import Algorithm, Clustered
from coterie.rules.server import Server, on_parameters, paced


def override(
    made: Method | Algorithm,
    name: str = "method",
    *,
    server: Server | None = None,
    objective: Objective | None = None,
) -> Method | Algorithm:
    """The method with another server, or another objective; with neither, what it is.

    The objective replaces that of local training and of every training that the assign rule does by
    itself (FedGroup's cold starts), so FedGroup with ``proximal(mu)`` is FedGrouProx.

    Args:
        made: a method; of an algorithm with a step of its own nothing can be replaced.
        name: what to call it in an error.
        server: how models move, from ``coterie.rules.server``.
        objective: what clients minimise, from ``coterie.objectives``.

    Raises:
        ConfigError: if something is to be replaced in what is no ``Method``.

    Example:
        >>> from coterie.algorithms import fedgroup
        >>> from coterie.objectives import proximal
        >>> method = override(fedgroup(), objective=proximal(0.1))
        >>> method.local.objective.mu, method.assign.objective.mu
        (0.1, 0.1)
    """
    if server is None and objective is None:
        return made
    method = _method(made)
    if method is None:
        key = "objective" if server is None else "server"
        raise ConfigError(
            f"{key}: the algorithm has a step of its own, got {name!r}; expected one made of the six slots of a "
            f"Method, or no {key}"
        )
    if objective is not None:
        local = replace(method.local, objective=objective)
        method = replace(method, local=local, assign=_minimising(method.assign, objective))
    if server is None:
        return method
    return replace(method, server=server)


def fit_to_model(
    made: Method | Algorithm, module: nn.Module, key: Key
) -> tuple[Method | Algorithm, nn.Module]:
    """The network as the method's objective needs it, and the method with a server that knows its
    parameters.

    Running statistics are averaged whatever the server, and the coefficients of FedFusion move at
    their own pace.

    Args:
        made: a method; an algorithm with a step of its own is left as it is.
        module: the network, which is not changed.
        key: the stream of first weights.

    Raises:
        ConfigError: for a network that the objective cannot use.
    """
    method = _method(made)
    if method is None:
        return made, module
    objective = method.local.objective
    pace: Mapping[str, float] = {}
    if isinstance(objective, Reshaping):
        module = objective.network(module, key)
        pace = objective.pace()
    layout = Layout.of(module)
    server = method.server
    parameters = sum(layout.sizes[: layout.trainable])
    if parameters < layout.d:
        server = on_parameters(server, parameters)
    if pace:
        speed = torch.ones(layout.d, dtype=torch.float64)
        for name, value in pace.items():
            speed[layout.span(name)] = value
        server = paced(server, speed)
    return replace(method, server=server), module


def _method(made: Method | Algorithm) -> Method | None:
    if isinstance(made, Clustered):
        return made.method
    if isinstance(made, Method):
        return made
    return None


def _minimising(rule: Any, objective: Objective) -> Any:
    """An assign rule that trains says with what in its field ``objective``; a wrapper holds its
    rule in ``assign``."""
    if not is_dataclass(rule) or isinstance(rule, type):
        return rule
    names = {field.name for field in fields(rule)}
    changed = {}
    if "objective" in names:
        changed["objective"] = objective
    if "assign" in names:
        changed["assign"] = _minimising(rule.assign, objective)  # type: ignore[attr-defined]
    return replace(rule, **changed)
