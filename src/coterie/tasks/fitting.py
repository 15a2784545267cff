"""A task that knows its targets, and a network that fits it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coterie.core.arrays import FloatArray
from coterie.core.target_scaling import ScalesTargets, TargetScaling, scaling_of
from coterie.core.task import Added, Binned, Sums, Task, check_label_logits, is_classes
from coterie.crashes import kind_and_place
from coterie.data.population import Population
from coterie.errors import ConfigError, DataError, first_line
from coterie.tasks.classification import CLASSIFICATION

# More classes than this, with fewer samples each, are taken for numbers.
MANY_CLASSES = 20
FEW_SAMPLES = 4

_CHUNK = 65536  # samples whose naive outputs are in memory at once


def fit_task(
    task: Task | None, population: Population, scaling: TargetScaling | None = None
) -> Task:
    """The task for the targets of a population.

    Args:
        task: what is learned; ``None``: a classification, unless labels look like numbers.
        population: the clients and their samples.
        scaling: how a regression scales its targets; ``None``: not at all.

    Raises:
        DataError: for targets that the task cannot learn, and for labels that look like numbers if
            no task is given.

    Example:
        >>> y = torch.tensor([0, 1, 1])
        >>> data = Population(torch.zeros(3, 2), y, ([0, 1, 2],), ([],), classes=2)
        >>> fit_task(None, data)
        Classification(classes=2, smoothing=0.0, headline='accuracy', further=())
    """
    if task is None:
        _refuse_numbers(population)
        task = CLASSIFICATION
    fitted = task.fitted(population.y, population.classes)
    if isinstance(fitted, ScalesTargets):
        return fitted.scaled_by(scaling)
    return fitted


def refuse_numbered_classes(task: Task | None, population: Population) -> None:
    """Refuse a task of numbers on labels that `coterie.load` numbered as classes, such as 30 and 50
    as 0 and 1."""
    origin = population.origin
    numbered = origin is not None and origin.reads_targets and population.classes
    if task is None or task.class_labels or not numbered:
        return
    what = f"labels were read as classes, but [task] {task.name} learns numbers"
    got = f"{population.classes} classes"
    expected = "targets = 'numbers' in coterie.load"
    raise ConfigError("does-not-fit", "targets", what, found=got, allowed=expected)


def _refuse_numbers(population: Population) -> None:
    """Refuse labels of a classification by default that have nearly as many values as samples."""
    # Labels that are made client by client are not made only to be checked.
    if population.lazy or population.classes <= MANY_CLASSES or population.y.ndim > 1:
        return
    labels = population.labels[np.concatenate(population.train)]
    found = len(np.unique(labels))
    if found > MANY_CLASSES and found * FEW_SAMPLES > len(labels):
        what = "labels look like numbers"
        got = f"{found} different labels in {len(labels)} training samples"
        expected = "[task] kind = 'regression' with numbers as targets, or kind = 'classification' if they are classes"
        raise DataError("does-not-fit", "task.kind", what, found=got, allowed=expected)


def check_network(task: Task, module: nn.Module, x: Tensor, y: Tensor) -> None:
    """Refuse a network whose outputs for some inputs do not fit the task and their targets.

    Raises:
        ConfigError: for such a network.
    """
    # A copy in evaluation mode: normalisation then neither fails on two samples nor learns.
    network = copy.deepcopy(module).eval()
    got = "no outputs"
    try:
        with torch.no_grad():
            outputs = network(x)
            _check_tensor(outputs)
            if is_classes(task):
                check_label_logits(outputs, y)
            got = f"outputs of shape {tuple(outputs.shape)}"
            reason = _misfit(task, outputs, y)
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - the user's network may raise anything
        reason = f"{first_line(error)}: {kind_and_place(error)}"
    if reason is None:
        return
    raise ConfigError(
        "does-not-fit",
        "model.name",
        f"does not fit the task {task.name}",
        found=f"{got} for inputs of shape {tuple(x.shape)} and type {x.dtype}: {reason}",
        allowed=f"{task.outputs} outputs per sample",
    )


def _check_tensor(outputs: Any) -> None:
    """Refuse what a network may return in place of its outputs, such as a record with the logits."""
    if isinstance(outputs, Tensor):
        return
    got = f"a {type(outputs).__name__}"
    allowed = "a tensor: wrap the network so that its forward returns the logits alone"
    raise ConfigError(
        "wrong-type", "model.name", "does not return a tensor", found=got, allowed=allowed
    )


def _misfit(task: Task, outputs: Tensor, y: Tensor) -> str | None:
    """Why outputs do not fit a task and its targets, if they do not."""
    if is_classes(task):
        # More outputs than the data have classes are fine: some classes may not have been seen.
        if outputs.ndim == 2 and len(outputs) == len(y) and outputs.shape[1] >= task.outputs:
            return None
        return f"for targets of shape {tuple(y.shape)}"
    losses = task.loss(outputs, y)
    if losses.shape == (len(y),):
        return None
    return f"losses of shape {tuple(losses.shape)}"


def check_tokens(module: nn.Module, population: Population) -> None:
    """Refuse tokens that the network's embedding does not have.

    Raises:
        DataError: a token is negative.
        ConfigError: the embedding has fewer tokens than the inputs.
    """
    # Tokens that are made client by client are not made only to be checked.
    if population.lazy or population.x.is_floating_point() or not len(population.x):
        return
    embedding = next((one for one in module.modules() if isinstance(one, nn.Embedding)), None)
    if embedding is None:
        return
    least = int(population.x.min())
    largest = int(population.x.max())
    if least < 0:
        raise DataError("out-of-range", "x", "tokens", found=least, allowed="0 or more")
    if largest >= embedding.num_embeddings:
        what = f"inputs have tokens up to {largest}"
        got = embedding.num_embeddings
        expected = f"{largest + 1} or more"
        raise ConfigError("out-of-range", "model.vocabulary", what, found=got, allowed=expected)


def baseline(task: Task, population: Population) -> float | None:
    """The headline metric of a model that ignores its inputs, on all test samples.

    Its output is the best constant for all training targets together: the majority class, or the
    mean of the numbers.

    Args:
        task: fitted to the population.
        population: the clients and their samples.

    Returns:
        ``None`` without test samples, and if samples are generated lazily.

    Example:
        >>> from coterie.tasks import regression
        >>> y = torch.tensor([1.0, 3.0, 4.0])
        >>> data = Population(torch.zeros(3, 2), y, ([0, 1],), ([2],))
        >>> baseline(regression(), data)
        2.0
    """
    if population.lazy:
        return None
    train = torch.from_numpy(np.concatenate(population.train))
    test = torch.from_numpy(np.concatenate(population.test))
    if not len(test):
        return None
    outputs = task.naive(population.y[train])
    return _headline(task, population, test, lambda rows: outputs.expand(len(rows), *outputs.shape))


def naive_scores(task: Task, population: Population) -> dict[str, float]:
    """The headline metrics of predictions that need no model, on all test samples.

    Args:
        task: fitted to the population.
        population: a population with such predictions, such as the last value of series.

    Returns:
        name of the prediction -> headline.

    Example:
        >>> from coterie.tasks import regression
        >>> y = torch.tensor([1.0, 3.0, 4.0])
        >>> last = {"persistence": torch.tensor([0.0, 1.0, 3.0])}
        >>> data = Population(torch.zeros(3, 2), y, ([0, 1],), ([2],), naive=last)
        >>> naive_scores(regression(), data)
        {'persistence': 1.0}
    """
    test = torch.from_numpy(np.concatenate(population.test))
    found = {}
    for name, outputs in naive_outputs(task, population).items():
        score = _headline(task, population, test, outputs.__getitem__)
        if score is not None:
            found[name] = score
    return found


def naive_outputs(task: Task, population: Population) -> dict[str, Tensor]:
    """The predictions of a population that need no model, as a network would put them out: in the
    scale of its targets."""
    scaling = scaling_of(task)
    if scaling is None:
        return dict(population.naive)
    return {name: scaling.to_outputs(y.double()) for name, y in population.naive.items()}


def _headline(
    task: Task, population: Population, test: Tensor, outputs: Callable[[Tensor], Tensor]
) -> float | None:
    """The headline of some outputs; ``None`` without samples, and where it is undefined."""
    if not len(test):
        return None
    chunks = test.split(_CHUNK)
    parts = [pooled_sums(task, outputs(rows), population.y[rows]) for rows in chunks]
    return headline_value(task, parts)


def headline_value(task: Task, parts: Sequence[Sums]) -> float | None:
    """The headline of some sums together; ``None`` without any, and where it is undefined."""
    if not parts:
        return None
    # In float64 and in this order, so that one chunk and several give the same.
    together = {name: np.sum([one[name] for one in parts], axis=0) for name in parts[0]}
    value = float(task.metrics[0].value(together))
    if np.isfinite(value):
        return value
    return None


def total(added: Added) -> FloatArray:
    """What samples add together, float64."""
    if isinstance(added, Binned):
        weight = added.weight
        if weight is None:
            weight = torch.ones(len(added.place))
        counts = np.bincount(added.place.numpy(), weight.double().numpy(), added.bins)
        return counts.astype(np.float64)
    return added.double().sum(dim=0).numpy()


def pooled_sums(task: Task, outputs: Tensor, targets: Tensor) -> Sums:
    """The sums of the task over pooled samples.

    Args:
        task: fitted to the targets.
        outputs: ``[n, ...]``.
        targets: ``[n, ...]``.

    Example:
        >>> from coterie.tasks import regression
        >>> sums = pooled_sums(regression(), torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 4.0]))
        >>> sums["absolute"].tolist(), float(sums["size"])
        ([2.0], 2.0)
    """
    sums = {name: total(added) for name, added in task.added(outputs, targets).items()}
    return {**sums, "size": np.asarray(float(len(targets)))}
