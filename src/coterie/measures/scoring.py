"""Accuracy of a run: weighted, by group and by client, and agreement with planted groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.clients.clients import Clients
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.served import Served
from coterie.core.work import Evaluate
from coterie.measures.local_networks import score_local_networks
from coterie.measures.sampling import EvaluationSample, estimate_for_all, sampling_errors

QUANTILES = {"p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9}


@dataclass(frozen=True, slots=True)
class Scoring:
    """Which clients are scored in a round, and by what.

    Args:
        sample: which clients stand for all; ``None``: all are scored.
        loss: whether the mean cross-entropy on test samples is measured beside the accuracy.
        local: whether each client is also scored with the network that it trained last.
    """

    sample: EvaluationSample | None = None
    loss: bool = False
    local: bool = False


def score_round(
    clients: Clients,
    testable: NDArray[np.bool_],
    served: Served,
    groups: Groups,
    key: Key,
    scoring: Scoring | None = None,
) -> dict[str, Any]:
    """The accuracies of a round, each client scored with the model that serves it.

    ``accuracy`` is total correct over total test samples, as in FedGroup and FlexCFL, over the
    clients that have a group.

    Args:
        clients: those that score.
        testable: bool ``[N]``, which clients are present and have test samples.
        served: which model serves each client.
        groups: for membership.
        key: random stream.
        scoring: which clients, and by what; ``None``: all, by their accuracy.

    Returns:
        ``accuracy`` over the clients that have a group now, ``accuracy_all`` over all,
        ``accuracy_mean``, the mean of the accuracies of clients with a group, whatever their sizes,
        ``accuracy_groups`` (``None`` for a group without test samples), ``accuracy_quantiles`` over
        clients with a group.
        With ``loss`` also ``test_loss``, nats a test sample over the clients with a group, and
        ``test_loss_all`` over all. With a sample all are estimates, and `sampling_errors` says how
        good the accuracies are. With ``local`` also what `score_local_networks` finds.
    """
    scoring = scoring or Scoring()
    found = _score_served(clients, testable, served, groups, key, scoring)
    if scoring.local:
        local = key.of("local_networks")
        found |= score_local_networks(clients, testable, local, scoring.sample)
    return found


def _score_served(
    clients: Clients,
    testable: NDArray[np.bool_],
    served: Served,
    groups: Groups,
    key: Key,
    scoring: Scoring,
) -> dict[str, Any]:
    """The figures of each client with the model that serves it."""
    sample = scoring.sample
    has_group = groups.member >= 0
    ids = np.flatnonzero(testable) if sample is None else sample.draw(testable, has_group)
    # With the group's model as it is now. The later code of FlexCFL scores the model that a client
    # last received, which takes five points from FedGroup and turns the order of methods round.
    models, which = served.for_clients(ids)
    # `measure`, not `run`: scoring is no part of what a method costs, so the ledger leaves it out.
    reply = clients.measure(Evaluate("test", loss=scoring.loss), ids, models, which, key=key)
    correct = reply.fields["correct"][:, 0]
    size = reply.fields["size"]
    member = groups.member[reply.ids]
    known = member >= 0
    found = _accuracies(correct, size, member, groups.k)
    if scoring.loss:
        losses = reply.fields["loss"][:, 0]
        found["test_loss"] = _ratio(losses[known].sum(), size[known].sum())
        found["test_loss_all"] = _ratio(losses.sum(), size.sum())
    if sample is None:
        return found
    # The sample's figures of all clients replace the plain ones: clients with a group and without
    # are weighed by how many they stand for.
    grouped = int((testable & has_group).sum())
    ungrouped = int(testable.sum()) - grouped
    clients_of_kind = (grouped, ungrouped)
    if scoring.loss:
        found["test_loss_all"] = estimate_for_all(losses, size, known, clients_of_kind)
    return found | sampling_errors(correct, size, known, clients_of_kind)


def _accuracies(correct: FloatArray, size: FloatArray, member: IntArray, k: int) -> dict[str, Any]:
    """The accuracies of the clients that were scored, as a row has them.

    Args:
        correct: ``[n]``, correct predictions of each client.
        size: ``[n]``, their test samples.
        member: int64 ``[n]``, their groups, -1 for none.
        k: number of groups.
    """
    known = member >= 0
    right = np.bincount(member[known], correct[known], k)
    total = np.bincount(member[known], size[known], k)
    # Clients of any size count alike here, unlike in the weighted accuracies.
    own = correct[known] / size[known]
    mean = None
    quantiles = None
    if len(own):
        mean = float(own.mean())
        quantiles = {name: float(np.quantile(own, q)) for name, q in QUANTILES.items()}
    return {
        "accuracy": _ratio(right.sum(), total.sum()),
        "accuracy_all": _ratio(correct.sum(), size.sum()),
        "accuracy_mean": mean,
        "accuracy_groups": [_ratio(a, b) for a, b in zip(right, total, strict=True)],
        "accuracy_quantiles": quantiles,
    }


def each_client(
    clients: Clients, testable: IntArray, served: Served, key: Key
) -> tuple[IntArray, IntArray]:
    """What each client's model classifies correctly, and of how many test samples.

    Args:
        clients: those that score.
        testable: int64, the clients that have test samples.
        served: which model serves each client.
        key: random stream.

    Returns:
        int64 ``[N]`` both; a client that is not testable has zero of both.
    """
    models, which = served.for_clients(testable)
    reply = clients.measure(Evaluate("test", loss=False), testable, models, which, key=key)
    correct = np.zeros_like(served.row)
    size = np.zeros_like(served.row)
    correct[reply.ids] = reply.fields["correct"][:, 0]
    size[reply.ids] = reply.fields["size"]
    return correct, size


def _ratio(a: float, b: float) -> float | None:
    if b > 0:
        return float(a / b)
    return None


def agreement(member: IntArray, planted: IntArray) -> dict[str, float] | None:
    """How well groups agree with the true ones, over the clients that have a group.

    ``ari``: adjusted Rand index; ``nmi``: mutual information over the mean of the two entropies. 1
    is full agreement, whatever the groups are called; 0 is what chance gives an ``ari``.

    Args:
        member: int64 ``[N]``, the group of each client, -1 for none.
        planted: int64 ``[N]``, the true groups.

    Returns:
        ``None`` where no client has a group.

    Example:
        >>> agreement(np.array([2, 2, 0, -1]), np.array([0, 0, 1, 1]))
        {'ari': 1.0, 'nmi': 1.0}
    """
    # Imported late: it takes a second, and most federations have no planted groups.
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    has_group = member >= 0
    if not has_group.any():
        return None
    found = member[has_group]
    true = planted[has_group]
    return {
        "ari": float(adjusted_rand_score(true, found)),
        "nmi": float(normalized_mutual_info_score(true, found)),
    }
