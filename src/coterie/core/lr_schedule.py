"""How the learning rate of local training changes, over local steps or over rounds."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from pydantic import Field

from coterie.config.arguments import check_fields
from coterie.config.local_problems import schedule_problems
from coterie.errors import ConfigError

Kind = Literal["constant", "step", "cosine"]


@dataclass(frozen=True, slots=True)
class LrSchedule:
    """The factor of the learning rate at time ``t = 0, 1, ...``, counted in local steps or rounds.

    While ``t < warmup`` the factor is ``(t + 1) / (warmup + 1)``. Afterwards, with
    ``s = t - warmup``:

    - ``constant``: 1;
    - ``step``: ``gamma^(s // every)``;
    - ``cosine``: ``floor + (1 - floor) (1 + cos(pi min(1, s / (over - warmup)))) / 2``.

    Args:
        kind: the kind of schedule.
        warmup: the number of steps or rounds in which the rate rises.
        every: for ``step``: the number of steps or rounds between two changes.
        gamma: for ``step``: the factor of each change; default 0.1.
        over: for ``cosine``: the time at which the factor reaches ``floor``; default: the steps of
            the local training, or the rounds of the run.
        floor: for ``cosine``: the final factor; default 0.

    Raises:
        ConfigError: for a value out of its range, or an option of another kind.

    Example:
        >>> halved = LrSchedule("step", every=2, gamma=0.5)
        >>> [halved.factor(t, 6) for t in range(6)]
        [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
        >>> [round(LrSchedule("cosine", warmup=1).factor(t, 5), 3) for t in range(5)]
        [0.5, 1.0, 0.854, 0.5, 0.146]
    """

    kind: Kind = "constant"
    warmup: Annotated[int, Field(ge=0)] = 0
    every: Annotated[int, Field(ge=1)] | None = None
    gamma: Annotated[float, Field(gt=0)] | None = None
    over: Annotated[int, Field(ge=1)] | None = None
    floor: Annotated[float, Field(ge=0, le=1)] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        found = schedule_problems((), asdict(self))
        if found:
            raise ConfigError.of(found)

    def factor(self, t: int, total: int) -> float:
        """The factor at time ``t``.

        Args:
            t: the time, from 0.
            total: steps of the training or rounds of the run, used if ``over`` is not set.
        """
        if t < self.warmup:
            return (t + 1) / (self.warmup + 1)
        since = t - self.warmup
        if self.kind == "step":
            assert self.every is not None
            gamma = 0.1
            if self.gamma is not None:
                gamma = self.gamma
            return float(gamma ** (since // self.every))
        if self.kind == "cosine":
            length = max(1, (self.over or total) - self.warmup)
            floor = self.floor or 0.0
            return floor + (1 - floor) * (1 + math.cos(math.pi * min(1, since / length))) / 2
        return 1.0
