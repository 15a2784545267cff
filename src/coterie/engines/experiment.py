"""The clients of a simulation as an experimenter sees them: what serves each, and what a training
would do that leaves no trace.

Measures of a run need this and no server could have it. See `coterie.measures.adapting` and
`coterie.measures.unseen`.
"""

from __future__ import annotations

from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.core.engine import Engine
from coterie.core.keep import ClientStore
from coterie.core.keys import Key
from coterie.core.work import Train
from coterie.engines.keeping import KeepingEngine
from coterie.engines.own_models import OwnModelEngine


class Experiment:
    """What measures may do with the clients of a simulation.

    Args:
        trains: the engine that trains, without what remembers anything.
        store: the parts of models that clients keep.
        own_models: what clients store for a model of their own.
    """

    def __init__(self, trains: Engine, store: ClientStore, own_models: ClientStore) -> None:
        self.trains = trains
        self.store = store
        self.own_models = own_models
        self._own = OwnModelEngine(trains, own_models)
        self._engine = KeepingEngine(self._own, store)

    @property
    def engine(self) -> Engine:
        """The clients, with what they have stored."""
        return self._engine

    def served_models(
        self, ids: IntArray, models: Tensor, which: IntArray, personal: Train | None, key: Key
    ) -> Tensor:
        """See `coterie.core.engine.Simulated.served_models`."""
        if personal is not None:
            return self._own.served_models(personal, ids, models, which, key)
        return self._engine.served_models(ids, models, which)

    def on_trial(self) -> Experiment:
        """The same clients with copies of what they have stored."""
        return Experiment(self.trains, self.store.copy(), self.own_models.copy())
