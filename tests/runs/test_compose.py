"""One way from an experiment to a run: who makes one, and a run whose data are elsewhere."""

from __future__ import annotations

import ast
from pathlib import Path

import coterie
from coterie.experiment import check
from coterie.runs.compose import compose_stand_in


def makes_a_run(tree: ast.AST) -> bool:
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(isinstance(made, ast.Name) and made.id == "RunSpec" for made in calls)


def test_one_module_makes_runs() -> None:
    source = Path(coterie.__file__).parent
    found = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if makes_a_run(ast.parse(path.read_text()))
    ]
    assert found == ["runs/compose.py"]


def test_a_network_of_tokens_is_put_together_without_its_data() -> None:
    tables = {
        "data": {"source": "digits", "partition": {"kind": "iid"}},
        "model": {"name": "transformer", "vocabulary": 7, "per_token": True},
        "task": {"kind": "next_token"},
        "train": {"rounds": 1, "clients_per_round": 2},
        "algorithm": {"name": "fedavg"},
    }
    composed = compose_stand_in(check(tables), ("a", "b"), (5,), tuple("0123456"), (5,))
    assert composed.spec.task.outputs == 7
    assert composed.population.names == ("a", "b")
