"""Clients of a simulation that have no labels: placed by their inputs after the last round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.data import Population
from coterie.errors import ConfigError
from coterie.export.placing import group_by_inputs
from coterie.export.source import ExportSource
from tests.refusals import refuses

UNLABELLED = (1, 4, 7)
METHODS = {
    "flux": lambda: ct.flux(warmup_rounds=1, groups=2),
    "feroma": lambda: ct.feroma(warmup_rounds=1),
    "pacfl": lambda: ct.pacfl(vectors=2, groups=2),
    "k_fed": lambda: ct.k_fed(groups=2, centres=2),
}


@pytest.fixture(scope="module")
def turned() -> Population:
    """Twelve clients, every second of which has its images turned."""
    partition = {"kind": "planted", "clients": 12, "groups": 2, "how": "rotate"}
    return ct.load("digits", partition=partition, seed=1)


def run(data: Population, method: Any, **options: Any) -> ct.Result:
    call = {"rounds": 3, "model": "mclr", "engine": "serial", "seed": 2, **options}
    return ct.run(
        method, data=data, evaluate={"unseen": UNLABELLED, "unseen_labels": False}, **call
    )


@pytest.mark.parametrize("name", METHODS)
def test_a_client_without_labels_is_placed_as_predict_places_it(
    name: str, turned: Population, tmp_path: Path
) -> None:
    result = run(turned, METHODS[name](), out=tmp_path / "run")
    source = ExportSource.open(tmp_path / "run", None, trust=False)
    for client in UNLABELLED:
        x = turned.x[torch.from_numpy(turned.train[client])]
        assert group_by_inputs(source, x) == result.groups[client] >= 0
    assert result.rows[-1]["unseen_placed"] == len(UNLABELLED)
    assert torch.equal(result.vector_for(1), result.state.models[result.groups[1]])


def test_labels_are_not_read(turned: Population) -> None:
    y = turned.y.clone()
    for client in UNLABELLED:
        held = torch.from_numpy(turned.train[client])
        y[held] = y[held[torch.randperm(len(held))]]
    noisy = replace(turned, y=y)
    for name in ("flux", "pacfl"):
        found = [run(data, METHODS[name]()) for data in (turned, noisy)]
        assert found[0].groups.tolist() == found[1].groups.tolist()
        assert torch.equal(found[0].state.models, found[1].state.models)


def test_a_run_that_goes_on_is_the_run_with_so_many_rounds(
    turned: Population, tmp_path: Path
) -> None:
    straight = run(turned, METHODS["flux"](), rounds=4, out=tmp_path / "straight")
    run(turned, METHODS["flux"](), rounds=2, out=tmp_path / "longer")
    longer = ct.resume(tmp_path / "longer", rounds=4)
    assert torch.equal(straight.state.models, longer.state.models)
    for name in ("groups.csv", "clients.csv"):
        texts = [(tmp_path / one / name).read_text() for one in ("straight", "longer")]
        assert texts[0] == texts[1]
    assert straight.rows[-1]["moves"] == longer.rows[-1]["moves"]


def test_a_method_without_a_rule_leaves_them_without_a_group(turned: Population) -> None:
    result = run(turned, ct.fedgroup(groups=2, alpha=3))
    assert (result.groups[list(UNLABELLED)] == -1).all()
    assert result.rows[-1]["unseen_placed"] == 0
    mean = result.state.models.double().mean(dim=0).float()
    torch.testing.assert_close(result.vector_for(1), mean)
    assert (np.delete(result.groups, UNLABELLED) >= 0).all()


@pytest.mark.parametrize(
    ("evaluate", "path"),
    [({}, "unseen_labels"), ({"unseen": UNLABELLED, "adapt": ct.Adaptation()}, "adapt")],
    ids=["none", "adapted"],
)
def test_what_needs_labels_is_refused(
    turned: Population, evaluate: dict[str, Any], path: str
) -> None:
    with refuses(ConfigError, "in-conflict", f"evaluate.{path}"):
        ct.run(
            ct.fedavg(),
            data=turned,
            model="mclr",
            rounds=1,
            engine="serial",
            evaluate={"unseen_labels": False, **evaluate},
        )
