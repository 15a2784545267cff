"""The two example apps, with their nodes in this process."""

from __future__ import annotations

import sys
import tomllib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.app import Context, RecordDict
from flwr.serverapp.strategy import FedAvg
from sklearn.metrics import adjusted_rand_score

from coterie.flower import ClusteredResult, ClusteredStrategy
from tests.flower.strategy.ordinary import AppGrid, node_ids

EXAMPLES = Path(__file__).parents[3] / "examples"


def run_app(
    name: str, nodes: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> tuple[list[ClusteredResult], AppGrid]:
    """Run an app as ``flwr run`` does; the results of its strategies and its nodes."""
    folder = EXAMPLES / name
    settings = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    parts = settings["tool"]["flwr"]["app"]
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(tmp_path)
    components = []
    for component in (parts["components"]["serverapp"], parts["components"]["clientapp"]):
        module, _, attribute = component.partition(":")
        components.append(getattr(import_module(module), attribute))
    server, client = components
    grid = AppGrid(client, node_ids(nodes), run_config=parts["config"])
    results = []
    start = ClusteredStrategy.start

    def noted(*args: object, **options: object) -> ClusteredResult:
        results.append(start(*args, **options))
        return results[-1]

    monkeypatch.setattr(ClusteredStrategy, "start", noted)
    server(grid, Context(1, 0, {}, RecordDict(), parts["config"]))
    package = module.partition(".")[0]
    for loaded in [one for one in sys.modules if one.partition(".")[0] == package]:
        del sys.modules[loaded]
    return results, grid


@pytest.mark.slow
def test_the_pytorch_app_finds_four_groups(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (result,), grid = run_app("flower_pytorch", 12, monkeypatch, tmp_path)
    found = [result.groups[node] for node in grid.parts]
    assert adjusted_rand_score([part % 4 for part in grid.parts.values()], found) == 1.0
    assert capsys.readouterr().out.count("3 nodes, accuracy") == 4
    assert len(list(tmp_path.glob("group-*.pt"))) == 4


def test_the_scikit_learn_app_serves_both_populations_better_than_one_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (result,), grid = run_app("flower_sklearn", 10, monkeypatch, tmp_path)
    found = [result.groups[node] for node in grid.parts]
    assert adjusted_rand_score([part % 2 for part in grid.parts.values()], found) == 1.0
    rounds = len(result.rows)
    together = FedAvg().start(
        AppGrid(grid.app, grid.parts, run_config=grid.run_config),
        initial_arrays=grid.sent[0].content["arrays"],
        num_rounds=rounds,
    )
    one_model = together.evaluate_metrics_clientapp[rounds]["accuracy"]
    of_groups = result.evaluate_metrics_groups[rounds]
    assert min(of_groups[j]["accuracy"] for j in (0, 1)) > one_model + 0.1
    with np.load(tmp_path / "group-1.npz") as saved:
        assert saved["coef"].shape == (3, 4)
        assert saved["coef"].dtype == np.float64
