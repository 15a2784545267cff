"""RFedAvg's golden vectors of the specification."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from coterie.math.imbalance import (
    adaptive_threshold,
    balancing,
    ccs,
    class_shares,
    cluster_imbalance,
    reciprocal,
)
from coterie.math.similarity import cosine

HISTOGRAMS = np.array([[30, 0, 0], [20, 5, 0], [0, 40, 0], [0, 0, 10]], float)
CLUSTER = np.array([0, 0, 1, 2])


def test_threshold() -> None:
    found = [adaptive_threshold(loss, 2.3, 0.1) for loss in (2.3, 1.2, 0.6, 0.1, 2.5, 0.05)]
    np.testing.assert_allclose(found, [0.996195, 0.675590, 0.330814, 0, 0.996195, 0], atol=1e-6)
    assert adaptive_threshold(0.03, 0.04, 0.05) == pytest.approx(0)


def test_ccs() -> None:
    g = torch.tensor([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9], [-1, 0]])
    assert ccs(cosine(g, g), 0.8).tolist() == [0, 0, 1, 1, 2]
    assert ccs(cosine(g, g), 0.0).tolist() == [0] * 5


def test_weights() -> None:
    level = np.abs(105 / 3 - HISTOGRAMS).sum(axis=1)
    size = HISTOGRAMS.sum(axis=1)
    assert level.tolist() == [75, 80, 75, 95]
    found = cluster_imbalance(level, size, CLUSTER)
    assert found.tolist() == [50, 75, 95]
    np.testing.assert_allclose(reciprocal(found, 105), [0.456, 0.304, 0.24], atol=1e-6)
    best = balancing(class_shares(HISTOGRAMS, CLUSTER))
    np.testing.assert_allclose(best, [0.366667, 0.3, 0.333333], atol=1e-6)
