"""Code that the configuration of a run folder names: it runs only if the user trusts the folder.

A configuration that the user gives on the command line is the user's own, and so is a folder that
was made from it. A folder of a stranger may name any function as ``module:factory``, or a Ray
cluster, which may send any code. What was trusted is remembered outside the folder, by the
folder's path and by the digest of the code and of the files that it imports: code that has changed
has to be trusted again.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from coterie.config.kinds import KINDS
from coterie.config.toml_text import value_at
from coterie.config.wording import spelled
from coterie.errors import ConfigError, shown
from coterie.files import read_json

FACTORY = re.compile(r"([^\W\d]\w*(?:\.\w+)*):\w+(?:\.\w+)*\Z")
CLUSTER = ("engine", "address")
AUGMENT = ("local", "augment")
TRACKERS = ("log", "to")
# More imported files than these are counted in a refusal.
MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class NamedCode:
    """A key of a configuration that names code: the files that would run, as far as known without
    running any, and those that they import, except for installed packages."""

    key: str
    value: str
    files: tuple[Path, ...]
    imported: tuple[Path, ...] = ()


def require_trust(folder: Path, tables: Mapping[str, Any], *, trusted: bool) -> None:
    """Refuse the configuration of a run folder that names code, unless the user trusts it."""
    found = list(named_code(tables))
    if not found:
        return
    if trusted:
        remember(folder, tables)
        return
    if _remembered(folder) == _digest(found):
        return
    named = ", ".join(_described(code) for code in found)
    what = "its configuration runs code that is not part of Coterie"
    do = "read that code, and then add --trust"
    raise ConfigError("not-trusted", folder, what, found=named, do=do)


def remember(folder: Path, tables: Mapping[str, Any]) -> None:
    """Trust the code that the configuration of a folder names, from now on."""
    found = list(named_code(tables))
    if not found:
        return
    file = _file_of(folder)
    # A home that cannot be written: the user is asked again next time.
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        record = {"folder": str(folder.resolve()), "code": _digest(found)}
        file.write_text(json.dumps(record) + "\n", encoding="utf-8")


# --- what would run -------------------------------------------------------------------------------


def named_code(tables: Mapping[str, Any]) -> Iterator[NamedCode]:
    """The keys of a configuration that name code, nothing of which is run."""
    folder = tables.get("folder")
    searched = [*sys.path, os.getcwd()]
    if isinstance(folder, str):
        searched.append(folder)
    for kind in KINDS.values():
        if not kind.custom or not kind.place:
            continue
        for path, value in _texts(value_at(tables, kind.place), kind.place):
            # A name that would be looked up as a factory is one, whatever its form.
            selects = path[-1] == kind.selector and ":" in value
            if selects or (kind.options_name_code and FACTORY.match(value) is not None):
                yield _code(path, value, searched)
    for place, key in ((AUGMENT, "name"), (TRACKERS, "to")):
        for path, value in _texts(value_at(tables, place), place):
            if path[-1] == key and ":" in value:
                yield _code(path, value, searched)
    address = value_at(tables, CLUSTER)
    if isinstance(address, str):
        yield NamedCode(spelled(CLUSTER), address, ())


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


def _code(path: Sequence[str], value: str, searched: Sequence[str]) -> NamedCode:
    """What a key names, with the files of its module and of what that imports."""
    module = value.partition(":")[0]
    files = module_files(module, searched)
    return NamedCode(spelled(path), value, files, imported_files(module, searched))


def _described(code: NamedCode) -> str:
    """What would run, the file that it stands in, and those that it imports."""
    where = ""
    if code.files:
        where = f" ({code.files[-1]})"
    if code.imported:
        named = ", ".join(str(file) for file in code.imported[:MOST_NAMED])
        more = len(code.imported) - MOST_NAMED
        where += f", which imports {named}" + (f" and {more} more files" if more > 0 else "")
    return f"{code.key} = {shown(code.value)}{where}"


# --- what is trusted ------------------------------------------------------------------------------


def _digest(found: Sequence[NamedCode]) -> str:
    """The same as long as the same code would run."""
    total = hashlib.sha256()
    for code in found:
        files = [(str(file), _file_digest(file)) for file in (*code.files, *code.imported)]
        total.update(json.dumps([code.key, code.value, files]).encode())
    return total.hexdigest()


def _file_digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        return f"unreadable: {error.strerror}"


def _file_of(folder: Path) -> Path:
    """The file of the user that says what is trusted of a folder."""
    base = os.environ.get("XDG_STATE_HOME")
    state = Path(base) if base else Path("~/.local/state").expanduser()
    name = hashlib.sha256(str(folder.resolve()).encode("utf-8", "surrogateescape")).hexdigest()
    return state / "coterie" / "trusted" / f"{name[:32]}.json"


def _remembered(folder: Path) -> str:
    """The digest of the code that is trusted, empty where none is."""
    try:
        return str(read_json(_file_of(folder))["code"])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return ""


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
