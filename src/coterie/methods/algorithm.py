"""What runs: a method with slots, or an algorithm with its own step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from coterie.clients.round import Round
from coterie.config.arguments import check_pair, check_takes
from coterie.core import Groups, Served
from coterie.methods.buffered import Buffered
from coterie.methods.first_models import InitialModels
from coterie.methods.method import Clustered, Method
from coterie.rules.assigning import by_group

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
class ServedByGroup:
    """An algorithm that only has ``init`` and ``step``: its cohorts are sampled by the run, and
    clients are served by their group's model."""

    steps: InitAndStep

    @property
    def samples_cohort(self) -> bool:
        return False

    def init(self, initial_models: InitialModels, clients: int) -> Groups:
        return self.steps.init(initial_models, clients)

    def step(self, state: Groups, round: Round) -> tuple[Groups, Mapping[str, Any]]:
        return checked_step(self.steps.step, state, round)

    def serve(self, state: Groups) -> Served:
        return by_group(state)


Notes = Mapping[str, Any]


def checked_step(
    step: Callable[[Groups, Round], tuple[Groups, Notes]], state: Groups, round: Round
) -> tuple[Groups, Notes]:
    """What a step returned, which may be a user's own."""
    returned = step(state, round)
    expected = "(groups, notes), a coterie.Groups and values by their names"
    check_pair("step", step, returned, (Groups, Mapping), expected)
    return returned


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
        return Clustered(method)
    check_takes("step", method.step, ("state", "round"), _OF_ROUND)
    if isinstance(method, Algorithm):
        return method
    return ServedByGroup(method)


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
