"""All that a configuration can name: algorithms, models, datasets, engines and the like.

The factories of a kind stand in a table of the package that they belong to; this module knows where
the tables are, adds the plugins of other packages and the user's own factories, and validates
options by the factory's signature. The packages are above this one, so they are reached by name,
and only when they are needed: importing them takes seconds.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, Literal

from pydantic import ValidationError, create_model

from coterie.config import custom, schema
from coterie.config.choice_tables import TABLES, ChoiceTable
from coterie.config.kinds import KINDS
from coterie.config.problems import problems
from coterie.config.schema import Factory
from coterie.config.wording import describe_type, nearest, spelled
from coterie.errors import ConfigError, CoterieError, Problem, shown


class Open(ChoiceTable, extra="allow"):
    """The table of a choice that is unknown: its options cannot be checked."""


def builtin(kind: str) -> Mapping[str, Factory]:
    """The factories of a kind that Coterie has itself, by name; imports them."""
    where = KINDS[kind]
    return getattr(importlib.import_module(where.module), where.table)


def plugins(kind: str) -> Plugins:
    """The plugins of a kind; imports none of them."""
    group = KINDS[kind].entry_points
    if not group:
        return Plugins({}, {})
    return find_plugins(group, frozenset(builtin(kind)))


def names(kind: str) -> tuple[str, ...]:
    """The registered names of a kind: Coterie's own, then those of plugins."""
    return (*builtin(kind), *plugins(kind).usable)


def find(kind: str, name: str) -> Factory:
    """The factory of a name: Coterie's own, a plugin's, or the user's as ``module:factory``."""
    # Coterie's own first, so that no installed package can change what a configuration means.
    own = builtin(kind)
    if name in own:
        return own[name]
    others = plugins(kind)
    if name in others.usable:
        return others.usable[name].load()
    if name in others.refused:
        raise ConfigError.of([others.refused[name]])
    if KINDS[kind].custom and ":" in name:
        try:
            factory = custom.import_factory(name)
            schema.factory_options(factory)  # its signature may name types that are not there
        except Exception as error:  # importing runs the user's code, which may raise anything
            what = f"cannot be used ({type(error).__name__}: {shown(str(error))})"
            expected = "'module:factory', importable from here or from 'folder'"
            path = KINDS[kind].path
            raise ConfigError("cannot-be-used", path, what, got=name, allowed=expected) from error
        return factory
    raise unknown(kind, name)


def package(kind: str, name: str) -> str | None:
    """The package that a name comes with; ``None`` for Coterie's own."""
    plugin = plugins(kind).usable.get(name)
    if plugin is None:
        return None
    return plugin.package


def unknown(kind: str, name: Any) -> ConfigError:
    """The error of a name that nothing has."""
    where = KINDS[kind]
    known = tuple(sorted(names(kind)))
    expected = describe_type(Literal[known])
    if where.custom:
        expected += ", or 'module:factory'"
    hint = nearest(name, known)
    return ConfigError("unknown-choice", where.path, got=name, allowed=expected, hint=hint)


@lru_cache(maxsize=256)
def table_model(kind: str, factory: Factory | None, custom_name: bool = False) -> type[ChoiceTable]:
    """The pydantic model of the table of one choice: its selector, and the factory's options; any
    options for an unknown factory."""
    where = KINDS[kind]
    known = tuple(sorted(names(kind)))
    base = TABLES[where.selector]
    fields: dict[str, Any] = {where.selector: (Literal[known], ...)}
    if custom_name:
        fields[where.selector] = (str, ...)
    if factory is None:
        return create_model(kind.capitalize(), __base__=(base, Open), **fields)
    if where.custom_options or not custom_name:
        fields |= schema.fields(factory, _not_options(kind, factory))
    return create_model(kind.capitalize(), __base__=base, **fields)


def _not_options(kind: str, factory: Factory) -> tuple[str, ...]:
    """Parameters of a factory that no table sets: what the library fills in, and what is a table of
    its own."""
    where = KINDS[kind]
    found = (*where.context, where.selector)
    if kind == "algorithm" and migrates(factory):
        found = (*found, "migration")
    return found


def migrates(algorithm: Factory) -> bool:
    """Whether a factory of Coterie's own takes a migration, which a configuration says in
    ``[migration]``."""
    own = builtin("algorithm").values()
    # A user's algorithm may have an option "migration" that means something else; it stays
    # an option.
    return algorithm in own and "migration" in inspect.signature(algorithm).parameters


def default_detector(name: Any) -> str:
    """The drift detector of an algorithm, ``none`` where it has none of its own."""
    factory = None
    if isinstance(name, str):
        factory = builtin("algorithm").get(name)
    if factory is None or not migrates(factory):
        return "none"
    return str(inspect.signature(factory).parameters["migration"].default)


