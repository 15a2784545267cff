"""Clients of a simulation that keep a part of their model to themselves, or the network that they
trained last.

A real client has its own disk. In a simulation these wrappers play that part around any engine. One
puts each client's stored coordinates into the models it is sent, and takes them out of its update
before the update is passed on. The other looks at every training that passes, and changes none: some
papers score a client with the network that its last local training left. The engine inside trains
whole models and knows nothing of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.core import Engine, FullGradient, IntArray, Key, Reply, Score, Train, Work, places_of
from coterie.core.arrays import rows_of_each
from coterie.core.keep import ClientStore, Keep, client_blocks


class KeepingEngine:
    """An engine around any simulating engine, whose `run` also implements `Train.keep`.

    A client's stored coordinates replace those of every model it is sent, for training and for
    evaluation. Work without ``keep`` passes through unchanged, and so does every evaluation until a
    client has stored something: a run that keeps nothing pays for two comparisons a request.
    """

    def __init__(self, engine: Engine, store: ClientStore | None = None) -> None:
        self.engine = engine
        self.store = ClientStore() if store is None else store

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        if isinstance(work, Train) and work.stays is not None:
            self.store.begin(work.stays)
            if work.trial:
                return self._try(work, ids, models, which, key)
            return self._train(work, work.stays, ids, models, which, key)
        if isinstance(work, Score) and self.store.keep is not None:
            return self._evaluate(work, self.store.keep, ids, models, which, key)
        return self.engine.run(work, ids, models, which, key=key)

    def _train(
        self, work: Train, keep: Keep, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        """Train whole models; store what stays, return what leaves."""
        stays = keep.kept()
        whole = _whole(work)
        replies = []
        # Clients draw from streams of their own, so blocks may share a key.
        for block in client_blocks(len(ids), _bytes_each(models, which)):
            starts, rows = self._starts(keep, ids[block], models, which[block])
            for reply in self.engine.run(whole, ids[block], starts, rows, key=key):
                delta = reply.fields["delta"]
                place = places_of(reply.ids, ids[block])
                sent = rows_of_each(rows[place])
                # A client that chose among several models moved away from the one it chose.
                column = reply.fields.get("choice", np.zeros(len(place))).astype(np.int64)
                trained_from = sent[np.arange(len(place)), column]
                kept = starts.numpy()[np.ix_(trained_from, stays)] + delta[:, stays]
                # The server refuses an update that is not finite. Its client keeps what it had
                # before this training, or it would never recover.
                finite = np.isfinite(delta).all(axis=1)
                self.store.put(reply.ids[finite], kept[finite])
                replies.append(reply.with_fields(delta=work.uploaded(delta)))
        return replies

    def _try(
        self, work: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        """Train whole models as they were sent, without a trace; return what leaves."""
        replies = []
        for reply in self.engine.run(_whole(work), ids, models, which, key=key):
            replies.append(reply.with_fields(delta=work.uploaded(reply.fields["delta"])))
        return replies

    def _evaluate(
        self, work: Score, keep: Keep, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        """Score clients that have stored something on models of their own, the others as usual."""
        stored_before = self.store.has_stored(ids)
        replies: list[Reply] = []
        if not stored_before.all():
            replies += self.engine.run(
                work, ids[~stored_before], models, which[~stored_before], key=key
            )
        places = np.flatnonzero(stored_before)
        for part in client_blocks(len(places), _bytes_each(models, which)):
            block = places[part]
            starts, rows = self._starts(keep, ids[block], models, which[block])
            replies += self.engine.run(work, ids[block], starts, rows, key=key)
        return replies

    def _starts(
        self, keep: Keep, ids: IntArray, models: Tensor, which: IntArray
    ) -> tuple[Tensor, IntArray]:
        """The models of each client with its stored coordinates in them, float32 ``[n r, d]``, and
        of each client its rows there, shaped as ``which``."""
        starts = models.numpy()[which.reshape(-1)]  # fancy indexing makes a copy
        rows = np.arange(len(starts)).reshape(which.shape)
        stored_before = self.store.has_stored(ids)
        if stored_before.any():
            columns = rows_of_each(rows)[stored_before]
            stored = self.store.get(ids[stored_before])
            starts[np.ix_(columns.reshape(-1), keep.kept())] = np.repeat(
                stored, columns.shape[1], axis=0
            )
        return torch.from_numpy(starts), rows

    def served_models(self, ids: IntArray, models: Tensor, which: IntArray) -> Tensor:
        """The models of some clients with what each keeps in them, float32 ``[n, d]``."""
        if self.store.keep is None:
            return models[torch.from_numpy(which)]
        return self._starts(self.store.keep, ids, models, which)[0]

    def set_population(self, population: Any) -> None:
        self.engine.set_population(population)

    def close(self) -> None:
        self.engine.close()


def _whole(work: Train) -> Train:
    """The same training for the engine inside: it sees whole models and whole updates, and needs no
    code for what stays."""
    return replace(work, keep=None, upload=None)


def _bytes_each(models: Tensor, which: IntArray) -> int:
    return 4 * models.shape[1] * rows_of_each(which).shape[1]


class RememberingEngine:
    """An engine around any simulating engine that stores each client's last trained network: the
    first ``d`` values of a row, which for own models is longer."""

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
            replies.append(reply.with_fields(delta=work.uploaded(reply.fields["delta"])))
        return replies

    def _remember(self, reply: Reply, models: Tensor, sent: IntArray) -> None:
        """Store the networks of a reply with whole updates, whose clients were sent the rows
        ``sent``."""
        rows = rows_of_each(sent)
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
