"""How a method reaches its clients."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.clients.bounds import Bounds
from coterie.clients.ledger import Ledger
from coterie.clients.model_shape import ModelShape
from coterie.clients.quorum import Quorum
from coterie.clients.validation import Expected, ReplyValidator, validator_for
from coterie.core.arrays import IntArray, places_of
from coterie.core.client_store import ClientStore
from coterie.core.engine import DriftReports, Engine, Reply, SendsTogether, Simulated
from coterie.core.keys import Key
from coterie.core.late import Late
from coterie.core.served import Served
from coterie.core.solver import Solver
from coterie.core.vectors import Layout
from coterie.core.work import Evaluate, SelectGroup, Train, Work
from coterie.data.population import Population


@dataclass(eq=False)
class Clients:
    """What an algorithm sees of its clients.

    Args:
        engine: reaches them.
        validator: checks what they send.
        quorum: how many replies make a round.
        shape: of the model that they train.
        able: int64, the clients that can train (they are present and hold samples); ``None``: all.
        drift_reports: what clients that notice drift themselves reported; a simulation has none.
        bounds: what one client can do to the others' models.
        store: what the clients of a simulation keep; a checkpoint holds it (``store.state()``).
        own_models: what the clients of a simulation store for a model of their own.
        local_networks: the network that each client of a simulation trained last; ``None``: they
            are not remembered.
        clip: whether clients clip their updates by themselves where these are private.
        simulated: the clients of a simulation, without attackers among them, for measures; ``None``:
            real ones, or an engine that stores nothing.
        solver: of their local training, of which steps are counted.
        fixed_data: whether what they hold never changes in the run, so that no rule has to look for
            drift.
        late: whose trainings come too late for the round, in a simulation; ``None``: no client's.
        last_scores: what real clients last answered when they scored the models that serve them;
            ``None``: they were not asked yet.

    Attributes:
        ledger: what was sent and received.
    """

    engine: Engine
    validator: ReplyValidator = field(default_factory=ReplyValidator)
    quorum: Quorum = field(default_factory=Quorum)
    shape: ModelShape = ModelShape()
    able: IntArray | None = None
    drift_reports: DriftReports | None = None
    bounds: Bounds = Bounds()
    store: ClientStore = field(default_factory=ClientStore)
    own_models: ClientStore = field(default_factory=ClientStore)
    local_networks: ClientStore | None = None
    clip: bool = False
    simulated: Simulated | None = None
    solver: Solver = field(default_factory=Solver)
    fixed_data: bool = False
    late: Late | None = None
    last_scores: Reply | None = None
    ledger: Ledger = field(default_factory=Ledger, init=False)

    @property
    def classes(self) -> int:
        """Number of classes, which all clients agree on."""
        return self.shape.classes

    @property
    def features(self) -> int:
        """Values of one input."""
        return self.shape.features

    @property
    def layout(self) -> Layout | None:
        """Names and places of the model's tensors in its flat vector."""
        return self.shape.layout

    def run(self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key) -> Reply:
        """Ask clients (see ``Engine.run``); one clean block comes back, in ascending order of
        clients."""
        return self.post(work, ids, models, which, key=key)()

    def post(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Callable[[], Reply]:
        """Ask clients, and read their replies later: what several calls ask travels in one exchange
        where exchanges take long (`coterie.core.engine.SendsTogether`). A simulation asks at once.

        What is asked must not depend on replies that were not read yet.

        Returns:
            What gives the reply of `run`, once.
        """
        # A method compares losses; a task without right and wrong answers counts nothing beside.
        if isinstance(work, Evaluate):
            work = replace(work, sums=self.shape.sums)
        shared = self._shared_size(work, models.shape[1])
        # All who are asked count, whether they answer or not: in either case the server has sent.
        self.ledger.sent(key, np.asarray(ids), models, which, shared)
        if isinstance(self.engine, SendsTogether):
            fetch = self.engine.post(work, ids, models, which, key=key)
            return partial(self._receive, work, ids, models, which, key, fetch)
        ask = partial(self.engine.run, work, ids, models, which, key=key)
        reply = self._receive(work, ids, models, which, key, ask)
        return lambda: reply

    def _receive(
        self,
        work: Work,
        ids: IntArray,
        models: Tensor,
        which: IntArray,
        key: Key,
        fetch: Callable[[], Sequence[Reply]],
    ) -> Reply:
        """The clean block of the replies to a request, counted in the ledger."""
        shared = self._shared_size(work, models.shape[1])
        begun = time.perf_counter()
        replies = fetch()
        # Only training: what scoring takes is in the row's seconds of evaluation.
        if isinstance(work, Train):
            self.ledger.training += time.perf_counter() - begun
        reply, refused = self._validate(work, ids, models, which, replies, key)
        reply = self._in_time(work, reply, refused)
        self.ledger.received(key, reply, shared)
        each = which.shape[1] if which.ndim == 2 else 1
        sizes = reply.fields["size"]
        self.ledger.steps += work.local_steps(self.solver, key.round, sizes, each)
        # After the ledger, which counts what came: an update that is refused was sent, too.
        sent = which[places_of(reply.ids, np.asarray(ids))]
        reply, clipped, beyond = self.bounds.apply(work, reply, sent)
        self.ledger.clipped += clipped
        self.ledger.refused += refused + beyond
        return _with_zeros(work, reply, models.shape[1])

    def _in_time(self, work: Work, reply: Reply, refused: Counter[str]) -> Reply:
        """The replies that came in time; the others are counted."""
        late = None if self.late is None else self.late.of(work)
        if late is None or not late[reply.ids].any():
            return reply
        # A slow client has trained, and has stored what is its own; only the server goes on.
        kept = np.flatnonzero(~late[reply.ids])
        refused["late"] += len(reply.ids) - len(kept)
        fields = {name: values[kept] for name, values in reply.fields.items()}
        return Reply(reply.round, reply.ids[kept], fields, reply.purpose)

    def _shared_size(self, work: Work, d: int) -> int:
        """How many values of a model pass between server and client: not those that clients
        keep."""
        if isinstance(work, Train):
            return work.shared_size(d)
        if isinstance(work, SelectGroup):
            return work.train.shared_size(d)
        # An evaluation does not say what stays with clients; the store has it from the training.
        if self.store.keep is not None:
            return d - self.store.keep.size
        return d

    def measure(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Reply:
        """The same for the experimenter alone. The ledger has no transfer, since no deployment
        would send it; refusals count."""
        return self.post_measure(work, ids, models, which, key=key)()

    def post_measure(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Callable[[], Reply]:
        """The same, to be read later, as `post` is to `run`."""

        def receive(fetch: Callable[[], Sequence[Reply]]) -> Reply:
            # Checked as every reply is: what is measured goes into the rows of the run.
            reply, refused = self._validate(work, ids, models, which, fetch(), key)
            self.ledger.refused += refused
            if not isinstance(work, Evaluate):
                return reply
            reply, clipped = self.bounds.scored(reply)
            self.ledger.clipped += clipped
            return reply

        if isinstance(self.engine, SendsTogether):
            return partial(receive, self.engine.post(work, ids, models, which, key=key))
        reply = receive(partial(self.engine.run, work, ids, models, which, key=key))
        return lambda: reply

    def served_models(self, ids: IntArray, served: Served, key: Key) -> Tensor:
        """What some clients of a simulation predict by, with what each has of its own in it, float32
        ``[n, d]``.

        Args:
            ids: int64 ``[n]``.
            served: which model serves each client.
            key: random stream.
        """
        models, which = served.for_clients(ids)
        if self.simulated is None:
            return models[torch.from_numpy(which)]
        return self.simulated.served_models(ids, models, which, served.personal, key)

    def forgetful(self) -> Clients:
        """The same clients, which have stored nothing, with a ledger of their own: an experiment with
        a model that they are sent leaves no trace."""
        if self.simulated is None:
            return replace(self)
        return replace(self, engine=self.simulated.trains, simulated=None)

    def on_trial(self) -> Clients:
        """The same clients with what they have stored so far, and a ledger of their own: what they
        store in an experiment is forgotten with it."""
        if self.simulated is None:
            return replace(self)
        trial = self.simulated.on_trial()
        return replace(self, engine=trial.engine, simulated=trial)

    def _validate(
        self,
        work: Work,
        ids: IntArray,
        models: Tensor,
        which: IntArray,
        replies: Sequence[Reply],
        key: Key,
    ) -> tuple[Reply, Counter[str]]:
        r = 1
        if which.ndim == 2:
            r = which.shape[1]
        expected = Expected(work, np.asarray(ids), key.round, key.purpose, models.shape[1], r)
        return self.validator.validate(expected, replies)

    def set_population(
        self, population: Population, present: NDArray[np.bool_] | None = None
    ) -> None:
        """From now on the clients of a simulation hold these data.

        Args:
            population: who holds what.
            present: bool ``[N]``, who is there; ``None``: all.
        """
        self.engine.set_population(population)
        # A late reply may be about the data of before, so the larger cap holds.
        now = validator_for(population)
        cap = max(self.validator.cap, now.cap)
        tested = self.validator.tested
        if tested is not None:
            tested = max(tested, now.tested or 0)
        self.validator = replace(self.validator, cap=cap, tested=tested)
        able = population.sizes("train") > 0
        if present is not None:
            able = able & present
        self.able = np.flatnonzero(able)

    def close(self) -> None:
        """Let go of processes and shared memory."""
        self.engine.close()

    def __enter__(self) -> Clients:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _with_zeros(work: Work, reply: Reply, d: int) -> Reply:
    """The reply with updates ``[n, d]`` where a part of the model stays with clients.

    So no rule has to know of it: what clients keep did not move for the server. Directions,
    similarities and means are then those of the coordinates that are shared.
    """
    if not isinstance(work, Train) or work.stays is None or work.upload is not None:
        return reply
    fields = {**reply.fields, "delta": work.stays.whole(reply.fields["delta"], d)}
    return replace(reply, fields=fields)
