"""A real node whose data have no labels, ``make test-flower``: placed as in the simulation, and sent its
model."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.cli.main import invoke
from coterie.config.toml_text import read
from coterie.experiment import check
from coterie.flower.kept import SERVED_FILE, ServedModel
from coterie.flower.operate.folder import init
from coterie.runs.run import run_config
from tests.flower.conftest import CONFIG
from tests.live.federations import ROUNDING, left_behind, relative_difference

pytestmark = pytest.mark.flower


def groups_of(run: Path) -> list[int]:
    with (run / "groups.csv").open() as file:
        return [int(row["group"]) for row in csv.DictReader(file)]


def test_the_last_of_four_nodes_has_no_labels(tmp_path: Path) -> None:
    text = CONFIG.replace("clients = 3", "clients = 4").replace(
        'name = "fedavg"', 'name = "flux"\nwarmup_rounds = 1\ngroups = 2'
    )
    (tmp_path / "c.toml").write_text(text)
    folder = tmp_path / "d"
    init(folder, tmp_path / "c.toml")
    assert invoke(["deploy", "local", str(folder), "--clients", "4", "--unlabelled", "1"]) == 0
    (out,) = (folder / "runs").iterdir()
    tables = read(folder / "run.toml") | {
        "engine": {"name": "serial"},
        "evaluate": {"unseen": [3], "unseen_labels": False},
    }
    here = tmp_path / "here"
    run_config(check(tables), here)
    assert relative_difference(out, here) <= ROUNDING
    placed = groups_of(out)
    assert placed == groups_of(here)
    assert placed[3] >= 0
    (file,) = tmp_path.rglob(SERVED_FILE)
    mine = ServedModel.read(file)
    assert (mine.group, mine.by) == (placed[3], "its inputs")
    from safetensors.numpy import load_file

    stored = load_file(out / "models" / f"group-{mine.group}.safetensors")
    assert all(np.array_equal(mine.tensors[name], stored[name]) for name in stored)
    assert not left_behind(tmp_path)
