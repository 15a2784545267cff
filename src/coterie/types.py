"""The records that pass between an algorithm and its clients.

Shapes, once for all: ``k`` groups (models), ``n`` clients asked or replies had, ``N`` clients of the population,
``d`` parameters, ``r`` models sent to one client, ``c`` classes. Records are frozen: a step returns a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from coterie.checked import check
from coterie.keys import Key

Epsilon = Annotated[float, Field(ge=1e-6)]  # a smaller budget asks for more noise than whole numbers hold
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
EMPTY: Mapping[str, Any] = MappingProxyType({})
NO_GROUP = -1


def _empty() -> Mapping[str, Any]:
    return EMPTY


@dataclass(frozen=True, slots=True)
class Groups:
    """What the server knows: the models, who belongs to which, and what the rules remember.

    Args:
        models: float32 ``[k, d]``, one flat parameter vector per group.
        member: int64 ``[N]``, the group of each client, ``-1`` for a client without a group.
        optimiser: rows of the server optimiser, each ``[k, ...]``.
        memory: the grouping rule's own named tensors (directions, signatures, ...).

    Everything in it is an array, so all of it round-trips through a checkpoint.
    """

    models: Tensor
    member: IntArray
    optimiser: Mapping[str, Tensor] = field(default_factory=_empty)
    memory: Mapping[str, Tensor] = field(default_factory=_empty)

    @property
    def k(self) -> int:
        """Number of models."""
        return len(self.models)

    def sizes(self) -> IntArray:
        """Members per group, int64 ``[k]``."""
        return np.bincount(self.member[self.member >= 0], minlength=self.k)

    def auxiliary(self, *, filled: bool) -> Tensor:
        """The auxiliary global model ``[d]``: the mean of all groups (FedGroup Alg. 2 l. 11), or of the filled ones."""
        some = torch.from_numpy(self.sizes() > 0)
        chosen = self.models[some] if filled and bool(some.any()) else self.models
        return chosen.to(torch.float64).mean(dim=0).to(torch.float32)

    def taking(self, rows: Sequence[int] | IntArray) -> Groups:
        """Models and server-optimiser rows taken from the given rows, in that order; members and memory stay.

        A row named twice is a group that splits, a row left out is one that goes.

        Example:
            >>> Groups(torch.tensor([[1.0], [2.0]]), np.zeros(3, np.int64)).taking([0, 0, 1]).models.ravel().tolist()
            [1.0, 1.0, 2.0]
        """
        chosen = torch.as_tensor(rows, dtype=torch.int64)
        optimiser = {name: row[chosen] for name, row in self.optimiser.items()}
        return replace(self, models=self.models[chosen], optimiser=MappingProxyType(optimiser))

    def together(self) -> Groups:
        """Everybody who has a group in one, served by the auxiliary model: what there would be without grouping."""
        return Groups(self.auxiliary(filled=True)[None], np.where(self.member >= 0, 0, NO_GROUP))

    def remember(self, **named: Tensor) -> Groups:
        """The same groups with some named tensors added to the memory, or replaced."""
        return replace(self, memory=MappingProxyType({**self.memory, **named}))


@dataclass(frozen=True, slots=True)
class Plan:
    """Who trains from which model, and after whom.

    Args:
        ids: int64 ``[n]``, distinct clients.
        row: int64 ``[n]``, the model each one trains (clients of one chain share it).
        chain: int64 ``[n]``, clients with the same number train one after another, in the order given here.
            ``None``: everybody alone.
        spent: int64 ``[n]``, local epochs already spent in this round (in a cold start), ``None``: none.
        notes: what the rule did, as counts (newcomers, cold start, fallbacks).
    """

    ids: IntArray
    row: IntArray
    chain: IntArray | None = None
    spent: IntArray | None = None
    notes: Mapping[str, Any] = field(default_factory=_empty)


@dataclass(frozen=True, slots=True)
class Updates:
    """What came home: one row per client, or per chain, in ascending order of ``ids``.

    Args:
        ids: int64 ``[n]``; the client, or the last one of the chain.
        row: int64 ``[n]``, the model trained.
        delta: float32 ``[n, d]``, new minus old parameters.
        size: float64 ``[n]``, training samples behind the update.
        loss: float64 ``[n]``, mean training loss of the last local epoch.
    """

    ids: IntArray
    row: IntArray
    delta: Tensor
    size: FloatArray
    loss: FloatArray

    def __len__(self) -> int:
        return len(self.ids)

    def first(self, n: int) -> Updates:
        """The first ``n`` of them."""
        return Updates(self.ids[:n], self.row[:n], self.delta[:n], self.size[:n], self.loss[:n])


@runtime_checkable
class Objective(Protocol):
    """What a client minimises. A record whose fields are its hyper-parameters.

    ``mu`` is the weight of the proximal term that the solver adds to every gradient, ``mu (w - w_start)``; the batch
    loss itself is ``loss``. ``received()`` is the model that the client was sent: frozen, in evaluation mode, and made
    only when asked for.
    """

    @property
    def mu(self) -> float: ...

    def loss(self, module: nn.Module, x: Tensor, y: Tensor, received: Callable[[], nn.Module]) -> Tensor: ...


@runtime_checkable
class Reshaping(Objective, Protocol):
    """An objective for another network, which it makes of the one it is given.

    ``pace`` names the tensors of which the server takes less than the whole weighted update, and what share.
    """

    def network(self, module: nn.Module, key: Key) -> nn.Module: ...

    def pace(self) -> Mapping[str, float]: ...


@dataclass(frozen=True, slots=True)
class Solver:
    """Local SGD: ``epochs`` over reshuffled data in batches, the last partial batch kept.

    Args:
        epochs: local epochs ``E``.
        batch_size: ``B``.
        lr: learning rate ``eta``.
        momentum: classical momentum, reset at the start of every local training.
        l2: weight of ``l2 * sum w^2`` over the kernels that the model names (gradient ``2 l2 w``).
        steps: where set, this many mini-batch steps instead of epochs, cycling through reshuffled epochs.

    Raises:
        ConfigError: for a value out of its range.
    """

    epochs: Annotated[int, Field(ge=0)] = 10
    batch_size: Annotated[int, Field(ge=1)] = 10
    lr: Annotated[float, Field(gt=0)] = 0.03
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    l2: Annotated[float, Field(ge=0)] = 0.0
    steps: Annotated[int, Field(ge=0)] | None = None

    def __post_init__(self) -> None:
        _check_solver(self.epochs, self.batch_size, self.lr, self.momentum, self.l2, self.steps)

    def count(self, size: int) -> int:
        """Number of steps this solver takes on a client with ``size`` samples."""
        if size == 0:
            return 0
        return self.epochs * -(-size // self.batch_size) if self.steps is None else self.steps


@lru_cache(maxsize=256, typed=True)
def _check_solver(*values: Any) -> None:
    """Checked once: every client's training makes a solver from the run's."""
    check(Solver, dict(zip(Solver.__slots__, values, strict=True)))


@dataclass(frozen=True, slots=True)
class Train:
    """Local training. What is left ``None`` is as the run's solver says; ``spent`` epochs are taken off its budget.

    With ``full_gradient`` the update is minus the gradient of the whole local loss. With ``upload = (start, stop)``
    only that slice of the update leaves the client.
    """

    objective: Objective
    epochs: int | None = None
    steps: int | None = None
    spent: int = 0
    full_gradient: bool = False
    upload: tuple[int, int] | None = None

    def solver(self, base: Solver) -> Solver:
        """The run's solver with this work's budget."""
        if self.full_gradient:
            return replace(base, epochs=1, steps=None, batch_size=2**31 - 1, lr=1.0, momentum=0.0)
        if self.steps is not None:
            return replace(base, steps=self.steps)
        epochs = base.epochs if self.epochs is None else self.epochs
        return replace(base, epochs=max(0, epochs - self.spent), steps=None)

    def fields(self, d: int, r: int) -> Mapping[str, tuple[tuple[int, ...], str]]:
        """Exactly what one client's reply holds: name -> (shape, NumPy dtype kind)."""
        start, stop = self.upload or (0, d)
        return {"delta": ((stop - start,), "f"), "size": ((), "f"), "loss": ((), "f")}

    def leaves(self, delta: NDArray[Any]) -> NDArray[Any]:
        """The part of the updates ``[n, d]`` that leaves the client."""
        return delta if self.upload is None else np.ascontiguousarray(delta[:, self.upload[0] : self.upload[1]])


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Score ``r`` models on a client's own split: correct predictions and, with ``loss``, the summed loss."""

    split: Literal["train", "test"] = "test"
    loss: bool = True

    def fields(self, d: int, r: int) -> Mapping[str, tuple[tuple[int, ...], str]]:
        return {"correct": ((r,), "f"), "size": ((), "f"), **({"loss": ((r,), "f")} if self.loss else {})}


