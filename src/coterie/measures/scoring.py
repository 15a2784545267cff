"""What is measured of a run: weighted accuracy, accuracy per group and client, discrepancy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.served import Served
from coterie.core.work import Evaluate
from coterie.measures.sampling import EvaluationSample, errors

QUANTILES = {"p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9}


def score(
    door: Clients,
    testable: NDArray[np.bool_],
    served: Served,
    groups: Groups,
    key: Key,
    panel: EvaluationSample | None = None,
) -> dict[str, Any]:
    """Weighted accuracy: total correct over total test samples, each client with the model that
    serves it.

    Args:
        door: the clients.
        testable: bool ``[N]``, clients that have test samples.
        served: which model serves each client.
        groups: for membership.
        key: random stream.
        panel: which clients stand for all, ``None``: everybody is scored.

    Returns:
        ``accuracy`` over clients ever assigned, ``accuracy_all`` over all, ``accuracy_mean``, the
        mean of the assigned clients' own accuracies, whatever their sizes, ``accuracy_groups``
        (``None`` for a group without test samples), ``accuracy_quantiles`` over assigned clients.
        With a panel they are estimates, and ``panel.errors`` says how good they are.
    """
    asked = np.flatnonzero(testable) if panel is None else panel.draw(testable, groups.member >= 0)
    models, which = served.for_clients(asked)
    reply = door.measure(Evaluate("test", loss=False), asked, models, which, key=key)
    correct = reply.fields["correct"][:, 0]
    size = reply.fields["size"]
    member = groups.member[reply.ids]
    known = member >= 0
    right = np.bincount(member[known], correct[known], groups.k)
    total = np.bincount(member[known], size[known], groups.k)
    each = correct[known] / size[known]
    found = {
        "accuracy": _ratio(right.sum(), total.sum()),
        "accuracy_all": _ratio(correct.sum(), size.sum()),
        "accuracy_mean": float(each.mean()) if len(each) else None,
        "accuracy_groups": [_ratio(a, b) for a, b in zip(right, total, strict=True)],
        "accuracy_quantiles": {n: float(np.quantile(each, q)) for n, q in QUANTILES.items()}
        if len(each)
        else None,
    }
    if panel is None:
        return found
    inside = int((testable & (groups.member >= 0)).sum())
    return found | errors(correct, size, known, (inside, int(testable.sum()) - inside))


def each_client(
    door: Clients, testable: IntArray, served: Served, key: Key
) -> tuple[IntArray, IntArray]:
    """Test samples that each client's model classifies correctly, and how many there are: int64
    ``[N]`` both.

    Arguments as in `score`; a client that is not testable has zero of both.
    """
    models, which = served.for_clients(testable)
    reply = door.measure(Evaluate("test", loss=False), testable, models, which, key=key)
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
    """How well groups agree with the true ones, over the clients that have a group; ``None`` where
    nobody has.

    ``ari``: adjusted Rand index; ``nmi``: mutual information over the mean of the two entropies. 1
    is full agreement, whatever the groups are called; 0 is what chance gives.

    Example:
        >>> agreement(np.array([2, 2, 0, -1]), np.array([0, 0, 1, 1]))
        {'ari': 1.0, 'nmi': 1.0}
    """
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    has = member >= 0
    if not has.any():
        return None
    found = member[has]
    true = planted[has]
    return {
        "ari": float(adjusted_rand_score(true, found)),
        "nmi": float(normalized_mutual_info_score(true, found)),
    }
