"""What engines are asked, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.arrays import BoolArray, IntArray
from coterie.core.keys import Key
from coterie.core.work import Train, Work


@dataclass(frozen=True, slots=True)
class Reply:
    """What one client sent, or in a simulation a block of clients.

    Args:
        round: the round of the request that it answers.
        fields: name -> values, the clients first: ``[n, ...]``.
        purpose: the purpose of the request, since a client may be asked several times in a round.
    """

    round: int
    ids: IntArray
    fields: Mapping[str, NDArray[Any]]
    purpose: str = ""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def delta(self) -> Tensor:
        """How far each client moved the model that it was sent, float32 ``[n, d]``."""
        return torch.from_numpy(self.fields["delta"])

    @property
    def size(self) -> NDArray[Any]:
        """Samples of each client, ``[n]``."""
        return self.fields["size"]

    @property
    def loss(self) -> NDArray[Any]:
        """Mean loss of a training, ``[n]``; summed losses of ``r`` models that are scored, ``[n, r]``."""
        return self.fields["loss"]

    @property
    def correct(self) -> NDArray[Any]:
        """Correct predictions of ``r`` models, ``[n, r]``."""
        return self.fields["correct"]

    @property
    def choice(self) -> NDArray[Any]:
        """Which of the rows that it was sent each client chose, ``[n]``, as a float."""
        return self.fields["choice"]

    def with_fields(self, **fields: NDArray[Any]) -> Reply:
        """The same reply with other values in some fields, or with fields more."""
        return Reply(self.round, self.ids, {**self.fields, **fields}, self.purpose)

    def rows(self, rows: IntArray | BoolArray) -> Reply:
        """What some of the clients sent."""
        fields = {name: values[rows] for name, values in self.fields.items()}
        return Reply(self.round, self.ids[rows], fields, self.purpose)


class Engine(Protocol):
    """Reaches clients. It has never heard of groups."""

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        """Ask clients to work.

        Args:
            work: what to do.
            ids: int64 ``[n]``, the clients.
            models: float32 ``[k, d]``.
            which: int64 ``[n]`` or ``[n, r]``, the row or rows of ``models`` that each client gets.
            key: the stream of this request; client ``i`` draws from ``key.client(i)``,
                ``key.round`` is the round.

        Returns:
            What came, in any order, from any subset of those asked, and untrusted.
        """
        ...

    def set_population(self, population: Any) -> None:
        """From now on the clients hold these data (``coterie.data.Population``): in a simulation.
        Real clients have what they have."""
        ...

    def close(self) -> None:
        """Let go of processes and shared memory."""
        ...


@runtime_checkable
class SendsTogether(Protocol):
    """An engine whose exchanges take long, so that requests which do not wait for each other travel
    in one: a client does what its message asks in the order in which it was posted, and answers all
    at once."""

    def post(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Callable[[], Sequence[Reply]]:
        """Send a request with the next exchange; arguments as of `Engine.run`. The first call of a
        result sends all that was posted until then, and gives its replies."""
        ...


class Simulated(Protocol):
    """The clients of a simulation as an experimenter sees them. Real clients have no such thing."""

    @property
    def engine(self) -> Engine:
        """The clients, with what they have stored."""
        ...

    @property
    def trains(self) -> Engine:
        """The same clients, which have stored nothing and store nothing."""
        ...

    def served_models(
        self, ids: IntArray, models: Tensor, which: IntArray, personal: Train | None, key: Key
    ) -> Tensor:
        """The models that some clients predict by, float32 ``[n, d]``. Clients may fit them first,
        by ``key``."""
        ...

    def on_trial(self) -> Simulated:
        """The same clients with copies of what they have stored: what they store from now on stays
        in the copies."""
        ...


@runtime_checkable
class DriftReports(Protocol):
    """What clients report of their own data. Real clients notice drift themselves and choose their
    group by `SelectGroup`; a simulation has no such reports."""

    def compare(self, assignment_version: IntArray) -> IntArray:
        """The clients that reported drift since they were last assigned to a group, ascending.
        Reports about an assignment before ``assignment_version [N]`` are ignored."""
        ...


@dataclass(frozen=True, slots=True)
class Late:
    """The clients whose trainings do not count in a round: those who miss the deadline, and these
    with those who answer after enough others did."""

    missed: BoolArray
    beyond: BoolArray

    def of(self, work: Work) -> BoolArray | None:
        """Whose replies to some work come too late, bool ``[N]``; ``None``: no client's."""
        if not isinstance(work, Train):
            return None
        # A training that only places clients has its own number of clients, and needs all of them.
        if work.trial:
            return self.missed
        return self.beyond
