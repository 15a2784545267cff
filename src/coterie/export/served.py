"""The models by which clients of a simulation predict, with all that each of them keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.data import Population
from coterie.export.source import ExportSource
from coterie.runs.kept import restore_kept


@dataclass(frozen=True, slots=True)
class ServedClients:
    """Who is served.

    Args:
        population: with the training samples to which a client of a method such as FedALA fits the
            model that it is sent.
        groups: the state, with a place for each client of the population.
    """

    population: Population
    groups: Groups

    @classmethod
    def of(cls, source: ExportSource) -> ServedClients:
        """The clients of a run."""
        return cls(source.population, source.checkpoint.groups)


def served_models(source: ExportSource, clients: ServedClients, ids: IntArray) -> Tensor:
    """The models by which some clients predict, float32 ``[n, d]``.

    A client that stored something has it in its model. One that never trained has what the method
    serves newcomers: personal layers have their first values, and in place of a model of its own it
    has the shared one.

    Args:
        source: a run of a simulation.
        clients: all of them.
        ids: int64 ``[n]``, those that are asked for.

    Raises:
        ConfigError: where no single model serves a client.
    """
    # Made with all of them: an engine takes over who holds what, and no further clients.
    spec = replace(source.prepared.spec, population=clients.population)
    checkpoint = source.checkpoint
    served = spec.algorithm.serve(clients.groups)
    # The stream of the last evaluation, so that the models are those that were scored.
    key = spec.key.at(checkpoint.round - 1).of("evaluate")
    with spec.make_clients("serial", {}) as engine:
        restore_kept(engine, checkpoint.extra)
        # A copy: the models may be views of the checkpoint.
        return torch.clone(engine.served_models(ids, served, key))
