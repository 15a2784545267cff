"""What the shell completes: names and run folders.

The registries import torch, which takes seconds. So their names are read from their source: the
keys of the table, or the imports that the table is made of.
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
    for statement in ast.parse(_source_of(kind.module)).body:
        # Registries are annotated dictionaries, or made of `import X as X`; a test compares what is
        # found here with them.
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == kind.table:
            keys = _keys_of(statement)
        elif isinstance(statement, ast.ImportFrom):
            exported += _exported_by(statement)
    # Names of plugins are in the metadata of packages, so these are not imported either.
    return (keys or exported) + sorted(entry_points(group=kind.entry_points).names)


def _source_of(module: str) -> str:
    parts = module.split(".")[1:]
    path = Path(__file__).parents[1].joinpath(*parts)
    if path.is_dir():
        path = path / "__init__"
    return path.with_suffix(".py").read_text(encoding="utf-8")


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


def complete_set(incomplete: str) -> list[str]:
    """Choices such as ``data.source=`` with what they may be."""
    key, equals, value = incomplete.partition("=")
    if not equals:
        return [f"{name}=" for name in _starting(REGISTRIES, key)]
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
    """Folders of runs below the folder that was typed.

    Without one they are those of this folder and of ``runs``. Where none fits, other folders are
    completed: a run may be below them.
    """
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
