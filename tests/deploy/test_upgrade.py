"""An upgrade with a run in between: what an earlier version left goes on.

`earlier_run` was written by commit d631e51 (version 0.2.0 in the making, protocol 2: training and
evaluation in messages of their own, rows without `exchanges` and `scored`). Its server was stopped
after the second of four rounds of FlexCFL with four nodes.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.cli.main import invoke
from coterie.config import check
from coterie.config.reading import read
from coterie.runs.run import run_config
from tests.engines.test_flower import deploy, models, nodes

EARLIER = Path(__file__).parent / "earlier_run"


def test_a_run_that_an_earlier_version_left_goes_on_over_nodes(tmp_path: Path) -> None:
    shutil.copytree(EARLIER, tmp_path / "run")
    before = (tmp_path / "run" / "rounds.jsonl").read_bytes()
    config = read(EARLIER / "config.toml")
    grid = nodes(tmp_path, config, clients=4)
    reported = deploy(tmp_path, config, grid, resume=True, clients=4, min_clients=4)
    assert not reported.refused
    assert [row["round"] for row in reported.rows] == [2, 3]
    after = (tmp_path / "run" / "rounds.jsonl").read_bytes()
    assert after.startswith(before)
    rows = [json.loads(line) for line in after.splitlines()]
    assert [row["round"] for row in rows] == [0, 1, 2, 3]
    assert ["scored" in row for row in rows] == [False, False, True, True]
    assert invoke(["show", str(tmp_path / "run")]) == 0
    # The whole run by this version alone: clients train as they did.
    run_config(check(config), tmp_path / "here")
    difference = models(tmp_path / "run") - models(tmp_path / "here")
    assert float(torch.abs(difference).max()) <= 1e-6
