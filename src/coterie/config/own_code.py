"""Code that a configuration names and that is not part of Coterie, found without running it.

A run folder has the digests of its files: results of code that has changed since are those of
another method, or of another network.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from typing import Any

from coterie.config.kinds import KINDS
from coterie.config.toml_text import value_at
from coterie.config.wording import spelled

FACTORY = re.compile(r"([^\W\d]\w*(?:\.\w+)*):\w+(?:\.\w+)*\Z")
CLUSTER = ("engine", "address")
AUGMENT = ("local", "augment")
TRACKERS = ("log", "to")


@dataclass(frozen=True, slots=True)
class NamedCode:
    """A key of a configuration that names code: the files that would run, as far as known without
    running any, and those that they import, except for installed packages."""

    key: str
    value: str
    files: tuple[Path, ...]
    imported: tuple[Path, ...] = ()


def named_code(tables: Mapping[str, Any]) -> Iterator[NamedCode]:
    """The keys of a configuration that name code, nothing of which is run."""
    searched = _searched(tables)
    for path, value in _factories(tables):
        module = value.partition(":")[0]
        files = module_files(module, searched)
        yield NamedCode(spelled(path), value, files, imported_files(module, searched))
    address = value_at(tables, CLUSTER)
    if isinstance(address, str):
        yield NamedCode(spelled(CLUSTER), address, ())


def _factories(tables: Mapping[str, Any]) -> Iterator[tuple[Sequence[str], str]]:
    """The key paths of a configuration whose values are ``module:factory``, and these."""
    for kind in KINDS.values():
        if not kind.custom or not kind.place:
            continue
        for path, value in _texts(value_at(tables, kind.place), kind.place):
            # A name that would be looked up as a factory is one, whatever its form.
            selects = path[-1] == kind.selector and ":" in value
            if selects or (kind.options_name_code and FACTORY.match(value) is not None):
                yield path, value
    for place, key in ((AUGMENT, "name"), (TRACKERS, "to")):
        for path, value in _texts(value_at(tables, place), place):
            if path[-1] == key and ":" in value:
                yield path, value


def _searched(tables: Mapping[str, Any]) -> list[str]:
    """The folders in which a configuration finds modules, in their order."""
    # Files may have come since these folders were read last.
    PathFinder.invalidate_caches()
    searched = [*sys.path, os.getcwd()]
    folder = tables.get("folder")
    if isinstance(folder, str):
        searched.append(folder)
    return searched


def _texts(value: Any, path: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
    """All texts of a table with their key paths."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, path)


# --- what a run computed with ---------------------------------------------------------------------


def code_digests(tables: Mapping[str, Any]) -> dict[str, str]:
    """Path -> SHA-256 of each file of own code that decides what a run computes: of what its
    configuration names, of the Python objects that it was given, and of what these import."""
    searched = _searched(tables)
    files = {
        one.file
        for name in _modules(tables)
        for one in _reached(name, searched)
        if not _is_installed(one)
    }
    return {str(file): file_digest(file) for file in sorted(files)}


def is_own(module: str) -> bool:
    """Whether a module that is imported is the user's own: of no package that was installed."""
    found = list(_found(module, [*sys.path, os.getcwd()]))
    # That of a notebook has no file.
    return module == "__main__" or any(not _is_installed(one) for one in found)


def changed_code(tables: Mapping[str, Any], before: Mapping[str, str]) -> list[str]:
    """The files of own code that are not as they were ``before``, by their digests. A file may have
    moved: it is found by its module again, or else where it was."""
    if not before:
        return []
    now = code_digests(tables)
    found = {Path(path).name for path in now}
    for path in before:
        if Path(path).name not in found and Path(path).is_file():
            now[path] = file_digest(Path(path))
    as_before = {(Path(path).name, digest) for path, digest in before.items()}
    return [path for path, digest in now.items() if (Path(path).name, digest) not in as_before]


