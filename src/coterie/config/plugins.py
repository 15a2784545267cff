"""Factories of other packages, found by their entry points and imported when they are first used.

A package adds an algorithm with two lines of its ``pyproject.toml``:

    [project.entry-points."coterie.algorithms"]
    mine = "my_package.mine:mine"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType

from coterie.config.schema import Factory
from coterie.errors import ConfigError, Problem, shown


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
