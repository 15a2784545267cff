"""The table ``[privacy]``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from coterie.config.schema import Float, Table

Above = Annotated[Float, Field(gt=0)]
Probability = Annotated[Float, Field(gt=0, lt=1)]


class PrivacyTable(Table):
    """``[privacy]``: differential privacy of updates; see ``docs/private-updates.md``."""

    epsilon: Above | None = None
    delta: Probability = 1e-5
    noise: Above | None = None
    clip: Above = 1.0
    # The median, as Andrew et al. recommend; without the key the clip stays as it is.
    quantile: Probability | None = None
    # Of a cold start as a whole, in multiples of that of a round.
    start_noise: Above = 1.0
    # Of a round, on average.
    least_group: Above | None = None
    accountant: Literal["pld", "rdp"] = "pld"
    randomness: Literal["seed", "system"] = "seed"
