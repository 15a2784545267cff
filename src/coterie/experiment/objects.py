"""Objects of Python in place of tables: what each choice may be, and how it is made of a table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, get_args, get_type_hints

from torch import nn

from coterie.config import registry
from coterie.config.choice_tables import Absent, ChoiceTable
from coterie.config.kinds import KINDS
from coterie.config.schema import outside_tables
from coterie.core import Objective, OwnModel, Task
from coterie.data.population import Population
from coterie.engines import Attack
from coterie.errors import ConfigError, Problem, shown
from coterie.experiment.model import is_object
from coterie.experiment.tables import CHOICES, Tables, record_types, table_names
from coterie.methods.method import Method
from coterie.models import Network
from coterie.rules.weighing import Aggregate


@dataclass(frozen=True, slots=True)
class Substitute:
    """What an object that stands for a choice may be.

    Args:
        fits: whether an object is one.
        expected: the same in words.
        home: the module with Coterie's own factories.
    """

    fits: Callable[[Any], bool]
    expected: str
    home: str = ""


def _is_method(value: Any) -> bool:
    # A user's own algorithm is any object that can do a round, but no class of one.
    return isinstance(value, Method) or (
        callable(getattr(value, "step", None)) and not isinstance(value, type)
    )


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, nn.Module | type)


def _weighs(value: Any) -> bool:
    return _is_function(value) or isinstance(value, Aggregate)


def _is_a(kind: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _is_network(value: Any) -> bool:
    return isinstance(value, nn.Module) and type(value).forward is not nn.Module.forward


_RULE = "a name, a table of a name and options, or a rule"
OBJECTS: Mapping[str, Substitute] = {
    "data": Substitute(_is_a(Population), "a coterie.Population, such as one from coterie.load()"),
    "model": Substitute(
        _is_network,
        "a module with a forward, a name, or a table of a name and options, such as 'mclr'",
    ),
    "algorithm": Substitute(_is_method, "a method, such as coterie.fedavg()", "algorithms"),
    "engine": Substitute(lambda value: False, "a name, or a table of a name and options"),
    "shift": Substitute(_is_function, f"{_RULE}, or a list of tables"),
    "server": Substitute(_is_function, _RULE, "rules.server"),
    "weigh": Substitute(_weighs, _RULE, "rules.robust"),
    "objective": Substitute(
        _is_a(Objective),
        f"{_RULE}, a record with mu and loss(module, x, y, received)",
        "objectives",
    ),
    "own_model": Substitute(
        _is_a(OwnModel), f"{_RULE}, a record with plain_sgd, lengths, first and train", "algorithms"
    ),
    "attack": Substitute(_is_a(Attack), _RULE, "engines.attacks"),
    "task": Substitute(_is_a(Task), _RULE, "tasks"),
}


# Fields of records that a run fills in, and what they follow from.
FILLED_IN: Mapping[str, Mapping[str, str]] = {
    "asynchronous": {"concurrency": "train.clients_per_round", "times": "[reply_times]"},
    "availability": {"names": "the names of the clients in [data]"},
}


def object_problems(tables: Mapping[str, Any]) -> list[Problem]:
    """Objects that stand in the place of a table and are of another type, and what a run would put
    another value in the place of."""
    found = []
    for name, value in tables.items():
        if is_object(value):
            found += _problems_of(name, value)
    return found


def field_problems(experiment: Tables) -> list[Problem]:
    """The same of an experiment that was made by hand, in which names and mappings are not read."""
    optional = {one.name for one in fields(Tables) if one.default is None}
    found = []
    for name in table_names():
        value = getattr(experiment, name)
        several = name == "shift" and isinstance(value, tuple)
        tables = value if several else (value,)
        chosen = all(isinstance(one, _choice_types(name)) for one in tables)
        if not chosen and not (value is None and name in optional):
            do = "Experiment.from_tables() reads tables in the form of a file"
            found += [
                replace(one, do=one.do or do) if one.code == "wrong-type" else one
                for one in _problems_of(name, value)
            ]
    return found


@cache
def _choice_types(name: str) -> tuple[type[Any], ...]:
    """The tables that a field may hold, and a network that is ready."""
    hint = get_type_hints(Tables)[name]
    kinds = (hint, *get_args(hint))
    ready = (ChoiceTable, Network)
    return tuple(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, ready))


def _uncalled(name: str, value: Any) -> str:
    """What to do with a factory that stands in place of what it makes."""
    for known, factory in registry.builtin(CHOICES[name]).items():
        if factory is value:
            return f"call it: {known}()"
    if name in ("algorithm", "model") and (inspect.isfunction(value) or isinstance(value, type)):
        return f"call it: {value.__name__}()"
    return ""


def _problems_of(name: str, value: Any) -> list[Problem]:
    if isinstance(value, Absent):
        return []
    do = ""
    if name in record_types():
        record = record_types()[name]
        expected = f"a {record.__name__}, or a table of its fields"
        fits = isinstance(value, record)
    elif name in CHOICES:
        expected = OBJECTS[name].expected
        do = _uncalled(name, value)
        fits = not do and OBJECTS[name].fits(value)
    else:
        return []  # a number or a text, which its field refuses
    if not fits:
        return [Problem("wrong-type", name, got=shown(value), allowed=expected, do=do)]
    outside = outside_tables(value) if name in FILLED_IN else {}
    return [
        Problem(
            "in-conflict", f"{name}.{key}", f"follows from {said}", shown(outside[key]), "no value"
        )
        for key, said in FILLED_IN.get(name, {}).items()
        if key in outside
    ]


def make_choice(experiment: Tables, kind: str) -> Any:
    """What a choice of an experiment is: the object itself, or what the factory of its name makes;
    ``None`` where there is none.

    Raises:
        ConfigError: for a factory that fails, or that makes something else.
    """
    value = experiment.choice(kind)
    if isinstance(value, Absent):
        raise ConfigError.of([value.problem()])
    if not isinstance(value, ChoiceTable):
        return value
    selector = KINDS[kind].selector
    name = getattr(value, selector)
    made = registry.build(kind, {selector: name, **value.options})
    wanted = OBJECTS[KINDS[kind].place[0]]
    # The factory may be a user's, and what it makes would fail only in the first round.
    if not wanted.fits(made):
        expected = f"a factory such as those of coterie.{wanted.home}"
        what = f"{name} does not return {KINDS[kind].article} {kind}"
        raise ConfigError("wrong-type", KINDS[kind].path, what, got=made, allowed=expected)
    return made
