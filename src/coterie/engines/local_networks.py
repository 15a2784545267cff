"""Clients of a simulation that remember the network that they trained last.

Some papers score a client with the network that its last local training left, not with a model of
the server. A real client has that network on its own disk. In a simulation this wrapper plays that
part around any engine: it looks at every training that passes, and changes none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from coterie.core.arrays import IntArray, places_of
from coterie.core.engine import Engine, Reply
from coterie.core.keep import ClientStore, Keep
from coterie.core.keys import Key
from coterie.core.training import FullGradient
from coterie.core.work import Train, Work


class RememberingEngine:
    """An engine around any simulating engine that stores each client's last trained network.

    Args:
        engine: trains whole models: serial, pool, vmap or Ray.
        networks: where they are stored, one vector ``[d]`` for each client that trained.
        d: values of a model; ``None``: of a row. A row may be longer: behind the model is then what
            a client has of its own.
    """

    def __init__(self, engine: Engine, networks: ClientStore, d: int | None = None) -> None:
        self.engine = engine
        self.networks = networks
        self.d = d

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        # The gradient of a whole data set is no training: it leaves the client no network. Nor does
        # the adaptation of a model of the client's own, with which it is only scored.
        # Neither have clients one network that train several.
        adapts = isinstance(work, Train) and work.trial and work.own_model is not None
        if (
            not isinstance(work, Train)
            or isinstance(work.how, FullGradient)
            or adapts
            or work.mixture
        ):
            return self.engine.run(work, ids, models, which, key=key)
        d = models.shape[1] if self.d is None else self.d
        self.networks.begin(Keep(((0, d),)))
        # A client that sends a slice of its update has trained, and keeps, the whole network.
        whole = replace(work, upload=None)
        replies = []
        for reply in self.engine.run(whole, ids, models, which, key=key):
            self._remember(reply, models, which[places_of(reply.ids, ids)])
            fields = {**reply.fields, "delta": work.uploaded(reply.fields["delta"])}
            replies.append(Reply(reply.round, reply.ids, fields, reply.purpose))
        return replies

    def _remember(self, reply: Reply, models: Tensor, sent: IntArray) -> None:
        """Store the networks of a reply.

        Args:
            reply: with whole updates.
            models: float32 ``[k, d]``, those that the clients were sent rows of.
            sent: int64 ``[n]`` or ``[n, r]``, the row or rows that each client was sent.
        """
        rows = sent.reshape(len(sent), -1)
        # A client that chose among several models trained the one it chose.
        column = reply.fields.get("choice", np.zeros(len(rows))).astype(np.int64)
        start = rows[np.arange(len(rows)), column]
        delta = reply.fields["delta"][:, : self.d]
        # A client whose training ended in infinities keeps the network of the training before.
        finite = np.isfinite(delta).all(axis=1)
        # One client at a time: the networks of a large cohort would not fit memory side by side.
        for place in np.flatnonzero(finite).tolist():
            network = models[int(start[place]), : self.d].numpy() + delta[place]
            self.networks.put(reply.ids[place : place + 1], network[None])

    def set_population(self, population: Any) -> None:
        self.engine.set_population(population)

    def close(self) -> None:
        self.engine.close()
