"""Clients scored with the model that serves them after some training of their own.

Scores before and after say different things: how well one model fits all clients of a group, and how
good a start it is for each of them. The adapted models are thrown away, so a run is the same to the
bit whether it is measured so or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from coterie.clients.clients import Clients
from coterie.config.arguments import check_arguments
from coterie.core.arrays import IntArray, places_of
from coterie.core.keep import KeepLayers
from coterie.core.keys import Key
from coterie.core.objective import Objective
from coterie.core.served import Served
from coterie.core.task import Sums, Task
from coterie.core.training import Epochs, Phase, Phases
from coterie.core.work import Train
from coterie.headline import Keys
from coterie.measures.own_models import score_own_models, scored_figures


@dataclass(frozen=True, slots=True)
class Adaptation:
    """Local training of a copy of the served model, before it is scored.

    Args:
        epochs: over the client's own training samples.
        layers: that move, as `coterie.core.keep.keep_layers` reads them; ``()``: all of them.

    Raises:
        ConfigError: for epochs out of their range.

    Example:
        >>> Adaptation(epochs=2, layers=("head",)).text
        '2 epochs on its own training samples, of head alone'
    """

    epochs: Annotated[int, Field(ge=1)] = 1
    layers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_arguments(Adaptation, {"epochs": self.epochs})

    @property
    def text(self) -> str:
        """What happens to a model, in words."""
        epochs = "1 epoch" if self.epochs == 1 else f"{self.epochs} epochs"
        text = f"{epochs} on its own training samples"
        if self.layers:
            text += f", of {', '.join(self.layers)} alone"
        return text

    def work(self, module: nn.Module, objective: Objective) -> Train:
        """The training that adapts a model.

        Args:
            module: the network.
            objective: what is minimised.

        Raises:
            ConfigError: for layers that the network does not have.
        """
        if not self.layers:
            return Train(objective, Epochs(self.epochs))
        moves = KeepLayers(self.layers, "evaluate.adapt.layers").of(module)
        return Train(objective, Phases((Phase(moves, self.epochs),)))


def score_adapted(
    clients: Clients,
    ids: IntArray,
    trainable: IntArray,
    served: Served,
    work: Train,
    key: Key,
    task: Task,
) -> Sums:
    """The sums of each client's test samples under its served model after local training.

    Client ``i`` starts from what serves it, the parts that it keeps among it, and trains on its own
    training samples. A client without any, or whose training ends in infinities, is scored as it was. Neither
    the clients nor the ledger know of it afterwards.

    Args:
        clients: those that train and score.
        ids: int64 ``[n]``, which of them.
        trainable: int64, those who have training samples; others may be among them.
        served: which model serves each client.
        work: the training.
        key: random stream, apart from those of the run.
        task: whose sums.

    Returns:
        ``[n, *shape]`` each.
    """
    forgetful = clients.forgetful()

    def adapted(block: IntArray) -> Tensor:
        own = clients.served_models(block, served, key)
        trains = np.flatnonzero(np.isin(block, trainable))
        reply = forgetful.measure(work, block[trains], own, trains, key=key)
        own[torch.from_numpy(places_of(reply.ids, block))] += torch.from_numpy(
            reply.fields["delta"]
        )
        return own

    return score_own_models(forgetful, ids, adapted, served.models.shape[1], key, task)


def adapted_figures(sums: Sums, task: Task, keys: Keys) -> dict[str, Any]:
    """The figures of `score_adapted` as a row has them.

    Args:
        sums: what it found.
        task: whose headline.
        keys: of the headline before adaptation.
    """
    return scored_figures(task.metrics[0], sums, keys.adapted)
