"""How a method reaches its clients."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType

import numpy as np
import torch
from torch import Tensor

from coterie.clients.bounds import Bounds
from coterie.clients.ledger import Ledger
from coterie.clients.validation import Expected, ReplyValidator, validator_for
from coterie.core import ClientStore, IntArray, Key, Layout, Served, Solver, places_of
from coterie.core.arrays import rows_of_each
from coterie.core.engine import DriftReports, Engine, Late, Reply, SendsTogether, Simulated
from coterie.core.startup import work_clock
from coterie.core.task import CORRECT, SumShapes, Task
from coterie.core.work import Score, SelectGroup, Train, Work
from coterie.data.population import Population


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What all clients agree on about the model; rules may ask for it.

    Args:
        sums: what a method's evaluation of models counts in addition to their losses.
    """

    classes: int = 0
    features: int = 0
    layout: Layout | None = None
    sums: SumShapes = CORRECT

    @classmethod
    def of(cls, task: Task, classes: int, shape: tuple[int, ...], layout: Layout) -> ModelShape:
        """That of a run, of the shape of one input. A task without classes has none."""
        # Right answers where there are any; no more, since methods pay for what they are sent.
        sums = tuple(one for one in task.sums if one in CORRECT)
        return cls(classes if task.class_labels else 0, math.prod(shape), layout, sums)


@dataclass(frozen=True, slots=True)
class ClientStores:
    """What clients have stored, and a checkpoint holds. Of real clients the server knows only which
    part of the model stays with them (``parts.keep``).

    Args:
        parts: the parts of the model that stay with each client.
        own_models: what each client stores for its own model.
        networks: the network that each trained last; ``None``: they are not remembered.
    """

    parts: ClientStore = field(default_factory=ClientStore)
    own_models: ClientStore = field(default_factory=ClientStore)
    networks: ClientStore | None = None


@dataclass(frozen=True, slots=True)
class _Request:
    """What clients are asked, see ``Engine.run``."""

    work: Work
    ids: IntArray
    models: Tensor
    which: IntArray
    key: Key

    @property
    def models_each(self) -> int:
        return rows_of_each(self.which).shape[1]


