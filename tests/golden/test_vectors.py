"""The golden vectors of the specification (computed independently with NumPy and SciPy, six
decimals)."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from coterie.core.groups import Groups
from coterie.math.similarity import directions, edc, edc_embedding, madc
from coterie.rules.inter_group import inter_group

DW = torch.tensor(
    [
        [1, 0, 0, 0, 0, 0],
        [2, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 3, 1, 0, 0],
        [1, 0, 1, 0, 0, 0],
    ],
    dtype=torch.float32,
)
UPPER = np.triu_indices(5, 1)


def test_madc() -> None:
    expected = [
        0.024884,
        0.614370,
        0.626466,
        0.546633,
        0.639254,
        0.627158,
        0.521749,
        0.012095,
        0.539142,
        0.527046,
    ]
    np.testing.assert_allclose(madc(DW)[UPPER], expected, atol=1e-6)


def test_edc() -> None:
    expected = [
        0.025764,
        0.666347,
        0.683530,
        0.364568,
        0.688478,
        0.705503,
        0.380252,
        0.018954,
        0.358894,
        0.371744,
    ]
    np.testing.assert_allclose(edc(DW, 2)[UPPER], expected, atol=1e-6)


def test_directions_are_those_of_a_dense_svd() -> None:
    _, values, vh = np.linalg.svd(DW.numpy().astype(float))
    np.testing.assert_allclose(values, [3.463528, 2.560306, 0.578692, 0.337522, 0], atol=1e-6)
    ours = directions(DW, 4).numpy()
    np.testing.assert_allclose(np.abs((ours * vh[:4]).sum(axis=1)), 1, atol=1e-9)


def test_a_direction_without_energy_is_dropped() -> None:
    assert (directions(DW, 6)[4:] == 0).all()
    assert np.isfinite(edc_embedding(DW, 6)).all()


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("normalized_difference", [[2.360368, 3.275436], [0.639632, 1.830137], [1.0, 0.894427]]),
        ("normalized_model", [[3.5, 4.5], [0.8, 2.4], [1.3, 0.9]]),
        ("convex", [[2.0, 2.571429], [0.5, 1.5], [0.962963, 0.666667]]),
    ],
)
def test_inter_group(rule: str, expected: list[list[float]]) -> None:
    groups = Groups(torch.tensor([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]]), np.zeros(3, np.int64))
    unstable = (
        pytest.warns(RuntimeWarning, match="normalized_model")
        if rule == "normalized_model"
        else nullcontext()
    )
    with unstable:
        after = inter_group(0.5, rule)(groups)
    np.testing.assert_allclose(after.models.numpy(), expected, atol=1e-6)
    assert inter_group(0.0, rule) is None  # the models stay as they are
