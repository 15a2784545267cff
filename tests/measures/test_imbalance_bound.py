"""RFedAvg's convergence bound: cases by hand, gradients by autograd, and steps of a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import coterie as ct
from coterie.core.groups import Groups
from coterie.errors import ConfigError
from coterie.measures.imbalance_bound import ImbalanceBound, LogisticLoss, imbalance_bound
from coterie.measures.optional import make_measures
from tests.conftest import blobs
from tests.refusals import refuses

L2 = 0.05


def test_the_terms_of_a_case_by_hand() -> None:
    # w^t is 15 from the minimum, the classes' gradients are (-3, 4) and (-3, -4), eta is 1, and
    # all weight is on the first class.
    found = imbalance_bound(
        model=np.zeros(2),
        minimum=np.array([15.0, 0.0]),
        gradients=np.array([[-3.0, 4.0], [-3.0, -4.0]]),
        shares=np.array([1.0, 0.0]),
        eta=1.0,
        smoothness=1.0,
    )
    assert found.distance == 15
    assert found.gradient == 5  # of (-3, 4)
    # Equal shares step to (3, 0), which is 12 from (15, 0).
    assert found.gap == 12
    # R = sqrt(12^2 + 4^2 (b_1 - b_2)^2) is even around equal shares.
    assert found.slope == 0
    # (eta s)^2 / R with s^2 = 4^2 + 4^2, and the least R is 12.
    assert found.curvature == pytest.approx(32 / 12)
    assert found.imbalance == 0.5
    # 225/2 - 25/2 + 5 (12 + 32/12 / 2 * 1/2) = 100 + 5 (12 + 2/3)
    assert found.value == pytest.approx(100 + 5 * (12 + 2 / 3))
    assert found.printed == found.value
    # The loss |w - w*|^2 / 2 after the step to (3, -4) is (12^2 + 4^2) / 2 = 80.
    assert found.value > 80


def test_the_printed_bound_does_not_hold_at_equal_shares() -> None:
    # F^1 = (w + 2)^2 / 2 with a fifth of the samples, F^2 = (w - 1/2)^2 / 2 with the others: F =
    # w^2 / 2 + const, so that L_1 = 1 and w* = 0. At w = 1 the gradients are 3 and 1/2.
    found = imbalance_bound(
        model=np.array([1.0]),
        minimum=np.array([0.0]),
        gradients=np.array([[3.0], [0.5]]),
        shares=np.array([1.0, 0.0]),
        eta=1.0,
        smoothness=1.0,
    )
    after = 1.0 - 3.0
    loss = after**2 / 2
    # Equal shares step to 1 - 7/4 = -3/4; the curvature is 2 (5/4)^2 / (3/4) = 25/6.
    assert found.gap == 0.75
    assert found.slope == pytest.approx(1.25)
    assert found.curvature == pytest.approx(25 / 6)
    # 1/2 - 9/2 + 3 (3/4 + 25/6 / 2 / 2) without the slope of 5/4
    assert found.printed == pytest.approx(1.375)
    assert found.printed < loss
    assert found.value == pytest.approx(1.375 + 3 * 1.25)
    assert found.value > loss


def test_equal_shares_leave_no_term_of_imbalance_even_at_the_minimum() -> None:
    # The step ends at the minimum, where R has a corner.
    found = imbalance_bound(
        model=np.array([1.0]),
        minimum=np.array([0.0]),
        gradients=np.array([[1.5], [0.5]]),
        shares=np.array([0.5, 0.5]),
        eta=1.0,
        smoothness=1.0,
    )
    assert (found.gap, found.imbalance, found.curvature) == (0, 0, float("inf"))
    assert found.value == 0  # which is the loss


def test_shares_that_are_none_are_refused() -> None:
    gradients = np.zeros((2, 3))
    for shares in (np.array([0.5, 0.2]), np.array([1.0])):
        with pytest.raises(ValueError, match="expected 2 that sum to 1"):
            imbalance_bound(np.zeros(3), np.zeros(3), gradients, shares, 0.1, 1.0)


def logistic() -> tuple[LogisticLoss, ct.Population]:
    population = blobs()
    return LogisticLoss.of(population, L2), population


def _size(loss: LogisticLoss) -> int:
    return loss.inputs.shape[1] * loss.classes


@pytest.mark.parametrize("seed", range(5))
def test_the_loss_after_any_step_is_below_the_bound(seed: int) -> None:
    loss, _ = logistic()
    rng = np.random.default_rng(seed)
    start = rng.normal(size=_size(loss))
    minimum = loss.minimum(start)
    best = loss.value(minimum)
    for size in (0.0, 0.01, 0.1, 1.0):
        model = minimum + size * (start - minimum)
        gradients = loss.class_gradients(model)
        for eta in (0.1, 1.0, 3.0):
            shares = rng.dirichlet(np.full(loss.classes, 0.3))
            found = imbalance_bound(
                model, minimum, gradients, shares, eta / loss.smoothness, loss.smoothness
            )
            after = model - found.eta * (shares @ gradients)
            assert loss.value(after) - best <= found.value + 1e-9


def test_the_step_of_the_bound_is_that_of_a_run_in_which_all_clients_join() -> None:
    loss, population = logistic()
    eta = 0.1
    states: list[Groups] = []
    result = ct.run(
        ct.rfedavg_kmeans(clusters=1, gradient="one", eta=eta),
        data=population,
        model="mclr",
        local=ct.Solver(l2=L2),
        rounds=2,
        engine="serial",
        on_round=lambda result: states.append(result.groups),
        train={"measures": make_measures(("balance",), ct.Solver(), ct.fedavg())},
    )
    before, after = (state.models[0].double().numpy() for state in states)
    shares = np.array(result.rows[1]["balance"]["weighted"]["b"])
    expected = before - eta * (shares @ loss.class_gradients(before))
    assert after == pytest.approx(expected, abs=1e-6)


def test_a_larger_imbalance_is_a_larger_bound() -> None:
    terms = {
        "smoothness": 2.0,
        "eta": 0.1,
        "distance": 1.0,
        "gradient": 1.0,
        "gap": 1.0,
        "slope": 0.0,
        "curvature": 1.0,
    }
    assert (
        ImbalanceBound(**terms, imbalance=0.2).value > ImbalanceBound(**terms, imbalance=0.1).value
    )


def test_loss_and_gradients_are_those_of_autograd() -> None:
    population = blobs()
    loss = LogisticLoss.of(population, L2)
    features = loss.inputs.shape[1] - 1
    net = nn.Linear(features, loss.classes).double()
    flat = torch.cat([net.weight.reshape(-1), net.bias]).detach().numpy()
    held = np.concatenate(population.train)
    x = population.x[held].double()
    y = population.y[held]

    def check(mine: torch.Tensor, found: np.ndarray) -> float:
        net.zero_grad()
        value = nn.functional.cross_entropy(net(x[mine]), y[mine]) + L2 * (net.weight**2).sum()
        value.backward()
        grad = torch.cat([p.grad.reshape(-1) for p in (net.weight, net.bias)])
        assert found == pytest.approx(grad.numpy(), abs=1e-12)
        return float(value.detach())

    everyone = torch.ones(len(y), dtype=torch.bool)
    assert check(everyone, loss.gradient(flat)) == pytest.approx(loss.value(flat))
    by_class = loss.class_gradients(flat)
    for label in range(loss.classes):
        check(y == label, by_class[label])


def test_no_point_is_below_the_minimum_and_the_sum_of_biases_stays() -> None:
    loss = LogisticLoss.of(blobs(), L2)
    rng = np.random.default_rng(0)
    start = rng.normal(size=loss.inputs.shape[1] * loss.classes)
    minimum = loss.minimum(start)
    assert minimum[-loss.classes :].sum() == pytest.approx(start[-loss.classes :].sum(), abs=1e-6)
    for _ in range(20):
        near = minimum + 0.01 * rng.normal(size=len(minimum))
        assert loss.value(near) > loss.value(minimum)


def test_what_has_no_minimum_is_refused_in_a_line() -> None:
    population = blobs()
    with refuses(ConfigError, "out-of-range", "l2"):
        LogisticLoss.of(population, 0.0)
    x = torch.tensor([[1.0], [2.0]])
    one_class = ct.Population(x, torch.tensor([0, 0]), ([0, 1],), ([],), classes=2)
    with refuses(ConfigError, "missing", "data"):
        LogisticLoss.of(one_class, 0.1).class_gradients(np.zeros(4))
