"""The three public tables, where the data folder is there."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.data import SOURCES, load_samples
from coterie.errors import DataError
from coterie.experiment import load_config
from tests.conftest import real_data
from tests.docs.pages import ROOT
from tests.refusals import refuses


@pytest.mark.parametrize("name", ["heart_disease", "parkinsons", "beijing_air"])
def test_a_missing_file_is_one_line(name: str, tmp_path) -> None:
    with refuses(DataError, "not-found", "data.source"):
        load_samples({"source": name}, root=tmp_path)


def test_real_heart_disease() -> None:
    samples = load_samples({"source": "heart_disease"}, root=real_data("heart_disease"))
    assert (len(samples), samples.classes) == (920, 2)
    assert samples.table is not None
    names = [column.name for column in samples.table.columns]
    assert "num" not in names
    assert "hospital" not in names
    assert len(names) == 13
    missing = np.isnan(samples.table.values).sum(axis=0)
    found = dict(zip(names, missing.tolist(), strict=True))
    assert found["ca"] == 611
    # All of Switzerland has no cholesterol, which the file writes as 0.
    assert found["chol"] >= 123


def test_real_parkinsons_and_unseen_patients() -> None:
    root = real_data("parkinsons")
    samples = load_samples({"source": "parkinsons"}, root=root)
    assert (len(samples), samples.classes, samples.train_rows) == (5875, 0, 5875)
    unseen = load_samples({"source": "parkinsons", "unseen": "patients"}, root=root)
    train = set(unseen.columns["client"][: unseen.train_rows].tolist())
    test = set(unseen.columns["client"][unseen.train_rows :].tolist())
    assert (len(train), len(test), train & test) == (34, 8, set())


@pytest.mark.parametrize("name", ["heart-disease", "parkinsons", "beijing-air"])
def test_the_examples_are_accepted(name: str) -> None:
    assert load_config(ROOT / "examples" / f"{name}.toml").data.source in SOURCES
