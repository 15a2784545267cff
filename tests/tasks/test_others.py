"""Accuracy, and binary, multilabel and next-token tasks: metrics against scikit-learn, and that they learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as reference
from sklearn.calibration import calibration_curve
from torch import Tensor, nn

import coterie as ct
from coterie.core.task import Task
from coterie.errors import Code
from coterie.tasks import (
    baseline,
    binary,
    classification,
    multilabel,
    next_token,
    pooled_sums,
)
from coterie.tasks.binary import SCORE_BINS, average_precision, precision_bound, score_bin
from tests.conftest import assert_near
from tests.refusals import refuses
from tests.tasks.federations import exact_net, federation, pooled, scored
from tests.tasks.test_regression import CASES

Check = Callable[[Any, Any], float]


def check_metrics(
    population: ct.Population,
    net: nn.Module,
    task: Task,
    engine: tuple[str, int | None],
    references: dict[str, Check],
    predicted: Callable[[Tensor], Any],
) -> None:
    """Sums of the clients, added, give what scikit-learn gives for all predictions together."""
    each = scored(population, net, task, *engine)
    outputs, targets = pooled(population, net)
    together = {name: values.sum(axis=0) for name, values in each.items()}
    found = {metric.name: float(metric.value(together)) for metric in task.metrics}
    y = targets.numpy()
    z = predicted(outputs.double())
    binned = {
        "auroc": reference.roc_auc_score,
        "average_precision": reference.average_precision_score,
    }
    others = set(binned) | {f"{name}_bound" for name in binned}
    assert set(found) - others == set(references)
    for name, check in references.items():
        assert found[name] == pytest.approx(check(y, z), abs=1e-9), name
    for name, check in binned.items():
        if name in found:
            bound = found[f"{name}_bound"]
            assert abs(found[name] - check(y, z)) <= bound + 1e-12
            assert bound < 0.05


def expected_calibration(y: Any, p: Any) -> float:
    """The calibration error from scikit-learn's curve."""
    shares, means = calibration_curve(y, p, n_bins=15)
    counts = np.bincount(np.minimum((p * 15).astype(int), 14), minlength=15)
    counts = counts[counts > 0]
    return float((np.abs(shares - means) * counts).sum() / len(y))


def probabilities(outputs: Tensor) -> Any:
    return torch.sigmoid(outputs).numpy()[:, 0]


@pytest.mark.parametrize(("seed", "engine"), CASES)
def test_accuracy(seed: int, engine: tuple[str, int | None]) -> None:
    rng = np.random.default_rng(seed)
    y = torch.tensor(rng.integers(3, size=90))
    population = federation(rng, y, 3)
    references: dict[str, Check] = {"accuracy": reference.accuracy_score}
    task = classification().fitted(y, 3)
    check_metrics(
        population, exact_net(rng, 3), task, engine, references, lambda z: z.argmax(dim=1).numpy()
    )


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@pytest.mark.parametrize(("seed", "engine"), CASES)
def test_metrics_of_classes(seed: int, engine: tuple[str, int | None]) -> None:
    """Classes are of very different sizes, and the last one has no test sample in some federations."""
    # All of them are measured whichever comes first.
    headlines: tuple[Any, ...] = ("accuracy", "balanced_accuracy", "macro_f1")
    headline = headlines[seed % 3]
    rng = np.random.default_rng(seed)
    shares = np.array([0.6, 0.25, 0.1, 0.04, 0.01])
    y = torch.tensor(rng.choice(5, size=90, p=shares))
    population = federation(rng, y, 5)
    references: dict[str, Check] = {
        "accuracy": reference.accuracy_score,
        "balanced_accuracy": reference.balanced_accuracy_score,
        "macro_f1": lambda y, z: reference.f1_score(y, z, average="macro", zero_division=0),
    }
    task = classification(headline, metrics=("balanced_accuracy", "macro_f1")).fitted(y, 5)
    assert task.metrics[0].name == headline
    check_metrics(
        population, exact_net(rng, 5), task, engine, references, lambda z: z.argmax(dim=1).numpy()
    )


