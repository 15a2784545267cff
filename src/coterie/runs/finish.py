"""What a run writes when it is done: the score of each client, models, groups, and the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.groups import Groups
from coterie.core.task import Sums, Task, headline_of
from coterie.core.vectors import Layout, frozen_parameters
from coterie.data.population import Population, Split
from coterie.experiment import Experiment
from coterie.headline import Headline
from coterie.measures.clients import client_columns, independent_share, reference_columns
from coterie.methods.algorithm import Algorithm, method_of
from coterie.rules.soft_groups import ShareMemory, known_shares
from coterie.runs.folder.store import RunFolder
from coterie.runs.guards import warn_of_one_class
from coterie.runs.spec import RunSpec
from coterie.runs.summary import Kept, summarise
from coterie.tasks import baseline, naive_scores

# What a file calls the samples of a split, and how its names of figures on them end.
_NAMES: Mapping[Split, tuple[str, str]] = {
    "test": ("test_samples", ""),
    "train": ("training_samples", "_training"),
}


def write_client_scores(
    folder: RunFolder,
    names: Sequence[str],
    member: IntArray,
    scored: Mapping[Split, Sums],
    task: Task,
    population: Population,
) -> None:
    """Write what the model of each client reached, of sums over the samples of each split it is scored
    on, ``[N, *shape]``, and what predictions without a model reach."""
    columns: dict[str, IntArray | FloatArray] = {}
    for split, sums in scored.items():
        samples, end = _NAMES[split]
        columns[samples] = sums["size"].astype(np.int64)
        columns |= client_columns(task, sums, independent_share(population), end)
        if split == "test":
            columns |= reference_columns(task, population)
    folder.results.write_clients(names, member, columns)


def kept_of(algorithm: Algorithm, module: nn.Module) -> Kept | None:
    """What stays with the clients of a method; ``None``: nothing, or the whole model."""
    method = method_of(algorithm)
    if method is None or method.local.keep is None:
        return None
    keep = method.local.stays
    layout = Layout.of(module)
    assert keep is not None
    if keep.size == layout.d:
        return None
    tensors = []
    for name in layout.names:
        span = layout.span(name)
        if keep.overlaps(span.start, span.stop):
            tensors.append(name)
    return Kept(_layers(tensors, layout.names), keep.size, layout.d)


def _layers(tensors: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Tensors as people name them: by their layer, where they are all of it."""
    found: dict[str, None] = {}
    for tensor in tensors:
        layer = tensor.rpartition(".")[0]
        of_layer = [name for name in names if name.rpartition(".")[0] == layer]
        whole = bool(layer) and set(of_layer) <= set(tensors)
        found[layer if whole else tensor] = None
    return tuple(found)


def write_results(
    folder: RunFolder,
    spec: RunSpec,
    groups: Groups,
    since: IntArray,
    config: Experiment,
    names: tuple[str, ...],
    *,
    samples_at_hand: bool = True,
) -> dict[str, Any]:
    """Write models, groups and summary of a run that is done; returns the summary. Real federations
    may not have met all of ``names``."""
    # A federation may have places for clients that never came; they have no name and no line.
    known = len(names)
    folder.results.write_models(Layout.of(spec.network.module), groups.models)
    folder.results.write_groups(names, groups.member[:known], since[:known])
    # In hard groups they say no more than the groups.
    if groups.memory.get(ShareMemory) is not None:
        folder.results.write_shares(names, known_shares(groups)[:known])
    headline = headline_of(spec.task)
    kept = kept_of(spec.algorithm, spec.network.module)
    summary = summarise(config.resolved(), folder.rows(), known, headline, kept)
    # A figure is hard to read without that of a model that ignores its inputs.
    if samples_at_hand:
        summary["baseline"] = baseline(spec.task, spec.population)
        warn_of_one_class(spec, groups)
    frozen = frozen_parameters(spec.network.module)
    if frozen:
        # Loaded once by each node, so these bytes are in no round's transfers.
        sizes = [values.numel() * values.element_size() for values in frozen.values()]
        summary["transfers"]["frozen_bytes"] = sum(sizes)
    summary |= _over_clients(folder, names, headline)
    if spec.population.naive:
        summary["naive"] = naive_scores(spec.task, spec.population)
    folder.results.write_summary(summary)
    return summary


def _over_clients(folder: RunFolder, names: Sequence[str], headline: Headline) -> dict[str, Any]:
    """The mean of the clients' own scores, the worst of them, whose it is and what it rests on; nothing
    where no client has one.

    A score over all samples can hide a client that the models do not serve: it has few of the
    samples, and an AUROC over all compares samples of different clients.
    """
    table = folder.results.clients()
    worst = None if table is None else table.worst(headline)
    if table is None or worst is None:
        return {}
    values = table.value(headline)
    scored = np.isfinite(values)
    found: dict[str, Any] = {
        "scored": int(scored.sum()),
        "mean": float(values[scored].mean()),
        "worst": float(values[worst]),
        "client": names[worst],
        "samples": int(table.samples[worst]),
    }
    ends = [float(end[worst]) for end in table.interval(headline)]
    if np.isfinite(ends).all():
        found["interval"] = ends
    if table.positives is not None:
        found["positives"] = int(table.positives[worst])
    return {"over_clients": found}
