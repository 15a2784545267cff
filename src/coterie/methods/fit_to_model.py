"""A method fitted to its network, and refused where one of its records lacks a part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from coterie.core import Groups, KeepLayers, Key, Layout, Phases, Train
from coterie.core.objective import Reshaping
from coterie.errors import ConfigError
from coterie.methods.algorithm import Algorithm, method_of, with_method
from coterie.methods.method import Method
from coterie.objectives.weighted import weighted
from coterie.rules.hooks import call
from coterie.rules.server import Server, sgd


def fit_to_model(
    made: Method | Algorithm, module: nn.Module, key: Key
) -> tuple[Method | Algorithm, nn.Module]:
    """The network as the method's objective needs it, and the method with a server and kept layers
    that know its parameters. The network is not changed, nor an algorithm with its own step.

    Running statistics are averaged with any server, and the coefficients of FedFusion move at their
    own pace.
    """
    method = method_of(made)
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
    # Otherwise as it was, since the two halves would cost a copy of the models.
    if parameters < layout.d:
        server = on_parameters(server, parameters)
    if pace:
        speed = torch.ones(layout.d, dtype=torch.float64)
        for name, value in pace.items():
            speed[layout.span(name)] = value
        server = paced(server, speed)
    local = _with_coordinates(method.local, module)
    return with_method(made, replace(method, local=local, server=server)), module


def paced(server: Server, pace: Tensor) -> Server:
    """The same rule on updates of which each coordinate counts by its ``pace [d]``.

    Example:
        >>> import numpy as np
        >>> groups = Groups(torch.zeros(1, 2), np.zeros(1, np.int64))
        >>> slow = paced(sgd(), torch.tensor([1.0, 0.5]))
        >>> slow(groups, torch.ones(1, 2), torch.tensor([True])).models.tolist()
        [[1.0, 0.5]]
    """
    return lambda groups, update, trained: call("server", server, groups, update * pace, trained)


def on_parameters(server: Server, count: int) -> Server:
    """The rule on the first ``count`` coordinates, the mean on the others: running statistics take
    no step.

    An adaptive step of the same size on every coordinate could make a running variance negative.

    Example:
        >>> import numpy as np
        >>> groups = Groups(torch.zeros(1, 2), np.zeros(1, np.int64))
        >>> on_parameters(sgd(2.0), 1)(groups, torch.ones(1, 2), torch.tensor([True])).models.tolist()
        [[2.0, 1.0]]
    """

    mean = sgd(1.0)

    def step(groups: Groups, update: Tensor, trained: Tensor) -> Groups:
        parameters = replace(groups, models=groups.models[:, :count])
        ours = call("server", server, parameters, update[:, :count], trained)
        rest = mean(replace(groups, models=groups.models[:, count:]), update[:, count:], trained)
        return replace(
            groups, models=torch.cat([ours.models, rest.models], dim=1), optimiser=ours.optimiser
        )

    return step


def _with_coordinates(local: Train, module: nn.Module) -> Train:
    """The training with coordinates in place of the names of layers."""
    if isinstance(local.keep, KeepLayers):
        local = replace(local, keep=local.keep.of(module))
    if not isinstance(local.how, Phases):
        return local
    phases = []
    for phase in local.how.parts:
        if isinstance(phase.only, KeepLayers):
            phase = replace(phase, only=phase.only.of(module))
        phases.append(phase)
    return replace(local, how=Phases(tuple(phases)))


def check_records(made: Method | Algorithm) -> None:
    """Refuse an objective, or a rule for models of the clients' own, that lacks a part.

    Raises:
        ConfigError: naming what is missing.

    Example:
        >>> from coterie.algorithms import fedavg
        >>> from coterie.core.work import Train
        >>> from coterie.objectives import CrossEntropy
        >>> check_records(Method(assign=fedavg().assign, local=Train(CrossEntropy)))
        Traceback (most recent call last):
        coterie.errors.ConfigError: objective: is a class (CrossEntropy); expected CrossEntropy()
    """
    method = method_of(made)
    if method is None:
        return
    _check_has("objective", method.local.objective, ("mu", "loss"))
    if method.local.mixture:
        # The task's own loss is put into the objective later.
        weighted(method.local.objective)
    rule = method.local.own_model
    if rule is not None:
        _check_has("own_model", rule, ("plain_sgd", "lengths", "first", "train"))


def _check_has(argument: str, record: object, names: tuple[str, ...]) -> None:
    """Refuse a record that lacks one of some attributes, and a class in the place of its record."""
    if isinstance(record, type):
        name = record.__name__
        raise ConfigError("wrong-type", argument, "is a class", found=name, allowed=f"{name}()")
    missing = [name for name in names if not hasattr(record, name)]
    if missing:
        what = f"lacks {', '.join(missing)}"
        got = f"a {type(record).__name__}"
        expected = f"a record with {', '.join(names)}"
        raise ConfigError("wrong-type", argument, what, found=got, allowed=expected)