@dataclass(frozen=True, slots=True)
class Describe:
    """A statistic of the client's own training data that leaves it.

    - ``histogram``: its label histogram ``[c]``.
    - ``subspace``: per class the first ``vectors`` left singular vectors of its samples, ``[features, vectors * c]``;
      columns of classes it does not hold, or has too few samples of, are zero (PACFL).
    - ``imbalance``: the number ``sum_m |level - D_m|`` over its class counts ``D_m`` (RFedAvg eq. 17).

    Args:
        statistic: which.
        classes: number of classes ``c``.
        features: values of one sample (``subspace``).
        vectors: singular vectors per class (``subspace``).
        level: samples per class of a balanced world, ``D / M`` (``imbalance``).
        privacy: how a histogram is made private: ``discrete_laplace`` noise on every count, or the dominant class only,
            by ``randomised_response``. Drawn once per client and kept.
        epsilon: privacy budget.

    Raises:
        ConfigError: for a budget out of its range.
    """

    statistic: Literal["histogram", "subspace", "imbalance"] = "histogram"
    classes: int = 0
    features: int = 0
    vectors: int = 0
    level: float = 0.0
    privacy: Literal["none", "discrete_laplace", "randomised_response"] = "none"
    epsilon: Epsilon = 1.0

    def __post_init__(self) -> None:
        check(Describe, {"epsilon": self.epsilon})

    def fields(self, d: int, r: int) -> Mapping[str, tuple[tuple[int, ...], str]]:
        shape = {
            "histogram": (self.classes,),
            "subspace": (self.features, self.vectors * self.classes),
            "imbalance": (),
        }[self.statistic]
        return {self.statistic: (shape, "f"), "size": ((), "f")}


