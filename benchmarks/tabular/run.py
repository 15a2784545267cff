"""Choose settings on validation samples, train on all training samples, and score the test samples."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.tabular.studies import Settings, Study
from coterie.core.keys import Key
from coterie.core.task import Sums, Task
from coterie.data import Partition, Population
from coterie.errors import QuorumError
from coterie.experiment import Experiment, check
from coterie.experiment.experiment import fit_to_clients
from coterie.runs.compose import Composed, HeldData, compose_on
from coterie.runs.data import load_data
from coterie.runs.run import Run
from coterie.runs.spec import outputs_of
from coterie.tasks import baseline, naive_scores

# Recordings of a new patient whose labels are known, to place the patient by.
LABELLED = 10


@dataclass(frozen=True)
class Data:
    """What a seed of a study trains and tests on, loaded once for all of its runs."""

    partition: Partition
    population: Population
    label_names: tuple[str, ...]

    @classmethod
    def load(cls, study: Study, seed: int) -> Data:
        """The data of a seed."""
        network = next(iter(study.networks.values()))
        config = configuration(study, seed, network, study.settings("fedavg")[0], 1)
        samples, partition, population = load_data(config)
        return cls(partition, population, tuple(samples.label_names))


def configuration(
    study: Study, seed: int, network: Settings, settings: Settings, rounds: int
) -> Experiment:
    """The configuration of one run."""
    tables = study.configuration(seed)
    tables["train"] = {**tables["train"], "rounds": rounds}
    return check({**tables, "model": network, **settings})


def composed(config: Experiment, data: Data, population: Population) -> Composed:
    """Network and method for a population of the data."""
    config = fit_to_clients(config, population.clients)
    return compose_on(config, HeldData(population, data.partition, data.label_names))


def choose(
    study: Study, data: Data, seed: int, network: Settings, method: str
) -> tuple[Settings, int, float]:
    """The settings and the number of rounds with the least criterion on validation samples.

    Returns:
        settings, rounds, and the criterion that they reached.
    """
    population = study.split(data.population, Key(seed))
    best: tuple[Settings, int, float] | None = None
    for settings in study.settings(method):
        config = configuration(study, seed, network, settings, study.rounds)
        for rounds, value in enumerate(course(composed(config, data, population), study), 1):
            if best is None or value < best[2]:
                best = (settings, rounds, value)
    assert best is not None
    return best


def course(one: Composed, study: Study) -> Iterator[float]:
    """The criterion after each round of a run, infinite where it is undefined.

    With a learning rate that is too large, models become infinite and rounds no longer count. Such
    a run ends early.
    """
    with one.clients() as clients, contextlib.suppress(QuorumError):
        for result in Run.start(one.spec, clients).rounds():
            row = {**result.row["metrics"], **result.row}
            value = row.get(study.criterion)
            usable = value is not None and math.isfinite(value)
            yield value if usable else math.inf


def test(
    study: Study, data: Data, seed: int, network: Settings, settings: Settings, rounds: int
) -> dict[str, Any]:
    """Train on all training samples, and score the test samples of each client."""
    config = configuration(study, seed, network, settings, rounds)
    one = composed(config, data, data.population)
    began = time.perf_counter()
    with one.clients() as clients:
        run = Run.start(one.spec, clients)
        for _ in run.rounds():
            pass
        sums = run.score_clients()
    found = {
        "scores": scores(one.spec.task, sums, one.population.names),
        "groups": dict(zip(one.population.names, run.groups.member.tolist(), strict=True)),
        "seconds": round(time.perf_counter() - began, 1),
    }
    if study.by_fold:
        found["scores"]["placed by ten"] = {"mae": placed_by_labels(one, run)}
    return found


def scores(task: Task, sums: Sums, names: tuple[str, ...]) -> dict[str, dict[str, float | None]]:
    """All metrics of each client with test samples, and of all test samples together."""
    whole = {name: values.sum(axis=0) for name, values in sums.items()}
    found = {"all": metrics(task, whole)}
    for client, name in enumerate(names):
        if sums["size"][client]:
            found[name] = metrics(task, {key: values[client] for key, values in sums.items()})
    return found


def metrics(task: Task, sums: Sums) -> dict[str, float | None]:
    """The value of each metric, ``None`` where it is undefined."""
    found = {}
    for metric in task.metrics:
        value = float(metric.value(sums))
        found[metric.name] = value if math.isfinite(value) else None
    return found


def placed_by_labels(one: Composed, run: Run) -> float:
    """The mean absolute error for clients that never trained, each placed by its first samples.

    A client is served by the model with the least mean loss on its first ``LABELLED`` samples, as
    `coterie predict` does it. Its other samples are tested on.
    """
    population = one.population
    errors = []
    for client in np.flatnonzero(population.sizes("test")):
        rows = population.test[client]
        x = population.x[rows]
        y = population.y[rows]
        by_model = [outputs_of(one.module, vector, x) for vector in run.groups.models]
        losses = [
            one.spec.task.loss(outputs[:LABELLED], y[:LABELLED]).mean().item()
            for outputs in by_model
        ]
        chosen = by_model[int(np.argmin(losses))][LABELLED:]
        errors.append((chosen[:, 0] - y[LABELLED:]).abs())
    return float(np.concatenate([error.numpy() for error in errors]).mean())


def without_model(study: Study, data: Data, seed: int) -> dict[str, Any]:
    """What predictions reach that no network makes, on all test samples.

    Of classes it is the accuracy of the most frequent one of each client's training samples.
    """
    if data.population.classes:
        return {"majority": majority_of_each(data.population)}
    settings = study.settings("fedavg")[0]
    network = next(iter(study.networks.values()))
    config = configuration(study, seed, network, settings, 1)
    one = composed(config, data, data.population)
    found = {
        "mean of all": baseline(one.spec.task, one.population),
        **naive_scores(one.spec.task, one.population),
    }
    if not study.by_fold and study.criterion == "mae":
        found["mean of the client"] = mean_of_each(data.population)
    if study.by_fold:
        found["mean of the ten"] = mean_of_first(data.population)
    return found


def majority_of_each(population: Population) -> dict[str, float]:
    """The accuracy of the most frequent class of each client's own training samples."""
    found = {}
    right = []
    for name, train, rows in zip(population.names, population.train, population.test, strict=True):
        correct = (population.y[rows] == population.y[train].mode().values).double()
        found[name] = float(correct.mean())
        right.append(correct.numpy())
    return {"all": float(np.concatenate(right).mean()), **found}


def mean_of_each(population: Population) -> float:
    """The mean absolute error of the mean of each client's own training targets."""
    errors = []
    for train, rows in zip(population.train, population.test, strict=True):
        mean = population.y[train].mean()
        errors.append((population.y[rows] - mean).abs().numpy())
    return float(np.concatenate(errors).mean())


def mean_of_first(population: Population) -> float:
    """The mean absolute error of the mean of each test client's first ``LABELLED`` targets, on its
    other samples."""
    errors = []
    for rows in population.test:
        if len(rows):
            mean = population.y[rows[:LABELLED]].mean()
            errors.append((population.y[rows[LABELLED:]] - mean).abs().numpy())
    return float(np.concatenate(errors).mean())
