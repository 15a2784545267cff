"""Metrics of a run: weighted, by group and by client, on test samples and on training samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coterie.clients.clients import Clients
from coterie.config.arguments import CheckedRecord
from coterie.config.schema import Share
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.engine import Reply
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.served import Served
from coterie.core.task import Metric, Sums, Task, headline_of, ratio
from coterie.core.work import Score, Train
from coterie.data.population import Split
from coterie.measures.figures import client_figures, number, own_sums, scored_figures
from coterie.measures.optional import Measure
from coterie.measures.own_models import (
    Adaptation,
    adapted_figures,
    score_adapted,
    score_local_networks,
)
from coterie.measures.sampling import EvaluationSample, estimate_for_all, sampling_errors
from coterie.measures.unseen import Unseen
from coterie.tasks import CLASSIFICATION


@dataclass(frozen=True, slots=True)
class Evaluate(CheckedRecord):
    """``[evaluate]``: with which models clients are scored in addition to those that serve them; see
    ``docs/measures.md``.

    Args:
        local: each client is also scored with the network that it trained last, as PACFL's scripts
            do.
        adapt: each client is also scored after a copy of the served model has been trained like
            this.
        training: clients are also scored on their training samples, with the loss.
        unseen: a share of the clients, or names or numbers of clients, that never train and are
            scored as newcomers.
        unseen_labels: whether these clients have labels. Without labels they are placed by their
            inputs alone, if the method can do that.
        rounds: whether adapted and unseen clients are scored in every ``evaluated`` round, or only
            in the ``last`` one.
        validation: share of each client's training samples on which it is scored instead of its
            test samples, and does not train; use it to choose settings.
        order: whether the scores of a round belong to the models ``after`` its update, or
            ``before`` it. Real clients score the models that they receive for training, which needs
            no extra exchange, so ``before`` is their default. The last round is always scored after
            its update.

    Raises:
        ConfigError: for a value out of its range.
    """

    local: bool = False
    adapt: Adaptation | None = None
    training: bool = False
    unseen: Unseen | None = None
    unseen_labels: bool | None = None
    rounds: Literal["evaluated", "last"] = "evaluated"
    validation: Share | None = None
    order: Literal["after", "before"] | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What is measured of a run.

    Args:
        evaluate: with which models clients are scored.
        adapt: the training that ``evaluate.adapt`` is for the run's network.
        unseen: the numbers of the clients that ``evaluate.unseen`` means.
        loss: whether the mean loss on test samples is measured in addition to the metrics.
        sample: the clients that represent all of them; ``None``: all are scored.
    """

    evaluate: Evaluate = Evaluate()
    task: Task = CLASSIFICATION
    measures: Sequence[Measure] = ()
    adapt: Train | None = None
    unseen: tuple[int, ...] = ()
    loss: bool = False
    sample: EvaluationSample | None = None

    @property
    def unlabelled(self) -> tuple[int, ...]:
        """The clients without labels, which are placed after the last round."""
        if self.evaluate.unseen_labels is False:
            return self.unseen
        return ()

    @property
    def splits(self) -> tuple[Split, ...]:
        """The samples of a client that it is scored on."""
        if self.evaluate.training:
            return ("test", "train")
        return ("test",)


def score_round(
    clients: Clients,
    testable: NDArray[np.bool_],
    served: Served,
    groups: Groups,
    key: Key,
    evaluation: Evaluation | None = None,
    trainable: IntArray | None = None,
) -> dict[str, Any]:
    """The metrics of a round, each client scored with the model that serves it; docs/measures.md
    lists them.

    Metrics are computed from the sums over all test samples of the clients that have a group:
    ``accuracy`` is total correct over total test samples, as in FedGroup and FlexCFL.
    """
    evaluation = evaluation or Evaluation()
    found = post_scores(clients, testable, served, groups, key, evaluation)()
    if evaluation.adapt is not None:
        grouped = scored_clients(testable, groups, evaluation.sample)
        grouped = grouped[groups.member[grouped] >= 0]
        if trainable is None:
            trainable = grouped
        adapt = key.of("adapt")
        sums = score_adapted(
            clients, grouped, trainable, served, evaluation.adapt, adapt, evaluation.task
        )
        keys = headline_of(evaluation.task).keys
        found |= {"evaluated_adapted": len(grouped), **adapted_figures(sums, evaluation.task, keys)}
    if evaluation.evaluate.local:
        local = key.of("local_networks")
        found |= score_local_networks(clients, testable, local, evaluation.sample, evaluation.task)
    return found


def scored_clients(
    able: NDArray[np.bool_], groups: Groups, sample: EvaluationSample | None
) -> IntArray:
    """The clients of ``able [N]`` that are scored, int64, ascending: those of the sample, or
    all."""
    if sample is None:
        return np.flatnonzero(able)
    return sample.draw(able, groups.has_group)


def post_scores(
    clients: Clients,
    testable: NDArray[np.bool_],
    served: Served,
    groups: Groups,
    key: Key,
    evaluation: Evaluation,
) -> Callable[[], dict[str, Any]]:
    """Have the clients scored with the models that serve them now, and read the figures later: the
    request travels with what clients are asked next, see `Clients.post`."""
    ids = scored_clients(testable, groups, evaluation.sample)
    # With the group's model as it is now. The later code of FlexCFL scores the model that a client
    # last received, which takes five points from FedGroup and turns the order of methods round.
    models, which, shares = served.to_score(ids)
    # Scoring is no part of what a method costs, so the ledger leaves it out.
    task = evaluation.task
    work = Score(
        "test", loss=evaluation.loss, sums=task.sums, served_by=served.personal, shares=shares
    )
    read = clients.post(work, ids, models, which, key=key, counts=False)

    def figures() -> dict[str, Any]:
        return _served_figures(read(), testable, groups, evaluation)

    return figures