def test_predictions_beyond_the_classes_are_wrong_and_of_no_class() -> None:
    task = classification(metrics=("macro_f1",)).fitted(torch.tensor([0, 1]), 2)
    sums = pooled_sums(task, torch.eye(4)[[0, 3, 2, 1]], torch.tensor([0, 0, 1, 1]))
    assert sums["predicted"].tolist() == [1, 1]
    # Each class has one of its two samples right, and is predicted once: 2 / (2 + 1).
    found = {metric.name: float(metric.value(sums)) for metric in task.metrics}
    assert found == {"accuracy": 0.5, "macro_f1": pytest.approx(2 / 3)}


def test_nothing_more_is_counted_than_was_asked_for() -> None:
    y = torch.tensor([0, 1, 2])
    assert classification().fitted(y, 3).sums == (("correct", ()),)
    balanced = classification("balanced_accuracy").fitted(y, 3)
    assert dict(balanced.sums) == {"correct": (), "hits": (3,), "held": (3,)}
    with refuses(ct.ConfigError, "unknown-choice", "metrics"):
        classification(metrics=("auroc",))  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["serial", "vmap"])
def test_further_metrics_change_neither_models_nor_accuracy(engine: str) -> None:
    rng = np.random.default_rng(3)
    data = federation(rng, torch.tensor(rng.integers(3, size=90)), 3)
    options: dict[str, Any] = {"data": data, "model": "mclr", "rounds": 2, "engine": engine}
    plain = ct.run(ct.ifca(groups=2), **options)
    asked = classification("macro_f1", metrics=("balanced_accuracy",))
    more = ct.run(ct.ifca(groups=2), task=asked, **options)
    assert torch.equal(more.state.models, plain.state.models)
    assert more.headline.name == "macro_f1"
    for row, bare in zip(more.rows, plain.rows, strict=True):
        assert row["metrics"]["accuracy"] == bare["accuracy"]
        assert "metrics" not in bare
        assert 0 < row["metrics"]["balanced_accuracy"] < 1
        assert row["macro_f1_groups"] != row["metrics_groups"]["accuracy"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("seed", "engine"), CASES)
def test_binary_metrics(seed: int, engine: tuple[str, int | None]) -> None:
    rng = np.random.default_rng(seed)
    y = torch.tensor(rng.random(90) < rng.uniform(0.2, 0.8)).long()
    population = federation(rng, y, 2)
    references: dict[str, Check] = {
        "accuracy": lambda y, p: reference.accuracy_score(y, p > 0.5),
        "balanced_accuracy": lambda y, p: reference.balanced_accuracy_score(y, p > 0.5),
        "brier": reference.brier_score_loss,
        "log_loss": reference.log_loss,
        "ece": expected_calibration,
    }
    task = binary().fitted(y, 2)
    check_metrics(population, exact_net(rng, 1), task, engine, references, probabilities)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("seed", "engine"), CASES)
def test_multilabel_metrics(seed: int, engine: tuple[str, int | None]) -> None:
    rng = np.random.default_rng(seed)
    y = torch.tensor(rng.random((90, 4)) < 0.4).float()
    population = federation(rng, y)
    references: dict[str, Check] = {
        "macro_f1": lambda y, z: reference.f1_score(y, z, average="macro", zero_division=0),
        "micro_f1": lambda y, z: reference.f1_score(y, z, average="micro", zero_division=0),
        "label_accuracy": lambda y, z: 1 - reference.hamming_loss(y, z),
        "exact_match": reference.accuracy_score,
    }
    task = multilabel().fitted(y, 0)
    check_metrics(
        population, exact_net(rng, 4), task, engine, references, lambda z: (z > 0).float().numpy()
    )


