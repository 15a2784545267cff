"""Clients of a simulation that have a model of their own in addition to the one they are sent.

A real client has its own disk. In a simulation this wrapper plays that part around any engine. It
puts what a client stored behind the model that it is sent, in one row, and takes what it stores
from now on out of the reply. The engine inside hands rows to `coterie.local.training.client` and knows
nothing of it; nothing of what is stored is in the reply that is passed on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.clients.validation import Expected, ReplyValidator
from coterie.core import BoolArray, Engine, IntArray, Key, Reply, Score, Train, Work, places_of
from coterie.core.arrays import rows_of_each
from coterie.core.keep import ClientStore, Keep, Vectors, client_blocks
from coterie.core.own_model import (
    Adapts,
    LocalTraining,
    Own,
    OwnModel,
    OwnTrained,
    ServesStored,
    checked_vector,
    join_own,
    split_own,
)
from coterie.engines.simulation import least_loss_choices


@dataclass(frozen=True, slots=True)
class _Adapting:
    """A rule whose training makes the model that serves a client, and changes nothing."""

    rule: Adapts

    @property
    def plain_sgd(self) -> bool:
        return self.rule.plain_sgd

    def lengths(self, d: int) -> dict[str, int]:
        return dict(self.rule.lengths(d))

    def first(self, sent: Tensor) -> Own:
        return self.rule.first(sent)

    def train(self, training: LocalTraining, own: Own) -> OwnTrained:
        # The model itself and not its difference to the start, which would round it twice.
        return OwnTrained(self.rule.adapt(training, own), 0.0, own)


class OwnModelEngine:
    """An engine around any simulating engine, whose `run` also knows trainings `WithOwnModel`."""

    def __init__(self, engine: Engine, store: ClientStore | None = None) -> None:
        self.engine = engine
        self.store = ClientStore() if store is None else store

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        if isinstance(work, Train) and work.own_model is not None:
            if work.choose is not None:
                return self._choose_and_train(work, ids, models, which, key)
            return self._train(work, work.own_model, ids, models, which, key)
        if isinstance(work, Score) and work.served_by is not None:
            return self._evaluate(work, work.served_by, ids, models, which, key)
        return self.engine.run(work, ids, models, which, key=key)

    def _choose_and_train(
        self, work: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        """Each client trains from the model with the least loss, of the models as they are sent: so
        the choice is that of the same method without models of the clients' own."""
        assert work.own_model is not None
        scored = self.engine.run(Score("train", sums=()), ids, models, which, key=key)
        choice = least_loss_choices(scored, ids, which)
        chosen = which[np.arange(len(ids)), choice]
        alone = replace(work, choose=None)
        replies = []
        for reply in self._train(alone, work.own_model, ids, models, chosen, key):
            column = choice[places_of(reply.ids, ids)].astype(np.float64)
            replies.append(reply.with_fields(choice=column))
        return replies

    def _train(
        self, work: Train, rule: OwnModel, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        """Train; store what stays, return what leaves."""
        d = models.shape[1]
        stored = sum(rule.lengths(d).values())
        if stored:
            self.store.begin(Keep(((0, stored),)))
        whole = replace(work, upload=None)
        received = rows_of_each(which)
        replies = []
        # Clients draw from streams of their own, so blocks may share a key.
        for block in client_blocks(len(ids), 4 * (received.shape[1] * d + stored)):
            rows = self._rows(rule, ids[block], models, received[block])
            own_row = np.arange(len(block))
            for reply in self.engine.run(whole, ids[block], rows, own_row, key=key):
                found = reply.fields["delta"]
                # The server refuses an update that is not finite. Its client keeps what it had
                # before this training, or it would never recover.
                finite = np.isfinite(found).all(axis=1)
                if stored:
                    self.store.put(reply.ids[finite], found[finite, -stored:])
                # A copy: a view would keep in memory, or send along, what stays.
                delta = work.uploaded(np.ascontiguousarray(found[:, :d]))
                replies.append(reply.with_fields(delta=delta))
        return replies

    def _evaluate(
        self,
        work: Score,
        served_by: Train,
        ids: IntArray,
        models: Tensor,
        which: IntArray,
        key: Key,
    ) -> list[Reply]:
        """Score each client with the model that serves it."""
        assert which.ndim == 1, "a client is served one model"
        work = replace(work, served_by=None)
        own = self._has_own(served_by, ids)
        replies: list[Reply] = []
        if not own.all():
            replies += self.engine.run(work, ids[~own], models, which[~own], key=key)
        places = np.flatnonzero(own)
        for block in client_blocks(len(places), 4 * models.shape[1]):
            at = places[block]
            served = self._served(served_by, ids[at], models, which[at], key)
            replies += self.engine.run(work, ids[at], served, np.arange(len(at)), key=key)
        return replies

    def served_models(
        self, served_by: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> Tensor:
        """The model that serves each of some clients, float32 ``[n, d]``; for a client without
        anything of its own the model that it is sent."""
        found = models[torch.from_numpy(which)]
        own = np.flatnonzero(self._has_own(served_by, ids))
        if len(own):
            served = self._served(served_by, ids[own], models, which[own], key)
            found[torch.from_numpy(own)] = served
        return found

    def _has_own(self, served_by: Train, ids: IntArray) -> BoolArray:
        """Which clients are served by another model than they are sent, bool ``[n]``."""
        if isinstance(served_by.own_model, ServesStored):
            # A client that never trained has nothing of its own yet.
            return self.store.has_stored(ids)
        return np.full(len(ids), isinstance(served_by.own_model, Adapts))

    def _served(
        self, served_by: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> Tensor:
        """The model that serves each client, float32 ``[n, d]``."""
        rule = served_by.own_model
        served = models[torch.from_numpy(which)]
        if isinstance(rule, ServesStored):
            lengths = rule.lengths(models.shape[1])
            stored = torch.from_numpy(self.store.get(ids))
            source = f"{type(rule).__name__}.serve"
            for place, own in enumerate(stored):
                model = rule.serve(served[place], split_own(own, lengths))
                served[place] = checked_vector(model, models.shape[1], source, "the model")
            return served
        assert isinstance(rule, Adapts), "the rule serves the models as they are sent"
        adapting = served_by.by_rule(_Adapting(rule))
        work = replace(adapting, choose=None, upload=None, trial=True)
        rows = self._rows(rule, ids, models, which[:, None])
        key = key.of("adapt")
        replies = self.engine.run(work, ids, rows, np.arange(len(ids)), key=key)
        # They are no answer yet, so they are not validated elsewhere. A client without training samples,
        # or whose reply is lost, is served the model as it is sent.
        expected = Expected(work, ids, key.round, key.purpose, rows.shape[1])
        adapted, _ = ReplyValidator().validate(expected, replies)
        found = np.ascontiguousarray(adapted.fields["delta"][:, : models.shape[1]])
        served[torch.from_numpy(places_of(adapted.ids, ids))] = torch.from_numpy(found)
        return served

    def _rows(self, rule: OwnModel, ids: IntArray, models: Tensor, received: IntArray) -> Tensor:
        """What each client is sent, and behind it what it stored, or by the rule has at first,
        float32 ``[n, r d + s]``; ``received`` are rows of ``models``."""
        sent = models[torch.from_numpy(received)].reshape(len(ids), -1)
        lengths = rule.lengths(models.shape[1])
        if not lengths:
            return sent
        stored = np.empty((len(ids), sum(lengths.values())), np.float32)
        stored_before = self.store.has_stored(ids)
        if stored_before.any():
            stored[stored_before] = self.store.get(ids[stored_before])
        for place in np.flatnonzero(~stored_before).tolist():
            stored[place] = _first(rule, models[received[place, 0]], lengths)
        return torch.cat([sent, torch.from_numpy(stored)], dim=1)

    def set_population(self, population: Any) -> None:
        self.engine.set_population(population)

    def close(self) -> None:
        self.engine.close()


def _first(rule: OwnModel, sent: Tensor, lengths: Mapping[str, int]) -> Vectors:
    source = f"{type(rule).__name__}.first"
    return torch.cat(join_own(rule.first(sent), lengths, source)).numpy()
