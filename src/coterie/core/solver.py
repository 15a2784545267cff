"""The local solver: how a client trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field

from coterie.config.arguments import check_arguments
from coterie.config.local_problems import optimizer_problems
from coterie.config.schema import LARGEST, PYTHON_ONLY
from coterie.core.augment import Augment, Transform
from coterie.core.lr_schedule import LrSchedule
from coterie.errors import ConfigError

# Of AdamW where the user says none: torch's.
_ADAMW_DECAY = 0.01
# Records, which check themselves, and values without a hash.
_CHECKED_APART = ("step_schedule", "round_schedule", "optimizer_options", "augment")
# The options that all code that trains takes: compiled code, autograd, and vmap.
TAKEN_BY_ALL = frozenset(
    {
        *("epochs", "batch_size", "steps", "lr", "momentum", "l2", "weight_decay"),
        *("label_smoothing", "keep_state", "round_schedule"),
    }
)
_PLAIN_SGD = TAKEN_BY_ALL | {"augment"}
# The options that say how a step is made, and leave the loss of a client as it is.
_OF_STEPS = frozenset(
    {
        *("epochs", "batch_size", "steps", "lr", "step_schedule", "round_schedule", "augment"),
        *("optimizer", "optimizer_options", "momentum", "weight_decay", "keep_state"),
        *("clip_norm", "clip_value", "precision"),
    }
)


@lru_cache
def _others(kind: Any, known: frozenset[str]) -> tuple[tuple[str, Any], ...]:
    """Name and default of each option that is not known."""
    return tuple((one.name, one.default) for one in fields(kind) if one.name not in known)


@lru_cache
def _checked(kind: Any) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind) if one.name not in _CHECKED_APART)


@lru_cache(maxsize=256, typed=True)
def _check_solver(kind: Any, options: tuple[tuple[str, Any], ...], *values: Any) -> None:
    """Checked once: every client's training makes a solver from the run's."""
    arguments = dict(zip(_checked(kind), values, strict=True))
    check_arguments(kind, arguments)
    found = optimizer_problems((), arguments | {"optimizer_options": dict(options)})
    if found:
        raise ConfigError.of(found)


@dataclass(frozen=True, slots=True)
class Solver:
    """Local training: ``epochs`` over reshuffled data in batches, the last partial batch kept.

    A step, with ``g`` the gradient of the batch loss and ``eta_t`` the scheduled learning rate:

        g <- clip(g + 2 l2 w + mu (w - w_start))
        w <- (1 - eta_t weight_decay) w
        w <- optimizer(w, g, eta_t)

    ``mu`` is the objective's. The state of an optimiser (momentum, moments) starts from zero in
    every local training, unless ``keep_state`` keeps it on the client.

    Args:
        epochs: passes over the client's samples, ``E``, reshuffled each time.
        batch_size: samples per step, ``B``; the last step of a pass may have fewer.
        lr: learning rate ``eta``.
        momentum: the momentum of ``sgd`` (classical) and ``rmsprop``.
        l2: weight of ``l2 * sum w^2`` over the kernels that the model names (gradient ``2 l2 w``).
        steps: number of mini-batch steps, used instead of epochs if set, cycling through reshuffled
            epochs.
        optimizer: ``sgd``, ``adam``, ``adamw``, ``rmsprop``, or another class of ``torch.optim`` in
            lower case.
        optimizer_options: further parameters of the optimiser's class, such as
            ``{"betas": (0.9, 0.99)}``.
        weight_decay: decoupled decay of all trained parameters; default 0.01 for ``adamw``,
            otherwise 0.
        clip_norm: the largest Euclidean norm of the whole gradient; a longer gradient is scaled
            down.
        clip_value: the largest magnitude of each value of the gradient; applied before
            ``clip_norm``.
        label_smoothing: share of a label that is spread over all classes, only in training.
        precision: ``bfloat16``: layers compute in it where torch's autocast lets them, parameters
            and sums stay float32.
        keep_state: whether a client's optimiser continues from its state at the end of the client's
            previous training. Methods that cannot do so refuse it.
        step_schedule: schedule of the learning rate over the steps of a local training.
        round_schedule: schedule of the learning rate over rounds.
        augment: functions that change one training sample at random, differently in every pass;
            their draws from torch's global generator follow the run's seed, the round and the
            client.

    Raises:
        ConfigError: for a value out of its range, or an option that the optimiser does not have.

    Example:
        >>> Solver(epochs=1, lr=0.001, optimizer="adamw").decoupled_decay
        0.01
    """

    epochs: Annotated[int, Field(ge=1)] = 10
    batch_size: Annotated[int, Field(ge=1)] = 10
    lr: Annotated[float, Field(gt=0)] = 0.03
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    l2: Annotated[float, Field(ge=0)] = 0.0
    # For work that brings its own budget; a run counts epochs.
    steps: Annotated[int, Field(ge=0)] | None = field(default=None, metadata=PYTHON_ONLY)
    optimizer: str = "sgd"
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    clip_value: Annotated[float, Field(gt=0)] | None = None
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    precision: Literal["float32", "bfloat16"] = "float32"
    keep_state: bool = False
    step_schedule: LrSchedule | None = None
    round_schedule: LrSchedule | None = None
    # A mapping has no hash; equal solvers have equal hashes without it.
    optimizer_options: Mapping[str, Any] | None = field(default=None, hash=False)
    augment: tuple[Augment | Transform, ...] | None = None

    def __post_init__(self) -> None:
        self._check_records()
        options = {key: _frozen(key, value) for key, value in self.options.items()}
        object.__setattr__(self, "optimizer_options", options or None)
        kind: Any = type(self)
        values = [getattr(self, name) for name in _checked(kind)]
        check: Callable[..., None] = _check_solver
        try:
            hash((tuple(options.items()), *values))
        except TypeError:
            check = _check_solver.__wrapped__  # it is refused, or has an option that is a list
        check(kind, tuple(sorted(options.items())), *values)

    def _check_records(self) -> None:
        """Refuse other objects in the place of records."""
        kinds: dict[str, Any] = {"step_schedule": LrSchedule, "round_schedule": LrSchedule}
        kinds["optimizer_options"] = Mapping
        for name, kind in kinds.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                allowed = "options by their names" if kind is Mapping else "an LrSchedule"
                raise ConfigError("wrong-type", name, got=value, allowed=allowed)

    @property
    def options(self) -> Mapping[str, Any]:
        """The further parameters of the optimiser; empty for torch's defaults."""
        return self.optimizer_options or {}

    def count(self, size: int) -> int:
        """Number of steps this solver takes on a client with ``size`` samples."""
        # Also with `steps`, which would cycle for ever through no samples.
        if size == 0:
            return 0
        if self.steps is None:
            # The last partial batch is kept, as Keras does in FlexCFL's code.
            return self.epochs * -(-size // self.batch_size)
        return self.steps

    @property
    def decoupled_decay(self) -> float:
        """The weight decay that is applied."""
        if self.weight_decay is not None:
            return self.weight_decay
        if self.optimizer == "adamw":
            return _ADAMW_DECAY
        return 0.0

    @property
    def is_plain_sgd(self) -> bool:
        """Whether a step is that of SGD with momentum, and nothing is added to it."""
        return self.decoupled_decay == 0 and not self.set_beyond(_PLAIN_SGD)

    def set_beyond(self, known: frozenset[str]) -> list[str]:
        """The options that are neither at their defaults nor known.

        Code that does not support all options checks them, so that a new one is not ignored.
        """
        kind: Any = type(self)
        return [name for name, default in _others(kind, known) if getattr(self, name) != default]

    def in_round(self, number: int) -> Solver:
        """The solver with the learning rate of a round.

        Example:
            >>> halved = LrSchedule("step", every=10, gamma=0.5)
            >>> Solver(lr=0.4, round_schedule=halved).in_round(25).lr
            0.1
        """
        if self.round_schedule is None:
            return self
        if self.round_schedule.kind == "cosine" and self.round_schedule.over is None:
            raise ConfigError("missing", "round_schedule.over", allowed="an integer >= 1")
        # Work outside of rounds, as of a report's map, is done as in the first one.
        factor = self.round_schedule.factor(max(0, number), 0)
        # A rate is above 0, also where a cosine has ended at 0; this one moves nothing.
        return replace(self, lr=max(self.lr * factor, 1e-30), round_schedule=None)

    def over_rounds(self, rounds: int) -> Solver:
        """The solver of a run of this many rounds, which is the default length of a cosine schedule
        over rounds."""
        schedule = self.round_schedule
        if schedule is None or schedule.kind != "cosine" or schedule.over is not None:
            return self
        return replace(self, round_schedule=replace(schedule, over=rounds))

    def for_full_gradient(self) -> Solver:
        """One step of plain SGD with rate 1 on all samples as one batch: its update is minus the
        gradient of the whole local loss."""
        kind: Any = type(self)
        of_loss = {name: getattr(self, name) for name in self.set_beyond(_OF_STEPS)}
        return kind(epochs=1, batch_size=LARGEST, lr=1.0, **of_loss)


def _frozen(option: str, value: Any) -> Any:
    """An option of an optimiser with a hash: lists as tuples, which are what torch takes."""
    if isinstance(value, list | tuple):
        return tuple(_frozen(option, item) for item in value)
    if not isinstance(value, bool | int | float | str):
        expected = "a number, true or false, or a list of numbers"
        raise ConfigError("wrong-type", f"optimizer_options.{option}", got=value, allowed=expected)
    return value


# What no option of plain SGD may be but this; ``None``: it may not be set.
PLAIN_SGD = dict(_others(Solver, _PLAIN_SGD)) | {"momentum": 0.0, "weight_decay": 0.0}
