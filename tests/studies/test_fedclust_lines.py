"""FedClust's computed lines beside runs and the study of layers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.errors import ConfigError
from coterie.experiment import check
from coterie.runs.compose import compose
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config
from coterie.studies.layers import study_layers
from coterie.studies.reproduce.data_lines import layer_distances, sent_ratio, sent_values
from coterie.studies.reproduce.metrics import METRICS
from coterie.studies.reproduce.papers import Line
from coterie.studies.reproduce.tables import paper
from tests.refusals import refuses

LINES = {
    f"{line.table} {line.name}": line for table in paper("fedclust").tables for line in table.lines
}


def tables(**algorithm: Any) -> dict[str, Any]:
    return {
        "data": {"source": "digits", "partition": {"kind": "iid", "clients": 12}},
        "model": {"name": "mlp"},
        "local": {"epochs": 1},
        "train": {"rounds": 3, "clients_per_round": 4, "sampler": "uniform"},
        "algorithm": algorithm,
        "engine": {"name": "serial"},
    }


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "fedavg"},
        {"name": "fedclust", "groups": 2},
        {"name": "pacfl", "groups": 2, "vectors": 2},
        {"name": "ifca", "groups": 3},
    ],
    ids=lambda options: options["name"],
)
def test_the_formula_is_what_the_ledger_counts(tmp_path: Path, algorithm: dict[str, Any]) -> None:
    config = check(tables(**algorithm))
    run_config(config, tmp_path / "run")
    rows = RunFolder(tmp_path / "run").rows()
    counted = METRICS["sent_bytes"](rows, {}, LINES["communication fedclust/ledger"])
    assert counted is not None
    # The ledger also has sizes, losses and choices: some numbers for each client of a round.
    assert counted / 4 == pytest.approx(sent_values(config, (1, 8, 8), 10), rel=2e-3)


def test_the_ratios_of_the_paper_are_those_of_its_formulas() -> None:
    found = {
        name: sent_ratio(LINES[f"communication {name}/formula"], None)
        for name in ("ifca", "pacfl", "fedclust")
    }
    # K (m + 1) T over 2 K T, with m = 2.
    assert found["ifca"] == 1.5
    # 100 clients beside 2 * 10 * 200 transfers of a model, and 850 numbers each.
    d = 44_426
    assert found["fedclust"] == pytest.approx(1 + 100 * (d + 850) / (4000 * d))
    assert found["pacfl"] == pytest.approx(1 + 100 * 784 * 3 * 10 / (4000 * d))


def test_a_method_without_a_formula_is_refused() -> None:
    with refuses(ConfigError, "does-not-fit", "algorithm.name"):
        sent_values(check(tables(name="fesem", groups=2)), (1, 8, 8), 10)


def test_lines_of_the_ledger_share_the_runs_of_the_table() -> None:
    ledger = LINES["communication fedclust/ledger"].configs(seed=0)
    table = [LINES[f"1a {name}/fmnist"].configs(seed=0)[0] for name in ("fedclust", "fedavg")]
    assert [one.resolved() for one in ledger] == [one.resolved() for one in table]


def test_separation_and_distances_are_those_of_the_study() -> None:
    def small(line: Line) -> Line:
        partition = {"kind": "planted", "clients": 6, "groups": 2, "how": "labels"}
        data = {"source": "digits", "partition": partition}
        return replace(line, tables={**tables(name="fedavg"), "data": data})

    first = small(LINES["fig1 lenet5/separation"])
    study = study_layers(compose(first.config()))
    of_first = layer_distances(first, None)
    of_final = layer_distances(small(LINES["fig1 lenet5-final/separation"]), None)
    assert of_first.mean is not None
    assert of_final.mean is not None
    for found, layer in ((of_first, study.layers[0]), (of_final, study.layers[-1])):
        assert found.values == (layer.separation,)
        assert found.distances is not None
        assert np.array_equal(found.distances.distance, layer.distance)
        assert study.planted is not None
        assert found.distances.groups == tuple(study.planted)
        assert list(found.distances.names) == study.names
    # Of disjoint labels the final layer tells most.
    assert of_final.mean > of_first.mean > 1
