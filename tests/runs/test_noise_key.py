"""The key of a private run's noise: a secret of the system, which stays in the run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("dp_accounting", reason="the extra 'privacy' is not installed")

import coterie as ct
from coterie.errors import CheckpointError, ConfigError
from coterie.experiment import check
from coterie.runs.compose import compose
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config
from tests.refusals import refuses

KEY = "noise.key"
ENCODE = {"noise": 2.0, "ranges": {"age": [0, 120]}}


def tables(**privacy: Any) -> dict[str, Any]:
    return {
        "data": {"source": "digits", "partition": {"kind": "iid", "clients": 12}},
        "model": {"name": "mclr"},
        "local": {"epochs": 1, "batch_size": 20},
        "train": {"rounds": 2, "clients_per_round": 12},
        "engine": {"name": "serial"},
        "algorithm": {"name": "fedavg"},
        "privacy": {"noise": 2.0, "accountant": "rdp", **privacy},
    }


def models(folder: Path) -> bytes:
    return (folder / "models/group-0.safetensors").read_bytes()


def test_each_private_run_has_a_secret_that_its_owner_alone_can_read(tmp_path: Path) -> None:
    for name in ("one", "other"):
        run_config(check(tables()), tmp_path / name)
        assert (tmp_path / name / KEY).stat().st_mode & 0o777 == 0o600
    keys = [(tmp_path / name / KEY).read_bytes() for name in ("one", "other")]
    assert keys[0] != keys[1]
    assert len(bytes.fromhex(keys[0].decode())) == 32
    # The same seed, and other noise.
    assert models(tmp_path / "one") != models(tmp_path / "other")
    for path in (tmp_path / "one").rglob("*"):
        if path.is_file() and path.name != KEY:
            assert keys[0].strip() not in path.read_bytes()


def test_noise_of_the_seed_needs_no_secret(tmp_path: Path) -> None:
    for name in ("one", "other"):
        run_config(check(tables(randomness="seed_not_private")), tmp_path / name)
        assert not (tmp_path / name / KEY).exists()
    assert models(tmp_path / "one") == models(tmp_path / "other")


def test_a_longer_run_goes_on_with_its_own_noise(tmp_path: Path) -> None:
    straight = ct.run(ct.fedavg(), data=federation(), **SETTINGS, rounds=3, out=tmp_path / "run")
    saved = straight.save(tmp_path / "copy")
    assert (saved / KEY).stat().st_mode & 0o777 == 0o600
    again = RunFolder.open(saved)
    again.rewind(1)
    resumed = ct.resume(saved)
    assert torch.equal(straight.state.models, resumed.state.models)


def test_a_run_in_memory_is_saved_with_its_own_secret(tmp_path: Path) -> None:
    before = ct.run(ct.fedavg(), data=federation(), **SETTINGS, rounds=1)
    assert before.unsaved is not None
    secret = before.unsaved.composed.noise
    assert secret is not None
    folder = before.save(tmp_path / "run")
    assert int((folder / KEY).read_text(), 16) == secret.seed


def test_a_run_does_not_go_on_with_other_noise(tmp_path: Path) -> None:
    run_config(check(tables()), tmp_path / "run")
    (tmp_path / "run" / KEY).write_bytes(b"0" * 64 + b"\n")
    with refuses(CheckpointError, "damaged", KEY):
        ct.resume(tmp_path / "run", rounds=3)
    (tmp_path / "run" / KEY).unlink()
    with refuses(CheckpointError, "missing", KEY):
        ct.resume(tmp_path / "run", rounds=3)
    # What draws no noise needs no secret.
    assert ct.Result.open(tmp_path / "run").rows[-1]["round"] == 1
    (tmp_path / "run" / "digests.json").unlink()
    with refuses(CheckpointError, "missing", KEY):
        ct.resume(tmp_path / "run", rounds=3)


SETTINGS: dict[str, Any] = {
    "model": "mclr",
    "engine": "serial",
    "clients_per_round": 12,
    "local": ct.Solver(1, 20, 0.1),
    "privacy": ct.Privacy(noise=2.0, accountant="rdp"),
}


def federation() -> ct.Population:
    return ct.load("digits", partition={"kind": "iid", "clients": 12})


# --- columns --------------------------------------------------------------------------------------


def csv_file(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    ages = rng.normal(60, 10, 240).round()
    frame = pd.DataFrame({"age": ages, "y": rng.integers(2, size=240), "client": [*range(60)] * 4})
    frame.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def source(tmp_path: Path) -> dict[str, Any]:
    path = str(csv_file(tmp_path))
    return {"source": "file", "path": path, "features": "*", "label": "y", "encode": ENCODE}


def test_the_noise_of_columns_is_that_of_the_run_and_not_of_its_seed(tmp_path: Path) -> None:
    data = {**source(tmp_path), "partition": {"kind": "natural"}}
    config = check({**tables(), "data": data, "train": {"rounds": 1, "clients_per_round": 20}})
    first = compose(config).population.x
    run_config(config, tmp_path / "run")
    folder = RunFolder.open(tmp_path / "run")
    again = [compose(folder.config(), folder.partition).population.x for _ in range(2)]
    assert torch.equal(*again)
    assert not torch.equal(first, again[0])


def test_columns_of_loaded_data_keep_their_noise_in_the_folder(tmp_path: Path) -> None:
    data = ct.load(source(tmp_path), partition={"kind": "natural"})
    settings = {**SETTINGS, "clients_per_round": 20}
    ct.run(ct.fedavg(), data=data, **settings, rounds=1, out=tmp_path / "run")
    folder = RunFolder.open(tmp_path / "run")
    assert torch.equal(compose(folder.config(), folder.partition).population.x, data.x)
    settings["privacy"] = ct.Privacy(noise=2.0, accountant="rdp", randomness="seed_not_private")
    with refuses(ConfigError, "in-conflict", "privacy.randomness"):
        ct.run(ct.fedavg(), data=data, **settings, rounds=1)
