"""What the shell completes: names, keys and run folders.

The registries and the records import torch, which takes seconds. So names and keys are read from
their source: the keys of a registry's table, or the imports that it is made of, and the fields of a
record's class.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path

from coterie.config.kinds import KINDS
from coterie.listed import LISTED
from coterie.studies.reproduce import PAPERS

# Key of a configuration -> the kind of what it names.
REGISTRIES = {kind.path: kind for kind in KINDS.values() if kind.place}
SHOWN_RUNS = 50


@lru_cache
def registered(key: str) -> list[str]:
    """The names that a key of a configuration may have, and those of plugins."""
    kind = REGISTRIES[key]
    keys: list[str] = []
    exported: list[str] = []
    for statement in ast.parse(_path_of(kind.module).read_text(encoding="utf-8")).body:
        # Registries are annotated dictionaries, or made of `import X as X`; a test compares what is
        # found here with them.
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == kind.table:
            keys = _keys_of(statement)
        elif isinstance(statement, ast.ImportFrom):
            exported += _exported_by(statement)
    # Names of plugins are in the metadata of packages, so these are not imported either.
    return (keys or exported) + sorted(entry_points(group=kind.entry_points).names)


def _path_of(module: str) -> Path:
    path = Path(__file__).parents[1].joinpath(*module.split(".")[1:])
    if path.is_dir():
        return path / "__init__.py"
    return path.with_suffix(".py")


def _keys_of(statement: ast.AnnAssign) -> list[str]:
    """The keys of a dictionary, or the texts that it is made of."""
    found: list[ast.AST | None] = []
    for node in ast.walk(statement):
        if isinstance(node, ast.Dict):
            found += node.keys
        elif isinstance(node, ast.comprehension):
            found += ast.walk(node.iter)
    return [str(key.value) for key in found if isinstance(key, ast.Constant)]


def _exported_by(statement: ast.ImportFrom) -> list[str]:
    """The names in ``from ... import name as name``, as the registry of algorithms has them."""
    return [one.name for one in statement.names if one.name == one.asname]


def complete_algorithms(incomplete: str) -> list[str]:
    """Names between commas: the last one is completed."""
    before, comma, last = incomplete.rpartition(",")
    return [
        before + comma + name
        for name in _starting(registered("algorithm.name"), last)
        if name not in before.split(",")
    ]


@lru_cache
def keys_of_records() -> list[str]:
    """The key paths of all tables that are records, such as ``local.lr``."""
    choices = {key.split(".")[0] for key in REGISTRIES}
    paths = _fields("coterie.experiment.experiment", "Experiment")
    return [".".join(path) for path in paths if len(path) > 1 and path[0] not in choices]


@lru_cache
def _fields(module: str, record: str) -> list[tuple[str, ...]]:
    """The fields of a dataclass, and of those that are their values; none of any other name."""
    found: list[tuple[str, ...]] = []
    for tree in _modules_with(module, record):
        homes = _homes_of_names(tree)
        for field in _fields_in(tree, record):
            used = {one.id for one in ast.walk(field.annotation) if isinstance(one, ast.Name)}
            inner = [path for one in used for path in _fields(homes.get(one, module), one)]
            name = ast.unparse(field.target)
            found += [(name, *path) for path in inner] or [(name,)]
    return found


def _modules_with(module: str, record: str) -> list[ast.Module]:
    """The module that has a class: the one named, or one of the package that exports it."""
    if not module.startswith("coterie."):
        return []
    path = _path_of(module)
    files = [path]
    if path.name == "__init__.py":
        files = sorted(path.parent.glob("*.py"))
    texts = [file.read_text(encoding="utf-8") for file in files]
    return [ast.parse(text) for text in texts if f"class {record}" in text]


def _homes_of_names(tree: ast.Module) -> dict[str, str]:
    """What a module imports by name, with where from."""
    imports = [one for one in tree.body if isinstance(one, ast.ImportFrom) and one.module]
    return {alias.name: str(one.module) for one in imports for alias in one.names}


def _fields_in(tree: ast.Module, record: str) -> list[ast.AnnAssign]:
    """The fields of a dataclass that a file can hold; none where the module does not have it."""
    return [
        field
        for one in tree.body
        if isinstance(one, ast.ClassDef) and one.name == record
        if any("dataclass" in ast.unparse(decorator) for decorator in one.decorator_list)
        for field in one.body
        if isinstance(field, ast.AnnAssign) and not _of_python_only(field)
    ]


def _of_python_only(field: ast.AnnAssign) -> bool:
    text = ast.unparse(field)
    return "PYTHON_ONLY" in text or "ClassVar" in text


def complete_set(incomplete: str) -> list[str]:
    """Keys such as ``local.lr=``, and for choices what they may be."""
    key, equals, value = incomplete.partition("=")
    if not equals:
        return [f"{name}=" for name in _starting([*REGISTRIES, *keys_of_records()], key)]
    if key not in REGISTRIES:
        return []
    return [f"{key}={name}" for name in _starting(registered(key), value)]


def complete_kind(incomplete: str) -> list[str]:
    """What there is to list."""
    return _starting(LISTED, incomplete)


def complete_paper(incomplete: str) -> list[str]:
    """The papers whose tables can be reproduced."""
    return _starting(PAPERS, incomplete)


def complete_engine(incomplete: str) -> list[str]:
    """The engines."""
    return _starting(registered("engine.name"), incomplete)


def complete_run(incomplete: str) -> list[str]:
    """Folders of runs below the folder that was typed, or without one, below this folder and
    ``runs``. Where none fits, other folders are completed: a run may be below them."""
    runs: list[str] = []
    others: list[str] = []
    for prefix in _prefixes(incomplete):
        folder = Path(prefix or ".").expanduser()
        for name, is_run in sorted(_folders(folder)):
            if is_run:
                runs.append(f"{prefix}{name}")
            else:
                others.append(f"{prefix}{name}/")
    wanted = _starting(runs, incomplete) or _starting(others, incomplete)
    return wanted[:SHOWN_RUNS]


def _prefixes(incomplete: str) -> list[str]:
    typed, slash, _ = incomplete.rpartition("/")
    if slash:
        return [f"{typed}/"]
    return ["", "runs/"]


def _folders(folder: Path) -> Iterator[tuple[str, bool]]:
    # What cannot be read is not completed: a shell shows no message.
    with suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and not path.name.startswith("."):
                yield path.name, (path / "config.toml").is_file()


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