@dataclass(frozen=True, slots=True)
class Place:
    """A client places itself: it trains from row 0 of ``1 + m`` models and tells which of the others is its direction.

    The rows 1..m are the directions of the groups. Only the number of the nearest, from 0, leaves the client; -1 where
    the update has no direction. Clients that are processes of their own keep the rows, and need them once.
    """

    train: Train

    def fields(self, d: int, r: int) -> Mapping[str, tuple[tuple[int, ...], str]]:
        return {"choice": ((), "f"), "size": ((), "f")}


Work = Train | Evaluate | Describe | Place


@dataclass(frozen=True, slots=True)
class Reply:
    """What one client, or a block of clients in simulation, sent: every field has the clients first, ``[n, ...]``.

    ``purpose`` repeats the request it answers, since a client may be asked several times in a round.
    """

    round: int
    ids: IntArray
    fields: Mapping[str, NDArray[Any]]
    purpose: str = ""

    def __len__(self) -> int:
        return len(self.ids)


class Engine(Protocol):
    """Reaches clients. It has never heard of groups."""

    def run(self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key) -> Sequence[Reply]:
        """Ask clients to work.

        Args:
            work: what to do.
            ids: int64 ``[n]``, the clients.
            models: float32 ``[k, d]``.
            which: int64 ``[n]`` or ``[n, r]``, the row(s) of ``models`` that each client gets.
            key: the stream of this request; client ``i`` draws from ``key.client(i)``, ``key.round`` is the round.

        Returns:
            What came, in any order, from any subset of those asked, and untrusted.
        """
        ...

    def hold(self, population: Any) -> None:
        """From now on the clients hold these data (``coterie.data.Population``). Only a simulation can say so."""
        ...

    def close(self) -> None:
        """Let go of processes and shared memory."""
        ...


@runtime_checkable
class Watch(Protocol):
    """Clients that look after themselves: real ones, which notice drift and place themselves."""

    def compare(self, placement: IntArray) -> IntArray:
        """The clients that said their data drifted since they were placed, ascending.

        Args:
            placement: int64 ``[N]``, how often each was placed; what was said of an earlier placement counts nothing.
        """
        ...


class CoterieError(Exception):
    """An expected failure: one line for the user, and the exit code of the command line."""

    code = 70


class ConfigError(CoterieError):
    """The configuration, or an argument, cannot be used."""

    code = 2


class DataError(CoterieError):
    """The data cannot be read, or do not hold what was asked of them."""

    code = 3


class CheckpointError(CoterieError):
    """No valid checkpoint, or one of another configuration."""

    code = 4


class QuorumError(CoterieError):
    """Too few clients answered for too long."""

    code = 5


class RemoteError(CoterieError):
    """A run elsewhere failed, or could not be reached."""

    code = 7


class SweepError(CoterieError):
    """Some runs of a sweep failed; the others are done."""

    code = 8


def stack(rows: Sequence[Tensor]) -> Tensor:
    """Flat vectors as float32 ``[n, d]``."""
    return torch.stack([row.to(torch.float32) for row in rows])
