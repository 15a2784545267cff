"""Which model predicts for which client of new rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.own_model import Adapts
from coterie.data.tabular.new_rows import NewRows
from coterie.errors import ConfigError
from coterie.export.models import ServedClients, served_models
from coterie.export.source import ExportSource
from coterie.export.table_outputs import TaskRecord, nearest_group, placed_by_labels
from coterie.local.describe import describe_inputs
from coterie.methods.placing import rule_without_labels
from coterie.rules.assigning import Serve
from coterie.rules.hooks import call
from coterie.rules.newcomers import BY_INPUTS, ONE_MODEL, WITHOUT_LABELS
from coterie.runs.spec import ModelOutputs
from coterie.terminal import counted

KNOWN = "known client"
# What new clients have where those of the run have something of their own.
UNTRAINED_LAYERS = "its own layers are untrained"
SHARED_MODEL = "the shared model, instead of its own model"
NOT_FITTED = "not fitted to it: no labels"


@dataclass(frozen=True, eq=False, slots=True)
class Placed:
    """Which model serves a client."""

    client: str
    group: int
    by: str
    vector: Tensor


def place_clients(source: ExportSource, new: NewRows, task: TaskRecord) -> dict[str, Placed]:
    """The model of each client of the rows."""
    if source.shares_nothing:
        _check_known(source, new)
    names = {name: at for at, name in enumerate(source.population.names)}
    groups = source.checkpoint.groups
    serve = source.composed.algorithm.serve
    served = serve(groups)
    network = ModelOutputs(source.composed.predictor)
    # The same for all who are in no group, and not needed where there are none.
    without_group = cache(lambda: newcomer_vector(serve, groups))
    found = {}
    for client, mine in rows_of_clients(new).items():
        labelled = torch.from_numpy(mine[new.labelled[mine]])
        if client in names:
            at = names[client]
            found[client] = Placed(client, int(groups.member[at]), KNOWN, served.vector(at))
        elif groups.k < 2:
            found[client] = Placed(client, 0, ONE_MODEL, groups.models[0])
        elif len(labelled):
            x = new.x[labelled]
            outputs = [network.of(vector, x) for vector in groups.models]
            group = nearest_group(task, outputs, new.target[labelled])
            by = placed_by_labels(len(labelled))
            found[client] = Placed(client, group, by, groups.models[group])
        else:
            by_inputs = group_by_inputs(source, new.x[torch.from_numpy(mine)])
            if by_inputs is None:
                found[client] = Placed(client, -1, WITHOUT_LABELS, without_group())
            else:
                found[client] = Placed(client, by_inputs, BY_INPUTS, groups.models[by_inputs])
    if source.keeps:
        return with_own_parts(source, new, found)
    return found


def rows_of_clients(new: NewRows) -> dict[str, IntArray]:
    """The rows of each client, which come in the order of their first rows."""
    found: dict[str, list[int]] = {}
    for row, client in enumerate(new.client.tolist()):
        found.setdefault(client, []).append(row)
    return {client: np.array(rows, np.int64) for client, rows in found.items()}


def with_own_parts(
    source: ExportSource, new: NewRows, placed: Mapping[str, Placed]
) -> dict[str, Placed]:
    """The same clients, each with the model that it predicts by, with all that it keeps."""
    clients = with_newcomers(source, new, placed)
    names = {name: at for at, name in enumerate(clients.population.names)}
    ids = np.array([names[client] for client in placed])
    vectors = served_models(source, clients, ids)
    known = set(source.population.names)
    rows = rows_of_clients(new)
    found = {}
    for one, vector in zip(placed.values(), vectors, strict=True):
        by = one.by
        if one.client not in known:
            labelled = int(new.labelled[rows[one.client]].sum())
            by = f"{by}; {own_part_of_newcomers(source, labelled)}"
        found[one.client] = replace(one, by=by, vector=vector)
    return found


def with_newcomers(
    source: ExportSource, new: NewRows, placed: Mapping[str, Placed]
) -> ServedClients:
    """The clients of the run, and behind them the new ones, whose labelled rows are training samples."""
    population = source.population
    known = set(population.names)
    newcomers = [one for one in placed.values() if one.client not in known]
    first = len(population.y)
    rows = rows_of_clients(new)
    held = [rows[one.client] for one in newcomers]
    train = [first + mine[new.labelled[mine]] for mine in held]
    nothing = np.empty(0, np.int64)
    more = replace(
        population,
        x=torch.cat([population.x, new.x.to(population.x.dtype)]),
        y=torch.cat([population.y, _targets(new, population.y)]),
        train=(*population.train, *train),
        test=(*population.test, *(nothing for _ in newcomers)),
        names=(*population.names, *(one.client for one in newcomers)),
        # Of the run's own samples and clients alone, and no model is made of them.
        naive={},
        planted=None,
        concept=None,
    )
    groups = source.checkpoint.groups
    member = np.append(groups.member, [one.group for one in newcomers])
    return ServedClients(more, replace(groups, member=member.astype(groups.member.dtype)))


def _targets(new: NewRows, known: Tensor) -> Tensor:
    """What the task learns of the new rows, as the run's samples have it; zeros without a label."""
    targets = torch.zeros((len(new.x), *known.shape[1:]), dtype=known.dtype)
    labelled = torch.from_numpy(new.labelled)
    if labelled.any():
        targets[labelled] = new.target[labelled].to(known.dtype).reshape(-1, *known.shape[1:])
    return targets


def own_part_of_newcomers(source: ExportSource, labelled: int) -> str:
    """In words: what a new client with so many labelled rows has in place of what the run's clients
    store."""
    personal = source.composed.algorithm.serve(source.checkpoint.groups).personal
    if personal is None:
        return UNTRAINED_LAYERS
    if not isinstance(personal.own_model, Adapts):
        return SHARED_MODEL
    return f"fitted to its labels in {counted(labelled, 'row')}" if labelled else NOT_FITTED


def _check_known(source: ExportSource, new: NewRows) -> None:
    """Refuse new clients of a method whose clients share nothing."""
    known = set(source.population.names)
    for client in new.client.tolist():
        if client not in known:
            what = f"clients of {source.composed.experiment.name('algorithm')!r} share no model"
            got = f"rows of the new client {client!r}"
            expected = "clients of the run"
            raise ConfigError("does-not-fit", "--data", what, found=got, allowed=expected)


def group_by_inputs(source: ExportSource, x: Tensor) -> int | None:
    """The group of a client whose samples have no labels; ``None`` if the method has no rule for
    it."""
    rule = rule_without_labels(source.composed.algorithm)
    groups = source.checkpoint.groups
    asked = None if rule is None else call("ask_unlabelled", rule.ask_unlabelled, groups)
    if rule is None or asked is None:
        return None
    work, model = asked
    key = Key(source.composed.experiment.seed)
    described = describe_inputs(work, x, key, source.composed.module, model)
    rows = torch.from_numpy(described[None])
    return int(call("place_unlabelled", rule.place_unlabelled, groups, rows)[0])


def newcomer_vector(serve: Serve, groups: Groups) -> Tensor:
    """The model ``[d]`` of a client that has just come and is in no group."""
    # As if one more client had come.
    more = replace(groups, member=np.append(groups.member, -1))
    return serve(more).vector(len(groups.member))