class PerToken(nn.Module):
    """Logits of three tokens at each of two places, from one dense layer of exact weights."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        self.dense = exact_net(rng, 6)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.dense(x)
        return made.reshape(len(x), 2, 3)


@pytest.mark.parametrize(("seed", "engine"), CASES)
def test_token_metrics(seed: int, engine: tuple[str, int | None]) -> None:
    rng = np.random.default_rng(seed)
    y = torch.tensor(rng.integers(3, size=(90, 2)))
    y[rng.random((90, 2)) < 0.2] = -100
    population = federation(rng, y, 3)

    def counted(check: Check) -> Check:
        def among(y: Any, z: Any) -> float:
            keep = y.reshape(-1) != -100
            return check(y.reshape(-1)[keep], z.reshape(-1, 3)[keep])

        return among

    references: dict[str, Check] = {
        "perplexity": counted(lambda y, p: np.exp(reference.log_loss(y, p, labels=[0, 1, 2]))),
        "token_accuracy": counted(lambda y, p: reference.accuracy_score(y, p.argmax(axis=1))),
    }
    task = next_token().fitted(y, 3)
    check_metrics(
        population, PerToken(rng), task, engine, references, lambda z: torch.softmax(z, 2).numpy()
    )


# --- training -------------------------------------------------------------------------------------


def learnable(task: str) -> tuple[ct.Population, Any]:
    """Twelve clients whose targets follow from the signs of their inputs."""
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(480, 6)), dtype=torch.float32)
    parts = np.arange(480).reshape(12, 40)
    train, test = tuple(parts[:, :30]), tuple(parts[:, 30:])
    if task == "binary":
        return ct.Population(x, (x[:, 0] > 0.5).long(), train, test, 2), "mclr"
    if task == "multilabel":
        return ct.Population(x, (x[:, :3] > 0).float(), train, test), "mclr"
    tokens = torch.stack([(x[:, 0] > 0).long(), 1 + (x[:, 1] > 0).long()], dim=1)
    return ct.Population(x, tokens, train, test, 3), PerToken(rng)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("task", ["binary", "multilabel", "next_token"])
@pytest.mark.parametrize("method", ["fedavg", "fedgroup", "ifca", "fedprox", "fedmmd"])
def test_they_learn(task: str, method: str) -> None:
    data, model = learnable(task)
    options: dict[str, Any] = {"fedgroup": {"groups": 2, "alpha": 3}, "fedprox": {"mu": 0.1}}
    result = ct.run(
        getattr(ct, method)(**options.get(method, {})),
        data=data,
        model=model,
        local=ct.Solver(epochs=3, batch_size=10, lr=0.3),
        rounds=5,
        task=task,
        engine="serial",
    )
    from coterie.tasks import TASKS

    naive = baseline(TASKS[task]().fitted(data.y, data.classes), data)
    assert naive is not None
    gain = result.headline.gain(result.scores[-1], over=naive)
    assert gain > 0.2, (naive, result.scores)


@given(
    labels=st.lists(st.booleans(), min_size=2, max_size=60).filter(any),
    spread=st.floats(1e-3, 10.0),
    seed=st.integers(0, 1000),
)
def test_average_precision_is_within_its_bound_however_many_share_a_bin(
    labels: list[bool], spread: float, seed: int
) -> None:
    z = torch.from_numpy(spread * np.random.default_rng(seed).standard_normal(len(labels))).round(
        decimals=4
    )
    y = torch.tensor(labels).long()
    places = score_bin(z) + SCORE_BINS * y
    sums = {"scores": np.bincount(places.numpy(), minlength=2 * SCORE_BINS).astype(float)}
    found = float(average_precision(sums))
    exact = reference.average_precision_score(y.numpy(), z.numpy())
    assert abs(found - exact) <= precision_bound(sums) + 1e-12
    # That of the bins themselves, whose samples are tied, is exact.
    tied = reference.average_precision_score(y.numpy(), score_bin(z).numpy())
    assert found == pytest.approx(tied, abs=1e-12)


def test_average_precision_of_a_bin_with_all_samples_is_the_share_of_positives() -> None:
    """Two positives and two negatives: the positives are last with 1/3 and 2/4, or first."""
    sums = {"scores": np.zeros(2 * SCORE_BINS)}
    sums["scores"][[7, SCORE_BINS + 7]] = 2
    assert average_precision(sums) == 0.5
    assert precision_bound(sums) == pytest.approx(1 - 0.5)
    sums["scores"][SCORE_BINS + 7] = 0
    assert np.isnan(average_precision(sums))


def test_the_area_is_undefined_without_both_labels() -> None:
    task = binary()
    sums = {"scores": np.zeros((2, 1024)), "answers": np.zeros((2, 4))}
    sums["scores"][1, 3] = 1
    assert np.isnan(task.metrics[0].value(sums)).all()


class TokenLogits(nn.Module):
    """A row of logits for each token, as a language model has."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embed(x))
        return logits


