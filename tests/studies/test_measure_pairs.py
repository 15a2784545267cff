"""FedGroup's Fig. 5: which pairs it shows, and what their two distances are."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.core.keys import Key
from coterie.experiment import check
from coterie.runs.compose import compose
from coterie.studies.reproduce import data_lines as module
from coterie.studies.reproduce.data_lines import MeasurePairs, measure_pairs

CLIENTS = 8
CONFIG = {
    "data": {
        "source": "digits",
        "partition": {"kind": "planted", "clients": CLIENTS, "groups": 2, "how": "rotate"},
    },
    "model": {"name": "mclr"},
    "local": {"lr": 0.1},
    "train": {"rounds": 1, "clients_per_round": 2},
    "algorithm": {"name": "fedgroup", "groups": 2, "alpha": 3},
    "engine": {"name": "serial"},
}


def test_every_pair_of_clients_has_both_distances() -> None:
    composed = compose(check(CONFIG))
    found = measure_pairs(composed)
    pairs = CLIENTS * (CLIENTS - 1) // 2
    assert found.edc.shape == found.madc.shape == (pairs,)
    planted = composed.population.planted
    assert planted is not None
    first, second = np.triu_indices(CLIENTS, k=1)
    same = planted[first] == planted[second]
    # Both measures see the planted groups, so that they go together.
    assert found.edc[same].max() < found.edc[~same].min()
    assert found.madc[same].max() < found.madc[~same].min()
    assert found.correlation > 0.9


def test_correlation_is_that_of_a_line() -> None:
    x = np.array([0.0, 1.0, 2.0])
    assert MeasurePairs(x, 3 * x + 1, Key(0)).correlation == pytest.approx(1)
    assert MeasurePairs(x, -x, Key(0)).correlation == pytest.approx(-1)


def test_a_scatter_shows_pairs_and_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(10.0)
    pairs = MeasurePairs(x, x**2, Key(0))
    assert pairs.sample() == tuple((value, value**2) for value in x)
    monkeypatch.setattr(module, "MOST_DRAWN", 4)
    shown = pairs.sample()
    assert len(set(shown)) == 4
    assert all(up == across**2 for across, up in shown)
