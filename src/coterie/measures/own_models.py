"""Clients scored on models of their own: what local training makes of the one that serves them, and
the network that they trained last.

Scores before and after local training say different things: how well one model fits all clients of a
group, and how good a start it is for each of them. The adapted models are thrown away, so a run is
the same to the bit whether it is measured so or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from coterie.clients.clients import Clients
from coterie.config.arguments import CheckedFields
from coterie.core.arrays import IntArray, places_of
from coterie.core.keep import KeepLayers
from coterie.core.keys import Key
from coterie.core.objective import Objective
from coterie.core.served import Served
from coterie.core.task import Sums, Task
from coterie.core.training import Epochs, Phase, Phases
from coterie.core.work import Score, Train
from coterie.headline import Keys
from coterie.measures.figures import own_sums, scored_figures
from coterie.measures.sampling import EvaluationSample
from coterie.tasks import CLASSIFICATION

_BLOCK = 2**28  # bytes of models that are scored at once

# Some clients, int64 [n] -> the model of each, float32 [n, d].
OwnModels = Callable[[IntArray], Tensor]


def score_own_models(
    clients: Clients, ids: IntArray, models: OwnModels, d: int, key: Key, task: Task
) -> Sums:
    """The sums of each client's test samples under a model of its own of length ``d``,
    ``[n, *shape]``; the models are asked for block by block."""
    work = Score("test", loss=False, sums=task.sums)
    parts = [{name: np.empty((0, *shape)) for name, shape in (*task.sums, ("size", ()))}]
    for block in blocks(ids, d):
        # Scoring is no part of what a method costs.
        reply = clients.run(
            work, block, models(block), np.arange(len(block)), key=key, counts=False
        )
        parts.append(dict(own_sums(reply, task)))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def blocks(ids: IntArray, d: int) -> Iterator[IntArray]:
    """Clients, cut so that models of their own take at most ``_BLOCK`` bytes a block."""
    size = max(1, _BLOCK // (4 * d))
    for at in range(0, len(ids), size):
        yield ids[at : at + size]


# --- after local training -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Adaptation(CheckedFields):
    """Local training of a copy of the served model, before it is scored.

    Args:
        epochs: passes over the client's training samples.
        layers: names of the layers that are trained, as in `coterie.core.keep.layers_to_keep`; ``()``:
            all layers.

    Example:
        >>> Adaptation(epochs=2, layers=("head",)).text
        '2 epochs on its own training samples, of head alone'
    """

    epochs: Annotated[int, Field(ge=1)] = 1
    layers: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """A description of the adaptation in words."""
        text = f"{self.epochs} epoch{'s' * (self.epochs > 1)} on its own training samples"
        if self.layers:
            text += f", of {', '.join(self.layers)} alone"
        return text

    def work(self, module: nn.Module, objective: Objective) -> Train:
        """The training that adapts a model."""
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
    """The sums of each client's test samples under its served model after local training,
    ``[n, *shape]``. Clients and ledger are not changed.

    Client ``i`` starts from what serves it, the parts that it keeps among it. One without training
    samples, or whose training ends in infinities, is scored without it.
    """
    forgetful = clients.forgetful()

    def adapted(block: IntArray) -> Tensor:
        own = clients.served_models(block, served, key)
        trains = np.flatnonzero(np.isin(block, trainable))
        reply = forgetful.run(work, block[trains], own, trains, key=key, counts=False)
        own[torch.from_numpy(places_of(reply.ids, block))] += reply.delta
        return own

    return score_own_models(forgetful, ids, adapted, served.models.shape[1], key, task)


def adapted_figures(sums: Sums, task: Task, keys: Keys) -> dict[str, Any]:
    """The figures of `score_adapted` as a row has them, named after the headline before adaptation."""
    return scored_figures(task.metrics[0], sums, keys.adapted)


# --- the last local network -----------------------------------------------------------------------


def score_local_networks(
    clients: Clients,
    testable: NDArray[np.bool_],
    key: Key,
    sample: EvaluationSample | None = None,
    task: Task = CLASSIFICATION,
) -> dict[str, Any]:
    """The figures of what the last training of each client left, ``w + delta_i``, whatever the
    server made of it, for a sample or all clients that trained.

    PACFL's scripts score clients so, those that never trained with ``w_0``; here these do not
    count.
    """
    networks = clients.stores.networks
    assert networks is not None, "the clients of this run do not remember their networks"
    trained = np.zeros_like(testable)
    trained[networks.ids()] = True
    ids = np.flatnonzero(testable & trained)
    if sample is not None:
        # Clients with a group and without count alike here, so they are one kind.
        ids = sample.draw(testable & trained, np.ones_like(testable))

    def stored(block: IntArray) -> Tensor:
        return torch.from_numpy(networks.get(block))

    d = 1 if networks.keep is None else networks.keep.size
    sums = score_own_models(clients, ids, stored, d, key, task)
    metric = task.metrics[0]
    figures = scored_figures(metric, sums, metric.headline.keys.local)
    return {"evaluated_local": len(sums["size"]), **figures}
