"""A run killed at a random moment and resumed leaves what an unkilled one leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("COTERIE_SLOW") != "1", reason="takes minutes; COTERIE_SLOW=1 runs it"
    ),
]

KILLS = 20
ROUNDS = 120
CONFIG = {
    "seed": 11,
    "data": {
        "source": "digits",
        "partition": {"kind": "planted", "clients": 60, "groups": 3, "how": "swap"},
    },
    "model": {"name": "mlp"},
    "local": {"epochs": 10, "batch_size": 5, "lr": 0.05},
    "train": {"rounds": ROUNDS, "clients_per_round": 10},
    "algorithm": {
        "name": "fedgroup",
        "groups": 3,
        "alpha": 5,
        "newcomer": "aux_latest",
        "eta_g": 0.01,
    },
    "engine": {"name": "pool", "workers": 2},
    "checkpoint": {"seconds": 0.2},
}


@dataclass(frozen=True)
class Straight:
    """The run that nobody killed: what it left, and the seconds from its first row to its end."""

    left: dict[str, Any]
    seconds: float


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "coterie.cli.main", *map(str, arguments)]


def rows(run: Path) -> int:
    file = run / "rounds.jsonl"
    if file.exists():
        return file.read_bytes().count(b"\n")
    return 0


def wait_for(count: int, process: subprocess.Popen[bytes], run: Path) -> None:
    while process.poll() is None and rows(run) < count:
        time.sleep(0.002)


def left(run: Path) -> dict[str, Any]:
    """All that a run leaves, but for wall-clock times and digests of them; checkpoints fall where
    the clock says, but for the last."""
    found = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    files = {path.name: path.read_bytes() for path in (run / "models").iterdir()}
    last = max((run / "checkpoints").iterdir())
    return {
        "rows": [
            {name: value for name, value in row.items() if name not in ("seconds", "chain")}
            for row in found
        ],
        "names": sorted(path.name for path in run.iterdir()),
        "groups": (run / "groups.csv").read_bytes(),
        "config": (run / "config.toml").read_bytes(),
        "state": (last.name, last.read_bytes()),
        **files,
    }


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("kills") / "c.toml"
    file.write_text(tomli_w.dumps(CONFIG))
    return file


@pytest.fixture(scope="module")
def straight(config: Path) -> Straight:
    run = config.parent / "straight"
    process = subprocess.Popen(command("run", config, "--out", run), stdout=subprocess.DEVNULL)
    wait_for(1, process, run)
    begun = time.monotonic()
    assert process.wait() == 0
    return Straight(left(run), time.monotonic() - begun)


@pytest.fixture(scope="module")
def landed() -> list[int]:
    """How many rows stood when a kill met a run that was not over."""
    return []


@pytest.mark.parametrize("number", range(KILLS))
def test_a_killed_run_goes_on_to_the_same_end(
    number: int, config: Path, straight: Straight, landed: list[int]
) -> None:
    """Kill ``number`` falls at random into its own twentieth of the run, however fast the run
    happens to be."""
    run = config.parent / f"killed-{number}"
    process = subprocess.Popen(
        command("run", config, "--out", run), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    row, part = np.random.default_rng(number).random(2)
    wait_for(1 + int((number + row) / KILLS * (ROUNDS - 5)), process, run)
    time.sleep(1.5 * part * straight.seconds / ROUNDS)
    process.kill()
    if process.wait() != 0 and not (run / "summary.json").exists():
        landed.append(rows(run))
        print(
            f"kill {number}: {rows(run)} of {ROUNDS} rows, checkpoints {names(run / 'checkpoints')}"
        )
    assert (
        subprocess.run(command("resume", run), stdout=subprocess.DEVNULL, check=False).returncode
        == 0
    )
    assert left(run) == straight.left
    assert not [name for name in names(run / "checkpoints") if name.startswith(".")]


def names(folder: Path) -> Sequence[str]:
    return sorted(path.name for path in folder.iterdir())


def test_most_kills_fell_into_a_run(landed: list[int]) -> None:
    """The tests above prove little when the kills come too late (it needs them to have run
    before)."""
    assert len(landed) >= KILLS * 3 // 4, landed
    assert max(landed) - min(landed) > ROUNDS // 2