def _modules(tables: Mapping[str, Any]) -> Iterator[str]:
    """The modules that decide what a run computes, some of which may be Coterie's."""
    for path, value in _factories(tables):
        # A tracker changes no result.
        if path[0] != TRACKERS[0]:
            yield value.partition(":")[0]
    for kind in KINDS.values():
        table = value_at(tables, kind.place) if kind.place else None
        if not isinstance(table, Mapping):
            continue
        if kind.entry_points:
            yield from _plugin_modules(kind.entry_points, table.get(kind.selector))
        # What the folder says of an object, see `coterie.experiment.live`.
        for name in (table.get("type"), *table.get("rules", ())):
            if isinstance(name, str):
                yield name.rpartition(".")[0]


def _plugin_modules(group: str, name: Any) -> list[str]:
    """The modules of the plugins of a name. A package in development lies outside of those that are
    installed."""
    return [entry.module for entry in _entry_points(group) if entry.name == name]


@cache
def _entry_points(group: str) -> EntryPoints:
    return entry_points(group=group)


def file_digest(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal; why there is none if it cannot be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        return f"unreadable: {error.strerror}"


# --- what a module imports ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundModule:
    """A module whose source or compiled file was found, and the package that its relative imports
    begin from."""

    name: str
    file: Path
    package: str


def module_files(name: str, searched: Sequence[str]) -> tuple[Path, ...]:
    """The files of a module and of its packages, outermost first, searched in these folders in
    order."""
    return tuple(module.file for module in _found(name, searched))


def imported_files(name: str, searched: Sequence[str]) -> tuple[Path, ...]:
    """The files that a module imports, and that these import, in the order of their paths.

    Left out are the module's own files, the standard library, installed packages and Coterie.
    Imports in functions count. Imports by a computed name (``importlib.import_module``, ``exec``)
    are not seen.
    """
    own = module_files(name, searched)
    return tuple(sorted({one.file for one in _reached(name, searched)}.difference(own)))


def _reached(name: str, searched: Sequence[str]) -> list[FoundModule]:
    """A module with its packages, and all that they import but for installed packages."""
    reached = list(_found(name, searched))
    waiting = [module for module in reached if not _is_installed(module)]
    seen = {module.name for module in reached}
    while waiting:
        module = waiting.pop()
        for imported in _imports(module):
            for one in _found(imported, searched):
                # Once each, since modules may import each other.
                if one.name in seen or _is_installed(one):
                    continue
                seen.add(one.name)
                waiting.append(one)
                reached.append(one)
    return reached


def _found(name: str, searched: Sequence[str]) -> Iterator[FoundModule]:
    """A module after the packages that it is in, as far as their files are found."""
    full = ""
    places = searched
    for part in name.split("."):
        package = full
        full = f"{full}.{part}".lstrip(".")
        spec = _spec(full, places)
        if spec is None:
            return
        inside = spec.submodule_search_locations
        if spec.origin is not None and Path(spec.origin).is_file():
            yield FoundModule(full, Path(spec.origin), package if inside is None else full)
        places = list(inside or ())


def _spec(name: str, places: Sequence[str]) -> ModuleSpec | None:
    try:
        # The finder of files alone: those of other packages may run code to find theirs.
        return PathFinder.find_spec(name, list(places))
    except (ImportError, ValueError, OSError, AttributeError):
        return None


def _imports(module: FoundModule) -> Iterator[str]:
    """The full names that the source of a module imports; of ``from a import b`` also ``a.b``,
    which may be a module."""
    try:
        tree = ast.parse(module.file.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
        # No source, or none that Python would run.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, module.package)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _base(node: ast.ImportFrom, package: str) -> str:
    """The full name of what ``from ... import`` imports from."""
    if not node.level:
        return node.module or ""
    # One dot is the package itself, each further one the package around it.
    parts = package.split(".")
    kept = parts[: len(parts) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _is_installed(module: FoundModule) -> bool:
    """Whether a module came with Python, was installed, or is Coterie's."""
    if module.name.partition(".")[0] == "coterie":
        return True
    file = module.file.resolve()
    return any(file.is_relative_to(place) for place in _installed_places())


@cache
def _installed_places() -> tuple[Path, ...]:
    """The folders of the standard library and of installed packages."""
    paths = sysconfig.get_paths()
    places = [paths[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    places += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple(Path(place).resolve() for place in places)
