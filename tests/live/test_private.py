"""A private run of real processes, ``make test-flower``: it equals the simulation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
pytest.importorskip("dp_accounting", reason="the extra 'privacy' is not installed")

from coterie.config.toml_text import read
from coterie.experiment import check
from tests.live.federations import ROUNDING, relative_difference
from tests.live.test_federation import rows_of, site

pytestmark = pytest.mark.flower


def test_noise_over_flower_is_that_of_the_simulation(tmp_path: Path) -> None:
    with site(tmp_path, 3) as three:
        tables = read(three.folder / "run.toml")
        tables["algorithm"] = {"name": "ifca", "groups": 2}
        tables["train"] |= {"rounds": 3, "evaluate_every": 3, "clients_per_round": 2}
        tables["train"]["sampler"] = "poisson"
        del tables["bounds"]
        tables["privacy"] = {"noise": 0.5, "clip": 0.2, "quantile": 0.5, "accountant": "rdp"}
        tables["privacy"]["randomness"] = "seed_not_private"
        config = check(tables)
        out = three.run(config)
        gap = relative_difference(out, three.simulated(config, "private"))
    rows = rows_of(out)
    print("largest difference", gap, [row["privacy"] for row in rows])
    assert gap <= ROUNDING
    assert not any(row["refused"] for row in rows)
    assert sum(row["privacy"]["clipped"] for row in rows) > 0
    assert json.loads((out / "releases.json").read_text())["rounds"] == [0, 1, 2]