@pytest.mark.parametrize("engine", ["serial", "vmap"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_logits_of_tokens_for_one_label_a_sample_name_the_task(
    engine: str, smoothing: float
) -> None:
    x = torch.randint(5, (8, 3), generator=torch.Generator().manual_seed(0))
    data = ct.Population(x, x[:, 0], ([0, 1, 2], [3, 4, 5]), ([6], [7]), 5)
    local = ct.Solver(epochs=1, batch_size=3, lr=0.1, label_smoothing=smoothing)
    with pytest.raises(ct.CoterieError) as caught:
        ct.run(ct.fedavg(), data=data, model=TokenLogits(), local=local, rounds=1, engine=engine)
    (problem,) = caught.value.problems
    assert problem.path == "model.name"
    assert "'next_token'" in str(problem)


def test_targets_of_several_tokens_name_the_task() -> None:
    x = torch.randint(5, (4, 3), generator=torch.Generator().manual_seed(0))
    data = ct.Population(x, x, ([0, 1], [2]), ([3], []), 5)
    with refuses(ct.DataError, "does-not-fit", "task.kind"):
        ct.run(ct.fedavg(), data=data, model=TokenLogits(), rounds=1, engine="serial")


def test_blocks_of_clients_train_on_tokens_as_single_clients_do() -> None:
    """With clients of different sizes, whose batches differ in length."""
    x = torch.randint(5, (8, 3), generator=torch.Generator().manual_seed(0))
    data = ct.Population(x, x.roll(-1, 1), ([0, 1, 2], [3, 4]), ([6], [7]), 5)
    torch.manual_seed(0)
    options: dict[str, Any] = {"data": data, "model": TokenLogits(), "task": "next_token"}
    single = ct.run(ct.fedavg(), rounds=2, engine="serial", **options)
    block = ct.run(ct.fedavg(), rounds=2, engine={"name": "vmap", "device": "cpu"}, **options)
    assert_near(block.state.models, single.state.models, 1e-4)


@pytest.mark.parametrize(
    ("task", "y", "classes", "refusal"),
    [
        ("binary", torch.tensor([0, 1, 2]), 3, ("does-not-fit", "task.kind")),
        ("binary", torch.tensor([0.0, 1.0, 0.5]), 0, ("does-not-fit", "task.kind")),
        ("multilabel", torch.tensor([0.0, 1.0, 1.0]), 0, ("does-not-fit", "task.kind")),
        ("multilabel", torch.tensor([[0.5], [1.0], [1.0]]), 0, ("does-not-fit", "task.kind")),
        ("next_token", torch.tensor([0, 1, 1]), 2, ("does-not-fit", "task.kind")),
        ("next_token", torch.tensor([[0], [1], [7]]), 2, ("out-of-range", "task.kind")),
        ("classification", torch.tensor([[0], [1], [1]]), 2, ("does-not-fit", "task.kind")),
    ],
)
def test_targets_that_do_not_fit_are_one_line(
    task: str, y: Tensor, classes: int, refusal: tuple[Code, str]
) -> None:
    data = ct.Population(torch.zeros(3, 2), y, ([0, 1],), ([2],), classes)
    with refuses(ct.DataError, *refusal):
        ct.run(ct.fedavg(), data=data, model="mclr", rounds=1, task=task, engine="serial")
