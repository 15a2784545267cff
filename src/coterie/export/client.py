"""The model of a single client: that of its group, with the layers that it keeps, or its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from coterie.config.problems import Problem, refuse
from coterie.config.wording import nearest
from coterie.errors import ConfigError
from coterie.export.models import ExportedModels
from coterie.export.served import ServedClients, served_models
from coterie.export.source import ExportSource
from coterie.runs.kept import OWN_MODELS, kept_state

NAME = "client"
# Names in an error line.
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ClientModel:
    """What serves a client.

    Args:
        name: of the client.
        number: its place among the clients.
        vector: float32 ``[d]``.
        own: whether the client has stored something of its own, which is in it.
    """

    name: str
    number: int
    vector: Tensor
    own: bool

    def models(self, clients: int) -> ExportedModels:
        """The model as an export without groups.

        Args:
            clients: number of clients of the run.
        """
        row = np.full(clients, -1)
        row[self.number] = 0
        return ExportedModels({NAME: self.vector}, row, groups=0)


def number_of(source: ExportSource, name: str) -> int:
    """The place of a client.

    Raises:
        ConfigError: for a client that the run does not have, and for a run of real clients, who have
            theirs on their own machines.
    """
    if source.real:
        raise ConfigError(
            f"--client: what real clients keep is on their own nodes, got {name!r}; expected "
            f"`coterie node export {name}` there, or the shared models without --client"
        )
    names = list(map(str, source.population.names))
    if name not in names:
        expected = f"one of {', '.join(names[:_SHOWN])}"
        if len(names) > _SHOWN:
            expected += ", ..."
        refuse(Problem("--client", "no such client", name, expected, nearest(name, names)))
    return names.index(name)


def client_model(source: ExportSource, name: str) -> ClientModel:
    """The model by which a client of a simulation predicts, with all that it keeps.

    A client of a method such as FedALA fits the model that it is sent to its samples first, as it does
    where it is scored.

    Args:
        source: the run.
        name: of the client.

    Raises:
        ConfigError: as `number_of` does, and for a client that no single model serves.
    """
    number = number_of(source, name)
    vector = served_models(source, ServedClients.of(source), np.array([number]))[0]
    extra = source.checkpoint.extra
    stored = [kept_state(extra, prefix).ids for prefix in ("", OWN_MODELS)]
    return ClientModel(name, number, vector, own=number in np.concatenate(stored))
