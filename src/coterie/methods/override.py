"""A method with something that a run puts in or adds: another server, objective, migration or
weighing, layers or models of the clients' own, optimisers that keep their state, asynchronous rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from coterie.core import KeepLayers, Layout, Objective, Solver
from coterie.core.own_model import LocalTraining, Own, OwnModel, OwnTrained
from coterie.core.traits import Excluded, Feature, of_traits, refuse_traits
from coterie.errors import ConfigError
from coterie.local.training.optimizers import memory_size
from coterie.methods.algorithm import Algorithm, method_of, with_method
from coterie.methods.buffered import Buffered, Buffering
from coterie.methods.method import Method
from coterie.methods.traits import traits_of
from coterie.rules.migration import Migration, migrating
from coterie.rules.server import Server
from coterie.rules.weighing import Aggregate, Weigh, mean


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
        made: a method; in an algorithm with its own step nothing can be replaced.
        name: what to call it in an error.
        server: how models move, from ``coterie.rules.server``.
        objective: what clients minimise, from ``coterie.objectives``.
        migration: which clients lose their group because their data drifted, from
            ``coterie.rules.migration``.
        weigh: how much replies count, or how they are combined, from ``coterie.rules.robust``. A
            robust average is that of the replies that the method's own rule weighs.
        personal: layers that stay with clients, as `coterie.core.keep.layers_to_keep` reads them.
        own_model: what clients have of their own in addition to the method's models, as
            ``coterie.algorithms.ditto.Ditto``.

    Raises:
        ConfigError: if something is to be replaced in what is no ``Method``, for layers or own
            models in a method that cannot leave any with its clients, and for another weighing
            where a reply counts for several models.

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
        what = "the algorithm has its own step"
        expected = f"an algorithm made of the slots of a Method, or no {wanted[0]}"
        raise ConfigError("does-not-fit", wanted[0], what, got=name, allowed=expected)
    if objective is not None:
        method = replace(method, local=replace(method.local, objective=objective))
    if server is not None:
        method = replace(method, server=server)
    if isinstance(weigh, Aggregate):
        # Which replies count for which model stays the method's decision, as in soft groups.
        method = replace(method, aggregate=weigh)
    elif weigh is not None:
        refuse_traits(_WEIGH, traits_of(method), name)
        method = replace(method, weigh=weigh, aggregate=mean())
    if migration is not None:
        method = replace(method, assign=migrating(method.assign, migration))
    if personal:
        method = with_personal_layers(method, tuple(personal), name)
    if own_model is not None:
        method = with_own_model(method, own_model, name)
    return with_method(made, method)


_PERSONAL = of_traits(
    "personal.layers",
    "another algorithm, or no [personal]",
    {
        "data": "all data are pooled, so clients cannot keep layers",
        "mixture": "its clients train several models, so they cannot keep layers",
        "keeps_layers": "the method itself sets what stays with its clients",
        "own_model": "the method itself sets what stays with its clients",
        "uploads_a_part": "the method itself sets which part of an update is sent",
        "full_gradient": "clients send a gradient, and do not train layers that they could keep",
    },
)
_OWN_MODEL = of_traits(
    "own_model",
    "another algorithm, or no [own_model]",
    {
        "data": "all data are pooled, so clients cannot have their own models",
        "mixture": "its clients train several models",
        "keeps_layers": "the method already keeps values on its clients",
        "own_model": "the method already keeps values on its clients",
        "full_gradient": "clients send a gradient and do not train",
        "phases": "its clients train in phases",
    },
)
_WEIGH = of_traits(
    "weigh",
    "another algorithm, a robust rule, or no [weigh]",
    {"shares": "a reply counts for several models, by its client's shares of them"},
)
KEPT_OPTIMIZER = Feature(
    "with local.keep_state",
    {"local.keep_state": (True,)},
    of_traits(
        "local.keep_state",
        "false, or another algorithm",
        {
            "own_step": "the algorithm has its own step, which does not manage optimisers",
            "mixture": "clients train several models, each of which needs its own optimiser",
            "own_model": "clients train by their own rule, with a new optimiser each time",
            "phases": "clients train in phases, which train different layers",
            "full_gradient": "clients send a gradient and take no step",
        },
    ),
)
ASYNCHRONOUS = Feature(
    "with [asynchronous]",
    {"asynchronous": ()},
    (
        Excluded("train.over_selection", "asynchronous rounds do not need it", "1", (1,)),
        Excluded("reply_times.deadline", "asynchronous rounds have no deadline"),
        *of_traits(
            "algorithm.name",
            "an algorithm without these, such as fedavg or ifca, or no [asynchronous]",
            {
                "own_step": "has its own step",
                "regroups": "regroups the replies of a round",
                "mixture": "its clients train several models",
                "moves_second_vector": "updates a second vector from the replies of a round",
                "all_clients": "samples its clients itself",
                "data": "all data are pooled",
                "sums_of_a_round": "its server sees only the sums of a round",
            },
        ),
    ),
)


def with_personal_layers(method: Method, names: tuple[str, ...], name: str = "method") -> Method:
    """The method, called ``name`` in an error, with layers that stay with its clients.

    Args:
        names: the names of the layers, as in `coterie.core.keep.layers_to_keep`.

    Raises:
        ConfigError: for a method that cannot leave any with its clients.

    Example:
        >>> from coterie.algorithms import fedgroup
        >>> with_personal_layers(fedgroup(), ("head",)).local.keep.names
        ('head',)
    """
    refuse_traits(_PERSONAL, traits_of(method), name)
    keep = KeepLayers(names, "personal.layers")
    return replace(method, local=replace(method.local, keep=keep))


def with_own_model(method: Method, rule: OwnModel, name: str = "method") -> Method:
    """The method, called ``name`` in an error, whose clients have a model of their own in addition to
    those of the method.

    Raises:
        ConfigError: for a method that has no training which the rule could be.

    Example:
        >>> from coterie.algorithms import ifca
        >>> from coterie.algorithms.ditto import Ditto
        >>> with_own_model(ifca(), Ditto(lam=0.5)).local.own_model
        Ditto(lam=0.5)
    """
    refuse_traits(_OWN_MODEL, traits_of(method), name)
    return replace(method, local=method.local.by_rule(rule))


def with_buffer(made: Method | Algorithm, rule: Buffering) -> Buffered:
    """The method with asynchronous rounds, see `ASYNCHRONOUS`.

    Example:
        >>> from coterie.algorithms import fedgroup
        >>> with_buffer(fedgroup(), Buffering(buffer=5)).rule.buffer
        5
    """
    method = method_of(made)
    assert method is not None
    return Buffered(method, rule)


# --- optimisers that keep their state -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptOptimizer:
    """Clients train the model that they are sent by an optimiser that continues from its state at
    the end of the client's last training.

    The ``size`` values of that state are stored by the client and never sent, like its own model
    (``coterie.core.own_model``). Clients predict by the models that they are sent.
    """

    size: int
    plain_sgd = False
    trains_as_sent = True

    def lengths(self, d: int) -> Mapping[str, int]:
        return {"optimizer": self.size}

    def first(self, sent: Tensor) -> Own:
        return {"optimizer": torch.zeros(self.size)}

    def train(self, training: LocalTraining, own: Own) -> OwnTrained:
        update, loss, memory = training.go_on(training.start, own["optimizer"])
        return OwnTrained(update, loss, {"optimizer": memory})


def with_kept_optimizer(
    made: Method | Algorithm, solver: Solver, module: nn.Module
) -> Method | Algorithm:
    """The method whose clients keep what their optimiser remembers, where the solver says so; see
    `KEPT_OPTIMIZER`.

    Example:
        >>> from coterie.algorithms import fedavg
        >>> adam = Solver(optimizer="adam", keep_state=True)
        >>> with_kept_optimizer(fedavg(), adam, nn.Linear(3, 2)).local.own_model
        KeptOptimizer(size=19)
    """
    method = method_of(made)
    if not solver.keep_state or method is None:
        return made
    layout = Layout.of(module)
    rule = KeptOptimizer(memory_size(solver, layout.shapes[: layout.trainable]))
    return with_method(made, replace(method, local=method.local.by_rule(rule)))
