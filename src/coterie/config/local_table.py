"""The table ``[local]``: how a client trains."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from coterie.config.schema import Bool, Float, Int, Table

Count = Annotated[Int, Field(ge=1)]
Positive = Annotated[Float, Field(gt=0)]
NotNegative = Annotated[Float, Field(ge=0)]


class ScheduleTable(Table):
    """``[local.step_schedule]`` and ``[local.round_schedule]``; the fields of
    `coterie.core.lr_schedule.LrSchedule`."""

    kind: Literal["constant", "step", "cosine"] = "constant"
    warmup: Annotated[Int, Field(ge=0)] = 0
    every: Count | None = None
    gamma: Positive | None = None
    over: Count | None = None
    floor: Annotated[Float, Field(ge=0, le=1)] | None = None


class AugmentTable(Table):
    """``[[local.augment]]``: a class of ``torchvision.transforms.v2``, or ``module:factory``."""

    name: str
    options: dict[str, Any] | None = None


class LocalTable(Table):
    """``[local]``: local training; the fields of `coterie.core.solver.Solver`."""

    # These three are FlexCFL's for MNIST.
    epochs: Count = 10
    batch_size: Count = 10
    lr: Positive = 0.03
    momentum: Annotated[Float, Field(ge=0, lt=1)] = 0.0
    l2: NotNegative = 0.0
    optimizer: str = "sgd"
    optimizer_options: dict[str, Any] | None = None
    weight_decay: NotNegative | None = None
    clip_norm: Positive | None = None
    clip_value: Positive | None = None
    label_smoothing: Annotated[Float, Field(ge=0, lt=1)] = 0.0
    precision: Literal["float32", "bfloat16"] = "float32"
    keep_state: Bool = False
    step_schedule: ScheduleTable | None = None
    round_schedule: ScheduleTable | None = None
    augment: tuple[AugmentTable, ...] | None = None
