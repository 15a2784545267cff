"""What a client stores in addition to the model that it is sent: a model that only this client
trains, a control variate, or the network of its last training.

An `OwnModel` is a rule of a client's work, with its hyper-parameters as fields. The methods of
`coterie.algorithms` that need one have it in their own file, as `coterie.algorithms.ditto`. The
engine that stores the vectors is `coterie.engines.own_models`, and the training that a rule is
handed is `coterie.local.training.client`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from coterie.core.groups import Groups
from coterie.core.objective import Objective
from coterie.core.solver import Solver
from coterie.core.vectors import Layout
from coterie.errors import ConfigError

# What a client stores, by name: float32, each as long as `OwnModel.lengths` says.
Own = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Batch:
    """A mini-batch.

    Args:
        x: inputs ``[B, ...]``.
        y: their targets.
        last_pass: whether it is one of the last pass over the samples.
    """

    x: Tensor
    y: Tensor
    last_pass: bool = True


@dataclass(slots=True)
class LastPassLoss:
    """The mean loss per sample in the last pass, for a rule that takes its own steps."""

    total: float = 0.0
    samples: int = 0

    def add(self, loss: float, batch: Batch) -> None:
        """Count the mean loss of a batch, if it is one of the last pass."""
        if batch.last_pass:
            self.total += loss * len(batch.y)
            self.samples += len(batch.y)

    @property
    def mean(self) -> float:
        """The mean loss; 0 without samples."""
        return self.total / max(1, self.samples)


@dataclass(frozen=True, slots=True)
class OwnTrained:
    """The result of a training by a rule.

    Args:
        update: float32 ``[d]``, new minus received parameters: the only values that leave the
            client.
        loss: mean loss of the last pass over the samples.
        own: what the client stores from now on.
    """

    update: Tensor
    loss: float
    own: Own


class LocalTraining(Protocol):
    """Local training of one client in one round, as a tool for a rule.

    ``received`` is float32 ``[r, d]``: the model that the client was sent, and the further vectors
    that the method sends with it. ``start`` is its first row. ``solver`` is that of the round:
    ``solver.lr`` is the learning rate of the round, without a schedule of the steps. ``steps`` is
    the number of mini-batch steps in a training of this client. ``objective`` is what the method's
    clients minimise.
    """

    received: Tensor
    solver: Solver
    steps: int
    objective: Objective

    @property
    def start(self) -> Tensor:
        """The model that the client was sent, float32 ``[d]``."""
        ...

    @property
    def layout(self) -> Layout:
        """The positions of the network's tensors in a model ``[d]``: ``layout.final_layer()`` is
        the slice of the classifier, ``layout.views(w)["fc.weight"]`` a tensor of ``w``."""
        ...

    def run(
        self,
        start: Tensor,
        *,
        anchor: Tensor | None = None,
        mu: float = 0.0,
        constant: Tensor | None = None,
        objective: Objective | None = None,
    ) -> tuple[Tensor, float]:
        """Ordinary local training; without options it is bitwise that of FedAvg, from any start.

        Args:
            start: float32 ``[d]``, where it begins.
            anchor: float32 ``[d]``, what the proximal term ``mu/2 ||w - anchor||^2`` pulls to;
                ``None``: the objective's own term, which pulls to the model that was sent.
            mu: weight of that term.
            constant: float32 ``[d]``, added to every gradient; ``None``: nothing.
            objective: what is minimised; ``None``: what the method's clients minimise. What it
                compares with is the model that was sent, not ``start``.

        Returns:
            The update ``w - start``, and the mean loss of the last pass.
        """
        ...

    def go_on(self, start: Tensor, memory: Tensor) -> tuple[Tensor, float, Tensor]:
        """The training of `run`, with an optimiser that continues from its previous state.

        Args:
            start: float32 ``[d]``, where it begins.
            memory: float32 ``[m]``, see ``coterie.local.training.optimizers``; zeros: a new
                optimiser.

        Returns:
            The update ``w - start``, the mean loss of the last pass, and the new state of the
            optimiser.
        """
        ...

    def batches(self, stream: str = "") -> Iterator[Batch]:
        """The mini-batches of a training, ``steps`` of them, for a rule that takes its own steps.

        Args:
            stream: the stream of the shuffling; the empty one is that of `run`.
        """
        ...

    def everything(self) -> Batch:
        """All training samples of the client as one batch, in their order: ``everything().y`` are its
        labels."""
        ...

    def gradient(
        self, at: Tensor, batch: Batch, *, objective: Objective | None = None
    ) -> tuple[Tensor, float]:
        """The gradient of what the method's clients minimise, float32 ``[d]``, and the batch loss.

        It includes the objective's proximal term, if there is one, which pulls towards `start`.

        Args:
            at: float32 ``[d]``.
            batch: a batch from `batches`, or `everything`.
            objective: what is minimised; ``None``: what the method's clients minimise.
        """
        ...

    def network(self, vector: Tensor) -> nn.Module:
        """The network with these parameters: frozen, in evaluation mode.

        Args:
            vector: float32 ``[d]``.
        """
        ...


@runtime_checkable
class OwnModel(Protocol):
    """A rule that says what a client stores, and how it trains. A frozen record whose fields are
    the hyper-parameters.

    ``plain_sgd`` says that the rule takes its own steps, or uses the learning rate in a formula, so
    that it needs plain SGD and a network without running statistics.

    By default, a rule serves clients with the model that they are sent. A rule that serves another
    model is also a `ServesStored` or an `Adapts`.
    """

    @property
    def plain_sgd(self) -> bool: ...

    def lengths(self, d: int) -> Mapping[str, int]:
        """What a client stores: name -> number of values; empty if it stores nothing.

        Args:
            d: number of values of a model. A part of a model, such as a head, is stored as ``d``
                values, with zeros elsewhere.
        """
        ...

    def first(self, sent: Tensor) -> Own:
        """The stored values of a client that has never trained.

        Args:
            sent: float32 ``[d]``, the model that it is sent.
        """
        ...

    def train(self, training: LocalTraining, own: Own) -> OwnTrained:
        """A client's part of a round.

        Args:
            training: its tools.
            own: what it stored.
        """
        ...


@runtime_checkable
class ServesStored(OwnModel, Protocol):
    """A rule whose clients predict with a model computed from what they store."""

    def serve(self, sent: Tensor, own: Own) -> Tensor:
        """The model ``[d]`` that serves a client that has trained.

        Args:
            sent: float32 ``[d]``, the model that it is sent now.
            own: what it stored.
        """
        ...


@runtime_checkable
class Adapts(OwnModel, Protocol):
    """A rule whose clients fit the model that they are sent to their training samples before they
    predict."""

    def adapt(self, training: LocalTraining, own: Own) -> Tensor:
        """The model ``[d]`` that serves a client, trained or not.

        Args:
            training: its tools.
            own: what it stored.
        """
        ...


@runtime_checkable
class SendsSecondVector(OwnModel, Protocol):
    """A rule whose clients are sent a vector of the server in addition to the model.

    The method changes that vector in its rule `recluster`, by the updates of a round, or in its
    rule `assign`.
    """

    def second_vector(self, groups: Groups) -> Tensor:
        """The vector ``[d]`` that each client of a round is sent in addition to its model.

        Args:
            groups: the state of the server.
        """
        ...


@runtime_checkable
class TrainsAsSent(OwnModel, Protocol):
    """A rule that trains the model that the client is sent and stores no model, so that layers of it may
    stay with the client in addition to what the rule stores."""

    @property
    def trains_as_sent(self) -> bool: ...


def serves_as_sent(rule: OwnModel | None) -> bool:
    """Whether clients predict by the model that they are sent."""
    # The usual case first, since it is asked in each round and a look at protocols takes time.
    return rule is None or not isinstance(rule, ServesStored | Adapts)


# --- what a rule says that a client stores, checked and laid out in one vector ---------------------


def join_own(own: Own, lengths: Mapping[str, int], source: str) -> list[Tensor]:
    """What a client stores, in the order in which it lies in one vector. ``source``: the function
    that returned it, for error lines."""
    if set(own) != set(lengths):
        what = f"{source} returned other names than those in `lengths`"
        raise ConfigError("differs", "own_model", what, found=sorted(own), allowed=sorted(lengths))
    return [
        checked_vector(own[name], length, source, repr(name)) for name, length in lengths.items()
    ]


def checked_vector(value: object, length: int, source: str, what: str) -> Tensor:
    """A vector that a rule returned.

    Args:
        source: the function that returned it, for error lines, as ``"Ditto.serve"``.

    Example:
        >>> import torch
        >>> checked_vector(torch.zeros(2), 3, "Mine.serve", "the model")
        Traceback (most recent call last):
        coterie.errors.ConfigError: own_model: Mine.serve: the model has the wrong shape, got [2]; expected [3]
    """
    if isinstance(value, Tensor) and value.shape == (length,):
        return value
    wrong = f"{source}: {what} has the wrong shape"
    if not isinstance(value, Tensor):
        kind = type(value).__name__
        wrong = f"{source}: {what} is not a tensor"
        raise ConfigError("wrong-type", "own_model", wrong, found=kind, allowed=f"[{length}]")
    raise ConfigError("wrong-shape", "own_model", wrong, got=list(value.shape), allowed=[length])


def split_own(values: Tensor, lengths: Mapping[str, int]) -> dict[str, Tensor]:
    """What a client stores, by name, as views into one vector.

    Example:
        >>> import torch
        >>> parts = split_own(torch.arange(3), {"v": 2, "alpha": 1})
        >>> parts["v"].tolist(), parts["alpha"].tolist()
        ([0, 1], [2])
    """
    parts = values.split(list(lengths.values()))
    return dict(zip(lengths, parts, strict=True))