def options(kind: str, name: str) -> dict[str, tuple[Any, Any]]:
    """The options of a choice: name -> (type, default, ``...`` where there is none)."""
    factory = find(kind, name)
    return schema.factory_options(factory, _not_options(kind, factory))


def _resolve(kind: str, table: Mapping[str, Any]) -> tuple[str, Factory, dict[str, Any]]:
    """What a table names, its factory, and the options, validated."""
    where = KINDS[kind]
    if not isinstance(table, Mapping):
        expected = f"a table, such as {{'{where.selector}': '{names(kind)[0]}'}}"
        raise ConfigError("wrong-type", spelled(where.place), got=table, allowed=expected)
    given = schema.python_values(table)
    name = given.get(where.selector)
    if not isinstance(name, str):
        raise unknown(kind, name)
    factory = find(kind, name)
    model = table_model(kind, factory, name not in names(kind))
    try:
        record = model.model_validate(given)
    except ValidationError as error:
        place = spelled(where.place)
        found = problems(error, given, model)
        raise ConfigError.of(replace(one, path=f"{place}.{one.path}") for one in found) from None
    # Only what the table sets: the defaults are the factory's, and some are no values of TOML.
    chosen = {option: getattr(record, option) for option in given if option != where.selector}
    return name, factory, chosen


def build(kind: str, table: Mapping[str, Any], **context: Any) -> Any:
    """Make what a table names. The factory is passed what it has parameters for in ``context``.

    Raises:
        ConfigError: for an unknown name, wrong options, or code of others that fails.
    """
    where = KINDS[kind]
    name, factory, chosen = _resolve(kind, table)
    call = _bound(factory, context, chosen)
    # An error of our own factory is a bug and keeps its traceback. The code of others may fail as
    # it likes: that is one line, which names whose code it was.
    if name in builtin(kind):
        return call()
    try:
        return call()
    except CoterieError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        what = f"failed ({type(error).__name__}: {reason})"
        expected = f"a factory that returns {where.article} {kind}"
        raise ConfigError("failed", where.path, what, got=name, allowed=expected) from error


def _bound(
    factory: Factory, context: Mapping[str, Any], chosen: Mapping[str, Any]
) -> Callable[[], Any]:
    """A factory with its arguments, some of which may be positional-only."""
    positional = []
    named = dict(chosen)
    for key, parameter in inspect.signature(factory).parameters.items():
        if key in context and parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(context[key])
        elif key in context:
            named[key] = context[key]
    return partial(factory, *positional, **named)


# --- plugins --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point of another package."""

    name: str
    group: str
    package: str
    entry_point: EntryPoint = field(repr=False)

    def __str__(self) -> str:
        return f"{self.name!r} of package {self.package!r} (entry point {self.group})"

    def load(self) -> Factory:
        expected = "an installed package whose entry point names a function"
        try:
            factory: Factory = self.entry_point.load()
        except Exception as error:  # importing runs code of others, which may raise anything
            what = f"cannot be loaded ({type(error).__name__}: {shown(str(error))})"
            raise ConfigError(
                "cannot-be-read", "plugin", what, found=self, allowed=expected
            ) from error
        if not callable(factory):
            what = f"not a function but {shown(factory)}"
            raise ConfigError("wrong-type", "plugin", what, found=self, allowed=expected)
        return factory


@dataclass(frozen=True, slots=True)
class Plugins:
    """The plugins of one group.

    Args:
        refused: name -> what is wrong with it; these are not used.
    """

    usable: Mapping[str, Plugin]
    refused: Mapping[str, Problem]


@lru_cache(maxsize=32)
def find_plugins(group: str, builtin: frozenset[str]) -> Plugins:
    """The plugins of a group; none is imported yet. A name that Coterie has itself, or that two
    packages have, is refused: its meaning would depend on what else is installed."""
    # A list for each name: which of two packages comes first depends on the order of `sys.path`.
    by_name: dict[str, list[Plugin]] = {}
    for entry in entry_points(group=group):
        package = "unknown" if entry.dist is None else entry.dist.name
        by_name.setdefault(entry.name, []).append(Plugin(entry.name, group, package, entry))
    usable = {}
    refused = {}
    for name, found in sorted(by_name.items()):
        packages = sorted({plugin.package for plugin in found})
        if name in builtin:
            refused[name] = _clash(found[0], packages, "Coterie already has this name")
        elif len(packages) > 1:
            refused[name] = _clash(found[0], packages, "several packages define this name")
        else:
            usable[name] = found[0]
    return Plugins(MappingProxyType(usable), MappingProxyType(refused))


def _clash(plugin: Plugin, packages: list[str], why: str) -> Problem:
    whose = ", ".join(packages)
    got = f"{plugin.name!r} of {whose} (entry point {plugin.group})"
    return Problem("in-conflict", "plugin", why, got, "another name")
