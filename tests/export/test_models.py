"""Which model of an export serves which client."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from coterie.core.groups import Groups
from coterie.core.served import Served
from coterie.experiment import check
from coterie.export import export_run
from coterie.export.models import NO_GROUP, ExportedModels
from coterie.rules.assigning import by_group
from coterie.runs.run import run_config
from tests.export.conftest import CLIENTS, tables

MIXED = """
from dataclasses import replace

import numpy as np
import coterie as ct
from coterie.core.served import Served


def serve(groups):
    row = np.where(np.arange(len(groups.member)) == 0, 0, 2)
    return Served(groups.models, row, np.array([[0.25, 0.75]]))


def make():
    return replace(ct.ifca(groups=2), serve=serve)
"""


def state(member: list[int]) -> Groups:
    return Groups(torch.tensor([[1.0], [3.0]]), np.array(member))


@pytest.mark.parametrize(
    ("member", "names"),
    [
        ([1, 0, 1], ["group-1", "group-0", "group-1"]),
        ([1, -1, 0], ["group-1", "no-group", "group-0"]),
        ([0, 0, 0], ["group-0"] * 3),
    ],
)
def test_every_group_has_a_model_and_clients_without_one_theirs(
    member: list[int], names: list[str]
) -> None:
    models = ExportedModels.of(state(member), by_group(state(member)))
    assert models.names == names
    assert list(models.vectors) == sorted({"group-0", "group-1", *names})
    assert (NO_GROUP in models.vectors) == (-1 in member)


def test_mixtures_have_models_too() -> None:
    mixtures = np.array([[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]])
    served = Served(torch.tensor([[1.0], [3.0]]), np.array([4, 0, 3, 4]), mixtures)
    models = ExportedModels.of(state([1, 0, 1, 1]), served)
    assert models.names == ["mixture-1", "group-0", "mixture-0", "mixture-1"]
    values = {name: vector.item() for name, vector in models.vectors.items()}
    assert values == {"group-0": 1.0, "group-1": 3.0, "mixture-0": 2.0, "mixture-1": 2.5}


def test_a_run_that_serves_mixtures_is_exported(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mixed7.py").write_text(MIXED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    run_config(check(tables(table, algorithm={"name": "mixed7:make"})), "run")
    done = export_run("run")
    # The last one is for clients that come later.
    names = ["group-0", "group-1", "mixture-0", "no-group"]
    assert [group.name for group in done.card.figures.groups] == names
    loaded = runpy.run_path(str(done.folder / "load.py"))
    weights = [
        torch.cat([p.flatten() for p in network.parameters()])
        for network in (
            loaded["load"](0),
            loaded["load"](1),
            loaded["load_for"](sorted(CLIENTS)[1]),
        )
    ]
    assert torch.allclose(weights[2], 0.25 * weights[0] + 0.75 * weights[1], atol=1e-7)
