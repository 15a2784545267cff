"""Arguments of ``coterie.run`` that are objects of Python: refused in a line each where they are of
another type.

The numbers and texts among the arguments are checked by `coterie.config.arguments.validated`, names
of choices where they are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from torch import nn

from coterie.clients.bounds import Bounds
from coterie.clients.clients import Quorum
from coterie.config.wording import shown
from coterie.core.objective import Objective
from coterie.core.own_model import OwnModel
from coterie.core.reply_times import ReplyTimes
from coterie.core.solver import Solver
from coterie.core.task import Task
from coterie.data.population import Population
from coterie.engines import Attack
from coterie.errors import ConfigError
from coterie.measures.own_models import Adaptation
from coterie.methods.method import Method
from coterie.privacy.private import Privacy
from coterie.privacy.secure_sums import SecureSums
from coterie.runs.availability import Availability


@dataclass(frozen=True, slots=True)
class Argument:
    """What an argument may be.

    Args:
        fits: whether a value may be one.
        expected: the same in words.
    """

    fits: Callable[[Any], bool]
    expected: str


def check_call(call: Mapping[str, Any]) -> None:
    """Refuse arguments of another type.

    Args:
        call: the arguments of ``coterie.run`` by name.

    Raises:
        ConfigError: with a line for each of them.

    Example:
        >>> check_call({"local": {"epochs": 1}, "evaluate_adapt": None})
        Traceback (most recent call last):
        coterie.errors.ConfigError: local: wrong type, got a dict; expected a coterie.Solver, as coterie.Solver(epochs=1)
    """
    found = []
    for name, argument in ARGUMENTS.items():
        # What is left out has a default, and `method`, `data` and `model` cannot be left out.
        missing = call.get(name) is None and name not in _REQUIRED
        if name not in call or missing or argument.fits(call[name]):
            continue
        found.append(f"{name}: wrong type, got {_kind(call[name])}; expected {argument.expected}")
    if found:
        raise ConfigError("\n".join(found))


def _kind(value: Any) -> str:
    """A value in an error line: itself where it is short, else its type."""
    if isinstance(value, bool | int | float | str):
        return shown(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"


# --- what each of them may be ---------------------------------------------------------------------


def _one_of(*types: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, types)


def _is_method(value: Any) -> bool:
    # A user's own algorithm is any object that can do a round, but no class of one.
    return isinstance(value, Method) or (
        callable(getattr(value, "step", None)) and not isinstance(value, type)
    )


def _named_or(*types: Any) -> Callable[[Any], bool]:
    """A name, a table with a name, or a record."""
    return _one_of(str, Mapping, *types)


def _named_or_rule(value: Any) -> bool:
    return isinstance(value, str | Mapping) or callable(value)


def _is_shift(value: Any) -> bool:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(isinstance(one, Mapping) for one in value)
    return _named_or_rule(value)


def _is_measures(value: Any) -> bool:
    # A text is a sequence of its letters, none of which is a measure.
    return isinstance(value, Sequence) and not isinstance(value, str)


_REQUIRED = ("method", "data", "model")
_RULE = "a name, a table of a name and options, or a rule"

ARGUMENTS: Mapping[str, Argument] = {
    "method": Argument(_is_method, "a method, as coterie.fedavg()"),
    "data": Argument(_one_of(Population), "a coterie.Population, as coterie.load() makes"),
    "model": Argument(
        _named_or(nn.Module), "a module, a name, or a table of a name and options, as 'mclr'"
    ),
    "local": Argument(_one_of(Solver), "a coterie.Solver, as coterie.Solver(epochs=1)"),
    "sampler": Argument(
        lambda value: isinstance(value, str) or callable(value), "a name, or a function"
    ),
    "availability": Argument(
        _one_of(Availability),
        "a coterie.runs.availability.Availability, as Availability('day_night', share=0.5)",
    ),
    "reply_times": Argument(
        _one_of(ReplyTimes),
        "a coterie.core.reply_times.ReplyTimes, as ReplyTimes(deadline=3.0)",
    ),
    "shift": Argument(_is_shift, f"{_RULE}, or a list of tables"),
    "quorum": Argument(_one_of(Quorum), "a coterie.engines.Quorum, as Quorum(min_replies=2)"),
    "evaluate_adapt": Argument(
        _one_of(Adaptation), "a coterie.Adaptation, as coterie.Adaptation(epochs=1)"
    ),
    "measures": Argument(_is_measures, "a list of names or of measures"),
    "server": Argument(_named_or_rule, _RULE),
    "weigh": Argument(_named_or_rule, _RULE),
    "objective": Argument(
        _named_or(Objective), f"{_RULE}, a record with mu and loss(module, x, y, received)"
    ),
    "bounds": Argument(
        _one_of(bool, Bounds), "true, false, or coterie.clients.bounds.Bounds.between(3, 20)"
    ),
    "attack": Argument(_named_or(Attack), _RULE),
    "task": Argument(_named_or(Task), _RULE),
    "privacy": Argument(
        _one_of(Privacy), "a coterie.Privacy, as coterie.Privacy(epsilon=8.0, clip=0.5)"
    ),
    "own_model": Argument(
        _named_or(OwnModel), f"{_RULE}, a record with plain_sgd, lengths, first and train"
    ),
    "secure": Argument(
        _one_of(SecureSums), "a coterie.SecureSums, as coterie.SecureSums(levels=2**16)"
    ),
    "on_round": Argument(callable, "a function of the round's result"),
    "out": Argument(_one_of(str, PathLike), "a path"),
}
