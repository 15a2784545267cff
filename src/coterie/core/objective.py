"""What a client minimises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol, final, runtime_checkable

from torch import Tensor, nn
from torch.nn import functional as F

from coterie.config.arguments import place_of
from coterie.core.keys import Key
from coterie.core.target_scaling import TargetScaling, scaling_of
from coterie.core.task import Task, check_label_logits, has_squared_error, is_classes
from coterie.errors import ConfigError


@runtime_checkable
class Objective(Protocol):
    """What a client minimises. A record whose fields are its hyper-parameters.

    ``mu`` is the weight of the proximal term that the solver adds to every gradient,
    ``mu (w - w_start)``; the batch loss itself is ``loss``. ``received()`` is the model that the
    client was sent: frozen, in evaluation mode, and created only when it is called.
    """

    @property
    def mu(self) -> float: ...

    def loss(
        self, module: nn.Module, x: Tensor, y: Tensor, received: Callable[[], nn.Module]
    ) -> Tensor:
        """The mean loss of a mini-batch, a tensor of one value.

        Args:
            module: the network in training; the gradient is taken with respect to its parameters.
            x: inputs ``[B, ...]``.
            y: their targets, labels ``[B]`` for classes.
            received: returns the network with the model that the client was sent.
        """
        ...


def check_loss(objective: Objective, loss: object) -> None:
    """Refuse a loss that has no gradient, of an objective of the user's own."""
    got = type(loss).__name__
    if isinstance(loss, Tensor):
        if loss.numel() == 1 and loss.requires_grad:
            return
        got = f"shape {tuple(loss.shape)}" if loss.numel() != 1 else "a tensor without gradient"
    what = f"{place_of(objective.loss)} returned an invalid loss"
    expected = "a tensor of one value, the mean loss of the batch, with a gradient"
    raise ConfigError("wrong-type", "objective", what, found=got, allowed=expected)


class KnownLoss(Objective, Protocol):
    """An objective that declares what its batch loss is made of, so that faster code may compute
    it.

    ``form`` is ``cross_entropy`` where the loss is the mean cross-entropy of the network's outputs
    and nothing else, and ``cross_entropy_of_more`` where it is the mean cross-entropy of something
    else that is computed sample by sample. In both, a sample of label -100 counts nothing. It is
    ``squared_error`` where the loss is the mean squared error of the network's outputs, and
    ``other`` for anything else. A subclass with another ``loss`` declares another ``form``.
    """

    @property
    def form(
        self,
    ) -> Literal["cross_entropy", "cross_entropy_of_more", "squared_error", "other"]: ...


def is_cross_entropy(objective: Objective) -> bool:
    """Whether the loss of a batch is the mean cross-entropy of the network's outputs alone: what
    compiled code minimises."""
    return _form(objective) == "cross_entropy"


def is_squared_error(objective: Objective) -> bool:
    """Whether the loss of a batch is the mean squared error of the network's outputs alone: what
    compiled code minimises, too."""
    return _form(objective) == "squared_error"


def ignores_padding(objective: Objective) -> bool:
    """Whether a sample of label -100 changes neither the loss nor its gradient."""
    return _form(objective) in ("cross_entropy", "cross_entropy_of_more")


def _form(objective: Objective) -> str:
    """What an objective declares as a `KnownLoss`; ``other`` where it declares nothing."""
    # Asked for every client of a round, where `isinstance` of a protocol would take a tenth of the
    # time of a small client.
    return getattr(objective, "form", "other")


@runtime_checkable
class AddsToTask(Objective, Protocol):
    """An objective that adds to the loss of a task, so that it fits any task. Any other objective
    is a whole loss by itself, whatever the task measures."""

    def for_task(self, task: Task) -> Objective: ...


def for_task(objective: Objective, task: Task) -> Objective:
    """The objective with the loss of a task."""
    if isinstance(objective, AddsToTask):
        return objective.for_task(task)
    return objective


@runtime_checkable
class Reshaping(Objective, Protocol):
    """An objective that changes the network. ``pace`` names the tensors of which the server takes a
    share of the weighted update, and which share."""

    def network(self, module: nn.Module, key: Key) -> nn.Module: ...

    def pace(self) -> Mapping[str, float]: ...


# --- losses of a task ----------------------------------------------------------------------------


def mean_loss(task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean loss of a batch."""
    # One call of torch, which sums in another order than a mean of separate losses: so it has the
    # same bits as the cross-entropy of `CrossEntropy`.
    if is_classes(task):
        check_label_logits(outputs, targets)
        return F.cross_entropy(outputs, targets)
    return task.loss(outputs, targets).mean()


@dataclass(frozen=True, slots=True)
class TaskLoss:
    """The mean loss of a task over a batch, and FedProx's proximal term where ``mu > 0``. The
    solver adds the gradient of that term, see `CrossEntropy`."""

    task: Task
    mu: float = 0.0

    @property
    def form(self) -> Literal["squared_error", "other"]:
        if has_squared_error(self.task):
            return "squared_error"
        return "other"

    def for_task(self, task: Task) -> TaskLoss:
        return replace(self, task=task)

    def loss(
        self, module: nn.Module, x: Tensor, y: Tensor, received: Callable[[], nn.Module]
    ) -> Tensor:
        return mean_loss(self.task, module(x), y)


@final
@dataclass(frozen=True, slots=True)
class CrossEntropy:
    """Mean cross-entropy of a batch, and FedProx's proximal term where ``mu > 0``.

    The term is ``mu / 2 ||w - w_start||^2``. The solver adds its gradient ``mu (w - w_start)`` to
    that of the batch, with ``w_start`` a snapshot of the model received; so ``loss`` does not
    include it.

    Source: Li et al., Federated Optimization in Heterogeneous Networks, eq. 2.
    """

    # With a live reference in place of the snapshot the term would always be 0, as in
    # PACFL's copy of FedProx.
    mu: float = 0.0

    @property
    def form(self) -> Literal["cross_entropy"]:
        return "cross_entropy"

    def for_task(self, task: Task) -> CrossEntropy | TaskLoss:
        """The same with the loss of another task in place of the cross-entropy."""
        if is_classes(task):
            return self
        return TaskLoss(task, self.mu)

    def loss(
        self, module: nn.Module, x: Tensor, y: Tensor, received: Callable[[], nn.Module]
    ) -> Tensor:
        outputs = module(x)
        check_label_logits(outputs, y)
        return F.cross_entropy(outputs, y)


def target_scaling(objective: Objective) -> TargetScaling | None:
    """How the loss of an objective scales targets before it compares them with outputs; ``None``: it
    does not."""
    if isinstance(objective, TaskLoss):
        return scaling_of(objective.task)
    return None


plain = CrossEntropy()