@dataclass(frozen=True, eq=False)
class Clients:
    """The clients as an algorithm sees them. Only the ledger and the contents of the engine and the
    stores change; a round with other data or deadlines has its own `Clients`.

    Args:
        engine: sends requests to the clients.
        validator: checks their replies.
        shape: the shape of the model that they train.
        drift_reports: what real clients report about their own data; ``None``: a simulation.
        bounds: limits on the influence of one client on the others' models.
        stores: what the clients have stored.
        simulated: the clients of a simulation, without attackers, for measures; ``None``: real
            clients, or an engine that stores nothing.
        solver: the solver of their local training, by which steps are counted.
        late: the clients of a simulation whose training is too late for the round; ``None``: none.
        ledger: what was sent and received.
    """

    engine: Engine
    validator: ReplyValidator = field(default_factory=ReplyValidator)
    shape: ModelShape = ModelShape()
    drift_reports: DriftReports | None = None
    bounds: Bounds = Bounds()
    stores: ClientStores = field(default_factory=ClientStores)
    simulated: Simulated | None = None
    solver: Solver = field(default_factory=Solver)
    late: Late | None = None
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def are_real(self) -> bool:
        """Whether they are real clients, which detect drift, choose a group and clip their updates
        themselves."""
        return self.drift_reports is not None

    @property
    def classes(self) -> int:
        """Number of classes, the same for all clients."""
        return self.shape.classes

    @property
    def features(self) -> int:
        """Number of values of one input."""
        return self.shape.features

    @property
    def layout(self) -> Layout | None:
        """Names and positions of the model's tensors in its flat vector."""
        return self.shape.layout

    # --- requests ---------------------------------------------------------------------------------

    def run(
        self,
        work: Work,
        ids: IntArray,
        models: Tensor | None = None,
        which: IntArray | None = None,
        *,
        key: Key,
        counts: bool = True,
    ) -> Reply:
        """Send a request to clients, and wait for their replies.

        Args:
            work: what they do: ``Train``, ``Score``, ``Describe``, ``SelectGroup``, ``Deliver``.
            ids: int64 ``[n]``, the clients.
            models: float32 ``[d]``, the model that is sent to all of them; ``[k, d]``: several
                models, of which each client is sent its rows; ``None``: no model.
            which: int64 ``[n]``, the row of ``models`` that each client is sent, or ``[n, r]``, its
                rows; ``None``: all ``k`` rows.
            key: random stream; client ``i`` draws from ``key.client(i)``, and ``key.round`` is the
                round.
            counts: whether the request is part of the method. Requests of the experimenter alone
                would not be sent in a deployment: they are not counted in the ledger, only the
                bound of scores applies, and no client is late.

        Returns:
            The valid replies as one block, in ascending order of clients.
        """
        return self.post(work, ids, models, which, key=key, counts=counts)()

    def post(
        self,
        work: Work,
        ids: IntArray,
        models: Tensor | None = None,
        which: IntArray | None = None,
        *,
        key: Key,
        counts: bool = True,
    ) -> Callable[[], Reply]:
        """Send a request to clients, and read their replies later. If exchanges are slow, the
        requests of several calls are sent in one exchange (`coterie.core.engine.SendsTogether`). A
        simulation sends each request immediately.

        The arguments are those of `run`. A request must not depend on replies that have not been
        read yet.

        Returns:
            A function that returns the reply; call it once.
        """
        ids = np.asarray(ids)
        models, which = _models_and_rows(models, which, len(ids))
        # A method compares losses; a task without right and wrong answers counts nothing else.
        if counts and isinstance(work, Score):
            work = replace(work, sums=self.shape.sums)
        request = _Request(work, ids, models, which, key)
        receive = partial(self._measured, request)
        if counts:
            receive = partial(self._receive, request)
            # All who are asked count, whether they answer or not: the server has sent to all.
            self.ledger.sent(key, ids, models, which, self._shared_size(request))
        if len(ids) and isinstance(self.engine, SendsTogether):
            return partial(receive, self.engine.post(work, ids, models, which, key=key))
        fetch: Callable[[], Sequence[Reply]] = tuple
        # A request to no clients stays here, so that engines and their wrappers need no case for it.
        if len(ids):
            fetch = partial(self.engine.run, work, ids, models, which, key=key)
        reply = receive(fetch)
        return lambda: reply

    def _receive(self, request: _Request, fetch: Callable[[], Sequence[Reply]]) -> Reply:
        """The clean block of the replies to a request, counted in the ledger."""
        work = request.work
        key = request.key
        begun = work_clock()
        replies = fetch()
        # Only training: what scoring takes is in the row's seconds of evaluation.
        if isinstance(work, Train):
            self.ledger.training += work_clock() - begun
        reply, refused = self._validate(request, replies)
        reply = self._in_time(work, reply, refused)
        self.ledger.received(key, reply, self._shared_size(request))
        steps = work.local_steps(self.solver, key.round, reply.size, request.models_each)
        self.ledger.steps += steps
        # After the ledger, which counts what came: an update that is refused was sent, too.
        sent = request.which[places_of(reply.ids, request.ids)]
        reply, clipped, beyond = self.bounds.apply(work, reply, sent)
        self.ledger.clipped += clipped
        self.ledger.refused += refused + beyond
        if not isinstance(work, Train) or work.stays is None or work.upload is not None:
            return reply
        # What clients keep did not move for the server, so no rule has to know of it, and
        # similarities are those of shared coordinates.
        delta = work.stays.whole(reply.fields["delta"], request.models.shape[1])
        return reply.with_fields(delta=delta)

    def _measured(self, request: _Request, fetch: Callable[[], Sequence[Reply]]) -> Reply:
        """The clean block of the replies to what only the experimenter asks; refusals count."""
        # Checked as every reply is: what is measured goes into the rows of the run.
        reply, refused = self._validate(request, fetch())
        self.ledger.refused += refused
        if not isinstance(request.work, Score):
            return reply
        reply, clipped = self.bounds.scored(reply)
        self.ledger.clipped += clipped
        # A simulation asks for the scores of single clients at its end, and may have millions.
        if self.simulated is None:
            self.ledger.scores = reply
        return reply

    def _validate(self, request: _Request, replies: Sequence[Reply]) -> tuple[Reply, Counter[str]]:
        expected = Expected(
            request.work,
            request.ids,
            request.key.round,
            request.key.purpose,
            request.models.shape[1],
            request.models_each,
        )
        return self.validator.validate(expected, replies)

    def _in_time(self, work: Work, reply: Reply, refused: Counter[str]) -> Reply:
        """The replies that came in time; the others are counted."""
        late = None
        if self.late is not None:
            late = self.late.of(work)
        if late is None or not late[reply.ids].any():
            return reply
        # A slow client has trained, and has stored what is its own; only the server does not wait.
        kept = np.flatnonzero(~late[reply.ids])
        refused["late"] += len(reply.ids) - len(kept)
        return reply.rows(kept)

    def _shared_size(self, request: _Request) -> int:
        """How many values of a model pass between server and client: not those that clients
        keep."""
        work = request.work
        d = request.models.shape[1]
        if isinstance(work, Train):
            return work.shared_size(d)
        if isinstance(work, SelectGroup):
            return work.train.shared_size(d)
        # An evaluation does not say what stays with clients; the store has it from the training.
        keep = self.stores.parts.keep
        if keep is not None:
            return d - keep.size
        return d

    # --- the clients of a simulation --------------------------------------------------------------

    def served_models(self, ids: IntArray, served: Served, key: Key) -> Tensor:
        """The models with which some clients of a simulation predict, including what each client
        keeps, float32 ``[n, d]``."""
        models, which = served.for_clients(ids)
        if self.simulated is None:
            return models[torch.from_numpy(which)]
        return self.simulated.served_models(ids, models, which, served.personal, key)

    def forgetful(self) -> Clients:
        """The same clients with empty stores and a separate ledger, so that an experiment with a
        model leaves no trace."""
        if self.simulated is None:
            return replace(self, ledger=Ledger())
        return replace(self, engine=self.simulated.trains, simulated=None, ledger=Ledger())

    def on_trial(self) -> Clients:
        """The same clients with what they have stored so far and a separate ledger, so that what
        they store in an experiment is discarded."""
        if self.simulated is None:
            return replace(self, ledger=Ledger())
        trial = self.simulated.on_trial()
        return replace(self, engine=trial.engine, simulated=trial, ledger=Ledger())

    def holding(self, population: Population) -> Clients:
        """The same clients with these data from now on."""
        self.engine.set_population(population)
        # A late reply may be about the data of before, so the larger cap holds.
        now = validator_for(population)
        cap = max(self.validator.cap, now.cap)
        tested = self.validator.tested
        if tested is not None:
            tested = max(tested, now.tested or 0)
        return replace(self, validator=replace(self.validator, cap=cap, tested=tested))

    def close(self) -> None:
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


def _models_and_rows(
    models: Tensor | None, which: IntArray | None, n: int
) -> tuple[Tensor, IntArray]:
    """The models ``[k, d]`` that a request sends, and the rows that each of ``n`` clients gets."""
    if models is None:
        return torch.zeros(1, 0), np.empty((n, 0), np.int64)
    if not isinstance(models, Tensor) or models.dtype != torch.float32:
        got = getattr(models, "dtype", "")
        raise TypeError(f"models must be a float32 tensor, got a {got} {type(models).__name__}")
    if models.ndim == 1:
        return models[None], np.zeros(n, np.int64)
    if which is None:
        return models, np.tile(np.arange(len(models)), (n, 1))
    which = np.asarray(which)
    if which.size and not 0 <= which.min() <= which.max() < len(models):
        raise ValueError(f"`which` names a row that is none of the {len(models)} models")
    return models, which
