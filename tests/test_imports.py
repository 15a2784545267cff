"""No module needs itself: imports inside functions count, which import-linter's layers of packages do
not see."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import coterie

SOURCE = Path(coterie.__file__).parent


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imported(tree: ast.AST, modules: set[str]) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in modules else str(node.module))
    return found & modules


def test_no_module_imports_itself_by_way_of_others() -> None:
    paths = {module_name(path): path for path in SOURCE.rglob("*.py")}
    modules = set(paths)
    graph = {name: imported(ast.parse(path.read_text()), modules) for name, path in paths.items()}
    # `static_order` raises a `CycleError` with the modules of a circle.
    assert len(list(TopologicalSorter(graph).static_order())) == len(modules)