def _served_figures(
    reply: Reply, testable: NDArray[np.bool_], groups: Groups, evaluation: Evaluation
) -> dict[str, Any]:
    """The figures of each client with the model that serves it."""
    task = evaluation.task
    sample = evaluation.sample
    has_group = groups.has_group
    sums = own_sums(reply, task)
    known = has_group[reply.ids]
    found = _metrics(task, sums, groups.member[reply.ids], known, groups.k)
    # Clients with a group and without are weighed by how many they stand for.
    # Counted and not summed: a sum of ten million truth values takes ten times as long.
    grouped = int(np.count_nonzero(testable & has_group))
    clients_of_kind = (grouped, int(np.count_nonzero(testable)) - grouped)
    if evaluation.loss:
        losses = reply.loss[:, 0]
        found |= _losses(losses, sums["size"], known)
        if sample is not None:
            found["test_loss_all"] = estimate_for_all(losses, sums["size"], known, clients_of_kind)
    if sample is None:
        return found
    # The sample's figures of all clients replace the plain ones.
    return found | sampling_errors(task.metrics[0], sums, known, clients_of_kind)


def _metrics(
    task: Task, sums: Sums, member: IntArray, known: NDArray[np.bool_], k: int
) -> dict[str, Any]:
    """The metrics of the clients that were scored, as a row has them."""
    of_groups = {name: _by_group(values[known], member[known], k) for name, values in sums.items()}
    of_grouped = {name: values.sum(axis=0) for name, values in of_groups.items()}
    of_all = {name: values.sum(axis=0) for name, values in sums.items()}
    first, *others = task.metrics
    keys = first.headline.keys
    sums_of_known = {name: values[known] for name, values in sums.items()}
    found: dict[str, Any] = {
        keys.value: number(first.value(of_grouped)),
        keys.all: number(first.value(of_all)),
        keys.groups: _numbers(first, of_groups),
        # Clients of any size count alike here, unlike in the weighted figures.
        **client_figures(first, sums_of_known, keys),
    }
    if others:
        found["metrics"] = {one.name: number(one.value(of_grouped)) for one in others}
        found["metrics_groups"] = {one.name: _numbers(one, of_groups) for one in others}
    return found


def _losses(losses: FloatArray, size: FloatArray, known: NDArray[np.bool_]) -> dict[str, Any]:
    return {
        "test_loss": number(ratio(losses[known].sum(), size[known].sum())),
        "test_loss_all": number(ratio(losses.sum(), size.sum())),
    }


def _by_group(values: FloatArray, member: IntArray, k: int) -> FloatArray:
    """The sums of each group ``[k, *shape]``, added in the order of clients."""
    sums = np.zeros((k, *values.shape[1:]))
    np.add.at(sums, member, values)
    return sums


def _numbers(metric: Metric, sums: Sums) -> list[float | None]:
    return [number(value) for value in metric.value(sums)]


def each_client(
    clients: Clients,
    ids: IntArray,
    served: Served,
    key: Key,
    task: Task = CLASSIFICATION,
    split: Split = "test",
) -> Sums:
    """The task's sums over each client's samples with the model that serves it, and ``size``, how
    many samples there are, ``[N, *shape]`` each; a client that is not among ``ids`` has zeros."""
    models, which, shares = served.to_score(ids)
    work = Score(split, loss=False, sums=task.sums, served_by=served.personal, shares=shares)
    reply = clients.run(work, ids, models, which, key=key, counts=False)
    found = {}
    for name, values in own_sums(reply, task).items():
        found[name] = np.zeros((len(served.row), *values.shape[1:]))
        found[name][reply.ids] = values
    return found


def score_on_training(
    clients: Clients,
    trainable: NDArray[np.bool_],
    served: Served,
    groups: Groups,
    key: Key,
    evaluation: Evaluation,
) -> dict[str, Any]:
    """The loss and the metrics of the models on training samples, over the clients that have a
    group. ``training_loss`` is not the ``loss`` of a row, which clients see while they train."""
    ids = scored_clients(trainable, groups, evaluation.sample)
    ids = ids[groups.member[ids] >= 0]
    task = evaluation.task
    models, which, shares = served.to_score(ids)
    work = Score("train", sums=task.sums, served_by=served.personal, shares=shares)
    # Scoring is no part of what a method costs.
    reply = clients.run(work, ids, models, which, key=key, counts=False)
    sums = own_sums(reply, task)
    first, *others = task.metrics
    losses = reply.loss[:, 0].astype(np.float64)
    found: dict[str, Any] = {
        "evaluated_training": len(reply.ids),
        **scored_figures(first, sums, first.headline.keys.training),
        "training_loss": number(ratio(losses.sum(), sums["size"].sum())),
    }
    if others:
        together = {name: values.sum(axis=0) for name, values in sums.items()}
        found["metrics_training"] = {one.name: number(one.value(together)) for one in others}
    return found
