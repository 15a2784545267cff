"""The keys of a configuration and the names of choices, read from the source.

The registries and the records import torch, which takes seconds. So they are not imported: records
are classes with annotated fields, options are the parameters of factories, and a registry is a
dictionary of factories or the imports that it is made of.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path

from coterie.config.kinds import KINDS, Kind

# Key of a configuration -> the kind of what it names.
REGISTRIES = {kind.path: kind for kind in KINDS.values() if kind.place}
EXPERIMENT = ("coterie.experiment.tables", "Tables")
DATA = ("coterie.config.choice_tables", "DataTable")


@lru_cache
def registered(key: str) -> list[str]:
    """The names that a key of a configuration may have, and those of plugins."""
    kind = REGISTRIES[key]
    # Names of plugins are in the metadata of packages, so these are not imported either.
    return list(_factories(kind)) + sorted(entry_points(group=kind.entry_points).names)


@lru_cache
def keys_in_tables() -> list[str]:
    """The key paths of tables that are records, such as ``local.lr``, and of single values, such as
    ``seed``."""
    choices = {kind.place[0] for kind in REGISTRIES.values()}
    paths = [path for path in _fields(*EXPERIMENT) if path[0] not in choices]
    paths += [("data", *path) for path in _fields(*DATA) if path[0] != "partition"]
    return [".".join(path) for path in paths]


def options_in(table: str) -> list[str]:
    """The key paths of the options of all choices that a table may make, such as
    ``algorithm.groups``; only the factories of this table are read."""
    found: dict[str, None] = {}
    for kind in REGISTRIES.values():
        if kind.place[0] == table:
            for factory in _factories(kind).values():
                for path in _options(kind, factory):
                    found[".".join((*kind.place, *path))] = None
    return list(found)


def _options(kind: Kind, factory: str) -> list[tuple[str, ...]]:
    """The options of a factory; those of options that are tables themselves."""
    module, node = _definition(kind.module, factory)
    if not isinstance(node, ast.FunctionDef):
        return []
    found = []
    for parameter in (*node.args.args, *node.args.kwonlyargs):
        name = parameter.arg
        # The table [migration] is an argument of methods in Python.
        if name not in (*kind.context, "migration") and not name.startswith("_"):
            inner = _inner_fields(module, parameter.annotation)
            found += [(name, *path) for path in inner] or [(name,)]
    for decorator in node.decorator_list:
        # As `takes_fields_of(Record)`.
        found += _inner_fields(module, decorator)
    return found


def _factories(kind: Kind) -> dict[str, str]:
    """Name -> the factory's name in the module of the registry."""
    module, table = _definition(kind.module, kind.table)
    found = {}
    for node in ast.walk(table) if table is not None else ():
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Name):
                    found[str(key.value)] = value.id
        elif isinstance(node, ast.comprehension):
            texts = [one.value for one in ast.walk(node.iter) if isinstance(one, ast.Constant)]
            found |= {str(text): str(text) for text in texts}
    if found:
        return found
    # The registry of algorithms is its imports, as `import name as name`.
    return {name: name for name, (_, _, passed_on) in _imported(module).items() if passed_on}


# --- the source -----------------------------------------------------------------------------------


@lru_cache
def _fields(module: str, record: str) -> list[tuple[str, ...]]:
    """The fields of a record that a file can hold, and of records that are their values; none of
    another name."""
    module, node = _definition(module, record)
    if not isinstance(node, ast.ClassDef) or not _is_record(node):
        return []
    found = []
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and not _is_hidden(field):
            name = ast.unparse(field.target)
            inner = _inner_fields(module, field.annotation)
            found += [(name, *path) for path in inner] or [(name,)]
    return found


def _inner_fields(module: str, annotation: ast.AST | None) -> list[tuple[str, ...]]:
    """The fields of the records in a type."""
    if annotation is None:
        return []
    names = [node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)]
    return [path for name in names for path in _fields(module, name)]


def _is_record(node: ast.ClassDef) -> bool:
    """Whether a class is a dataclass, or a table of pydantic."""
    marks = [*node.decorator_list, *node.bases]
    return any(word in ast.unparse(mark) for mark in marks for word in ("dataclass", "Table"))


def _is_hidden(field: ast.AnnAssign) -> bool:
    """Whether no file can set a field."""
    text = ast.unparse(field)
    return any(mark in text for mark in ("PYTHON_ONLY", "ClassVar", "compare=False"))


def _definition(module: str, name: str) -> tuple[str, ast.stmt | None]:
    """What a name of a module means, and the module that defines it; ``None`` where that is none of
    ours."""
    while module.startswith("coterie."):
        for node in _tree(module).body:
            if _name_of(node) == name:
                return module, node
        if name not in _imported(module):
            break
        module, name, _ = _imported(module)[name]
    return module, None


def _name_of(node: ast.stmt) -> str | None:
    """The name of a function, a class or an annotated table."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.target)
    return None


@lru_cache
def _imported(module: str) -> dict[str, tuple[str, str, bool]]:
    """Name -> the module that it is imported from, its name there, and whether it is passed on, as
    ``import name as name``."""
    return {
        alias.asname or alias.name: (str(node.module), alias.name, alias.name == alias.asname)
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@lru_cache
def _tree(module: str) -> ast.Module:
    path = Path(__file__).parents[1].joinpath(*module.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))
