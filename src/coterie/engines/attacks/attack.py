"""An attack: who attacks, what they train on, what they send, and the engine that carries it out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Protocol

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from coterie.core import Engine, FloatArray, IntArray, Key, Reply, Train, Work, places_of
from coterie.core.arrays import rows_of_each
from coterie.data.population import Population
from coterie.errors import ConfigError

Share = Annotated[float, Field(ge=0, le=1)]
Ids = tuple[Annotated[int, Field(ge=0)], ...] | None
# Larger numbers are refused by the validation of replies, whatever the defences.
Factor = Annotated[float, Field(gt=0, le=1e14)]
# The purpose of the requests in which the cohort trains; in all others clients are being placed.
_TRAINING = "train"


class Forge(Protocol):
    """What attackers send in place of their updates."""

    def __call__(self, own: FloatArray, honest: FloatArray, keys: Sequence[Key]) -> FloatArray:
        """Forged updates of ``a`` attackers, float64 ``[a, d]``, from their honest ones and those
        of the ``h`` clients that trained the same model in the same request; attackers are assumed
        to know them."""
        ...


# Inputs and labels of an attacker's training samples -> those that it trains on.
Poison = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class Attack:
    """Who attacks, and how.

    Args:
        share: share of the clients that attack, rounded to the nearest number of clients.
        clients: the numbers of the attackers, in place of a share.
        forge: what they send in place of their updates; ``None``: what they have trained.
        poison: what they do to their training samples, with the number of classes as its third
            argument; ``None``: nothing.
        colludes: whether all of them hold the training data of one honest client, so that a method
            puts them into the same group.
    """

    share: float = 0.2
    clients: tuple[int, ...] | None = None
    forge: Forge | None = None
    poison: Poison | None = None
    colludes: bool = False

    def attackers(self, able: IntArray, population: int, key: Key) -> IntArray:
        """The clients that attack, int64, ascending.

        All attacks with the same seed and share have the same attackers, and those of a larger
        share include those of a smaller one.

        Args:
            able: int64, the clients with training samples.

        Raises:
            ConfigError: for clients that do not exist.
        """
        if self.clients is not None:
            if self.clients and max(self.clients) >= population:
                what = "no such client"
                expected = f"numbers up to {population - 1}"
                got = max(self.clients)
                raise ConfigError("not-found", "attack.clients", what, got=got, allowed=expected)
            return np.unique(np.array(self.clients, np.int64))
        order = key.of("attackers").generator().permutation(able)
        return np.sort(order[: round(self.share * len(able))])

    @property
    def changes_data(self) -> bool:
        """Whether attackers train on other data than they hold."""
        return self.colludes or self.poison is not None


class AttackingEngine:
    """An engine around any simulating engine, in which some clients are attackers.

    Only the updates of training are forged. Each attacker draws from its own stream, and the
    updates of a request are put in client order first, so that results depend neither on the engine
    nor on the number of its workers.
    """

    def __init__(self, engine: Engine, attack: Attack, attackers: IntArray) -> None:
        self.engine = engine
        self.attack = attack
        self.attackers = attackers

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        replies = self.engine.run(work, ids, models, which, key=key)
        if not replies or not isinstance(work, Train) or self.attack.forge is None:
            return replies
        # Attackers that collude answer truly while they are placed, so as to be placed together.
        if self.attack.colludes and key.purpose.split("/")[1:2] != [_TRAINING]:
            return replies
        reply = _joined(replies)
        row = rows_of_each(which[places_of(reply.ids, ids)])
        if work.choose is not None:
            choice = reply.choice.astype(np.int64)
            row = row[np.arange(len(reply)), choice][:, None]
        return [self._forged(reply, row[:, 0], key.of("attack"))]

    def _forged(self, reply: Reply, row: IntArray, key: Key) -> Reply:
        """The replies, ascending, those of attackers with forged updates; ``row``: the model that
        each trained."""
        assert self.attack.forge is not None
        shape = reply.fields["delta"].shape
        # Clients that train all models send an update of each: to an attacker one long update.
        delta = reply.fields["delta"].reshape(len(reply), math.prod(shape[1:])).copy()
        attacks = np.isin(reply.ids, self.attackers)
        for j in np.unique(row[attacks]):
            ours = np.flatnonzero(attacks & (row == j))
            own = delta[ours].astype(np.float64)
            honest = delta[~attacks & (row == j)].astype(np.float64)
            # Where attackers are alone with a model, they know of no other updates than their own.
            if not len(honest):
                honest = own
            keys = [key.client(client) for client in reply.ids[ours].tolist()]
            delta[ours] = self.attack.forge(own, honest, keys)
        return reply.with_fields(delta=delta.reshape(shape))

    def set_population(self, population: Population) -> None:
        """See ``coterie.core.engine.Engine``."""
        self.engine.set_population(population)

    def close(self) -> None:
        self.engine.close()


def _joined(replies: Sequence[Reply]) -> Reply:
    """The replies of a request as one, in ascending order of clients."""
    ids = np.concatenate([reply.ids for reply in replies])
    order = np.argsort(ids, kind="stable")
    fields = {
        name: np.concatenate([reply.fields[name] for reply in replies])[order]
        for name in replies[0].fields
    }
    return Reply(replies[0].round, ids[order], fields, replies[0].purpose)


def poisoned(population: Population, attack: Attack, attackers: IntArray) -> Population:
    """The population with the data that attackers train on; test samples stay. Samples are copied
    before they are changed, so honest clients that share them are not affected."""
    if not attack.changes_data or not len(attackers):
        return population
    train = list(population.train)
    if attack.colludes:
        able = np.flatnonzero(population.sizes("train") > 0)
        victim = np.setdiff1d(able, attackers)[:1]
        for client in attackers.tolist():
            # Without an honest client there is none to copy.
            train[client] = train[victim[0]] if len(victim) else train[client]
        population = population.with_parts(tuple(train), population.test)
    if attack.poison is None:
        return population
    xs = [population.x]
    ys = [population.y]
    end = len(population.y)
    copied = torch.from_numpy(np.concatenate([population.train[i] for i in attackers.tolist()]))
    for client in attackers.tolist():
        rows = torch.from_numpy(population.train[client])
        x, y = attack.poison(population.x[rows], population.y[rows], population.classes)
        xs.append(x)
        ys.append(y)
        train[client] = np.arange(end, end + len(y))
        end += len(y)
    concept = population.concept
    if concept is not None:
        concept = np.append(concept, concept[copied.numpy()])
    naive = {name: torch.cat([of, of[copied]]) for name, of in population.naive.items()}
    return replace(
        population,
        x=torch.cat(xs),
        y=torch.cat(ys),
        train=tuple(train),
        concept=concept,
        naive=naive,
    )
