"""The models of an export: those of the groups, a file for each, or that of a single client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from coterie.config.wording import nearest
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.served import Served
from coterie.data import Population
from coterie.errors import ConfigError
from coterie.export.source import ExportSource
from coterie.runs.progress import OWN_MODELS, kept_state, restore_kept
from coterie.terminal import first_few

NO_GROUP = "no-group"

NAME = "client"  # of the file with the model of a single client


@dataclass(frozen=True, slots=True)
class ExportedModels:
    """The models of an export.

    Args:
        vectors: name of the file, without its ending -> flat parameters ``[d]``.
        row: int64 ``[N]``, which of them serves each client, by its place in ``vectors``; -1 for a
            client whose model is not there.
    """

    vectors: Mapping[str, Tensor]
    row: IntArray
    groups: int

    @classmethod
    def of(cls, groups: Groups, served: Served) -> ExportedModels:
        """The models of all groups, and every other model that serves a client: the model for
        clients without a group, and mixtures."""
        models, row = served.for_clients(np.arange(len(groups.member)))
        # Groups without clients as well: a newcomer may belong to one of them.
        needed = [*range(groups.k), *np.unique(row[row >= groups.k]).tolist()]
        names = [_name(number, groups.k, len(served.models)) for number in needed]
        place = np.zeros(len(models), np.int64)
        place[needed] = np.arange(len(needed))
        vectors = {name: models[number] for name, number in zip(names, needed, strict=True)}
        return cls(vectors, place[row], groups.k)

    def for_newcomers(self, vector: Tensor) -> ExportedModels:
        """The same with the model that serves clients without a group, even if there are none now."""
        if NO_GROUP in self.vectors:
            return self
        return replace(self, vectors={**self.vectors, NO_GROUP: vector})

    @property
    def names(self) -> list[str]:
        """The name of the model that serves each client, empty for one whose model is not there."""
        names = [*self.vectors, ""]
        return [names[place] for place in self.row]


def _name(number: int, groups: int, models: int) -> str:
    """The name of a model: first come those of groups, then that for no group, then mixtures."""
    if number < groups:
        return f"group-{number}"
    if number < models:
        return NO_GROUP
    return f"mixture-{number - models}"


@dataclass(frozen=True, slots=True)
class ServedClients:
    """Who is served: the clients, to whose samples models may be fitted, and a place for each."""

    population: Population
    groups: Groups

    @classmethod
    def of(cls, source: ExportSource) -> ServedClients:
        return cls(source.population, source.checkpoint.groups)


def served_models(source: ExportSource, clients: ServedClients, ids: IntArray) -> Tensor:
    """The models by which some clients predict, float32 ``[n, d]``, with what each has stored. A
    client that never trained has what the method serves newcomers: the first values of personal
    layers, and the shared model in place of its own."""
    # Made with all of them: an engine takes over who holds what, and no further clients.
    spec = replace(source.composed.spec, population=clients.population)
    checkpoint = source.checkpoint
    served = spec.algorithm.serve(clients.groups)
    # The stream of the last evaluation, so that the models are those that were scored.
    key = spec.key.at(checkpoint.round - 1).of("evaluate")
    with spec.make_clients("serial", {}) as engine:
        restore_kept(engine, checkpoint.extra)
        # A copy: the models may be views of the checkpoint.
        return torch.clone(engine.served_models(ids, served, key))


@dataclass(frozen=True, slots=True)
class ClientModel:
    """What serves a client, which has this place among the clients, and whether it includes values
    that the client stored."""

    name: str
    number: int
    vector: Tensor
    own: bool

    def models(self, clients: int) -> ExportedModels:
        """The model as an export without groups."""
        row = np.full(clients, -1)
        row[self.number] = 0
        return ExportedModels({NAME: self.vector}, row, groups=0)


def number_of(source: ExportSource, name: str) -> int:
    """The place of a client."""
    if source.real:
        what = "the models of real clients stay at their sites"
        expected = f"`coterie node export {name}` at the site, or no --client"
        if not source.keeps:
            what = "real clients use the model of their group"
            expected = "no --client: predict.py selects the model by the column client"
        raise ConfigError("does-not-fit", "--client", what, got=name, allowed=expected)
    names = list(map(str, source.population.names))
    if name not in names:
        expected = f"one of {first_few(names)}"
        what = "no such client"
        hint = nearest(name, names)
        raise ConfigError("not-found", "--client", what, got=name, allowed=expected, hint=hint)
    return names.index(name)


def client_model(source: ExportSource, name: str) -> ClientModel:
    """The model by which a client of a simulation predicts, with all that it keeps. If the method
    has clients fit the model that they are sent (FedALA), this one does so first, as in scoring."""
    number = number_of(source, name)
    vector = served_models(source, ServedClients.of(source), np.array([number]))[0]
    extra = source.checkpoint.extra
    stored = [kept_state(extra, prefix).ids for prefix in ("", OWN_MODELS)]
    return ClientModel(name, number, vector, own=number in np.concatenate(stored))
