"""Scores on samples that are kept from training, by which settings are chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie as ct
from coterie.cli.main import invoke
from coterie.core.keys import Key
from coterie.data import Population
from coterie.data.sources.files import DataForm
from coterie.errors import ConfigError
from coterie.experiment import check, load_config
from coterie.flower.federation_spec import FederationSpec
from coterie.runs.compose import compose
from coterie.runs.folder.store import RunFolder
from coterie.runs.held_out import on_validation
from tests.refusals import refuses

CONFIG = """
[data]
source = "digits"
[data.partition]
kind = "iid"
clients = 10
[model]
name = "mclr"
[train]
rounds = 2
clients_per_round = 5
[algorithm]
name = "fedavg"
[engine]
name = "serial"
"""


@pytest.fixture(scope="module")
def digits() -> Population:
    return ct.load("digits", partition={"kind": "iid", "clients": 10})


def run(data: Population, **options: Any) -> ct.Result:
    return ct.run(ct.fedavg(), data=data, model="mclr", rounds=2, clients_per_round=5, **options)


def test_test_samples_change_nothing(digits: Population) -> None:
    """The scores are the same whatever the test samples are, here none at all."""
    nothing = tuple(np.empty(0, np.int64) for _ in range(10))
    blind = digits.with_parts(digits.train, nothing)
    ours = run(digits, evaluate={"validation": 0.2})
    assert (
        ours.rows[-1]["accuracy"] == run(blind, evaluate={"validation": 0.2}).rows[-1]["accuracy"]
    )
    assert ours.rows[-1]["accuracy"] != run(digits).rows[-1]["accuracy"]


def test_validation_samples_are_not_trained_on(digits: Population) -> None:
    found = on_validation(digits, 0.2, Key(0))
    for before, train, test in zip(digits.train, found.train, found.test, strict=True):
        assert sorted([*train, *test]) == sorted(before)
        assert abs(len(test) - 0.2 * len(before)) <= 0.5
    assert on_validation(digits, None, Key(0)) is digits


def test_a_run_folder_says_it_and_python_computes_the_same(
    tmp_path: Path, digits: Population
) -> None:
    (tmp_path / "c.toml").write_text(CONFIG)
    command = ["run", str(tmp_path / "c.toml"), "--set", "evaluate.validation=0.2"]
    assert invoke([*command, "--out", str(tmp_path / "run")]) == 0
    folder = RunFolder.open(tmp_path / "run")
    row = folder.rows()[-1]
    assert row["accuracy"] == run(digits, evaluate={"validation": 0.2}).rows[-1]["accuracy"]
    summary = folder.results.summary()
    assert summary is not None
    said = summary["protocol"]["accuracy"]
    assert "each on 20 % of its training samples, which it does not train on, with" in said
    # The partition of the folder is that of the data, from which any run can start again.
    config = load_config(tmp_path / "run" / "config.toml")
    assert [len(rows) for rows in compose(config).partition.train] == [
        len(rows) for rows in digits.train
    ]


def test_what_it_goes_not_with(digits: Population) -> None:
    with refuses(ConfigError, "in-conflict", "evaluate.validation"):
        run(digits, shift="swap_all", evaluate={"validation": 0.2})
    tables = {
        "data": {"source": "digits", "partition": {"kind": "iid", "clients": 10}},
        "model": {"name": "mclr"},
        "train": {"rounds": 2, "clients_per_round": 5},
        "algorithm": {"name": "fedavg"},
        "evaluate": {"validation": 0.2},
    }
    with refuses(ConfigError, "in-conflict", "evaluate.validation"):
        check({**tables, "shift": {"kind": "swap_all"}})
    with refuses(ConfigError, "in-conflict", "evaluate.validation"):
        FederationSpec.of(check(tables), DataForm((1, 8, 8), tuple("0123456789")), 6)
