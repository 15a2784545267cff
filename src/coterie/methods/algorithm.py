"""What runs: a method with slots, or an algorithm with its own step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from coterie.clients.round import Round
from coterie.config.arguments import check_takes
from coterie.core import Groups, Served
from coterie.methods.buffered import Buffered
from coterie.methods.first_models import InitialModels
from coterie.methods.method import Clustered, Method
from coterie.rules.assigning import by_group
from coterie.rules.hooks import call

_OF_ROUND = "; the cohort, the clients and the key are attributes of round"


@runtime_checkable
class Algorithm(Protocol):
    """A method that can be run.

    ``init`` creates the state. ``step`` runs a round, and returns a new state with notes for the
    round's row. ``serve`` returns which model serves each client. With ``samples_cohort``, the
    cohort of a step contains every client that can train, not a sample.
    """

    @property
    def samples_cohort(self) -> bool: ...

    def init(self, initial_models: InitialModels, clients: int) -> Groups: ...

    def step(self, state: Groups, round: Round) -> tuple[Groups, Mapping[str, Any]]: ...

    def serve(self, state: Groups) -> Served: ...


class InitAndStep(Protocol):
    """The least that a user's own algorithm has to say."""

    def init(self, initial_models: InitialModels, clients: int) -> Groups: ...

    def step(self, state: Groups, round: Round) -> tuple[Groups, Mapping[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class OwnAlgorithm:
    """An algorithm of the user's own, what it returns checked. Without ``samples_cohort`` its cohorts
    are sampled by the run, and without ``serve`` clients are served by their group's model."""

    own: Algorithm | InitAndStep

    @property
    def samples_cohort(self) -> bool:
        return bool(getattr(self.own, "samples_cohort", False))

    def init(self, initial_models: InitialModels, clients: int) -> Groups:
        return call("init", self.own.init, initial_models, clients)

    def step(self, state: Groups, round: Round) -> tuple[Groups, Mapping[str, Any]]:
        return call("step", self.own.step, state, round)

    def serve(self, state: Groups) -> Served:
        return call("serve", getattr(self.own, "serve", by_group), state)


def as_algorithm(method: Method | Algorithm | InitAndStep) -> Algorithm:
    """A method as an algorithm, unless it is one; a ConfigError for rules with other arguments."""
    # Before the check for an algorithm: it is made of slots and has no step of its own.
    if isinstance(method, Method):
        check_takes("assign", method.assign, ("groups", "round"), _OF_ROUND)
        if method.recluster is not None:
            takes = ("groups", "updates", "round")
            check_takes("recluster", method.recluster, takes, _OF_ROUND)
        check_takes("weigh", method.weigh, ("groups", "updates", "round"), _OF_ROUND)
        check_takes("server", method.server, ("groups", "total", "trained"))
        if method.inter_group is not None:
            check_takes("inter_group", method.inter_group, ("groups",))
        check_takes("serve", method.serve, ("groups",))
        return Clustered(method)
    if isinstance(method, Clustered | Buffered | OwnAlgorithm):
        return method
    check_takes("step", method.step, ("state", "round"), _OF_ROUND)
    check_takes("init", method.init, ("initial_models", "clients"))
    return OwnAlgorithm(method)


def method_of(made: Method | Algorithm) -> Method | None:
    """The slots of a method, or of what runs it; ``None`` for an algorithm with its own step."""
    if isinstance(made, Clustered | Buffered):
        return made.method
    if isinstance(made, Method):
        return made
    return None


def with_method(made: Method | Algorithm, method: Method) -> Method | Algorithm:
    """Another method in place of one that was made; asynchronous rounds stay so."""
    if isinstance(made, Buffered):
        return replace(made, method=method)
    return method
