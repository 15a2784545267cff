"""The source files that a module imports, found without running any of them."""

from __future__ import annotations

import ast
import site
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path


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
    first = list(_found(name, searched))
    own = {module.file for module in first}
    found: set[Path] = set()
    waiting = [module for module in first if not _is_installed(module)]
    seen = {module.name for module in first}
    while waiting:
        module = waiting.pop()
        for imported in _imports(module):
            for one in _found(imported, searched):
                # Once each, since modules may import each other.
                if one.name in seen or _is_installed(one):
                    continue
                seen.add(one.name)
                waiting.append(one)
                found.add(one.file)
    return tuple(sorted(found - own))


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
