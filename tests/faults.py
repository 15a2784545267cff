"""A wrapper that loses, delays, duplicates and corrupts replies, to see what an algorithm makes of
it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.core.engine import Engine, Reply
from coterie.core.keys import Key
from coterie.core.work import Train, Work
from coterie.data.population import Population

CORRUPTIONS = (
    "nan",
    "inf",
    "zeros",
    "huge",
    "shape",
    "dtype",
    "keys",
    "no samples",
    "endless samples",
)


@dataclass(frozen=True, slots=True)
class Faults:
    """How often what happens to a reply, each with its own probability.

    Args:
        lose: the reply never comes.
        delay: it comes in the next request instead, with the old round's number.
        duplicate: it comes twice.
        corrupt: one of ``CORRUPTIONS``, drawn evenly.
        hostile: clients whose every reply is corrupted in the way named.
        shuffle: replies arrive in random order.
        forget: what would be delayed is lost instead.
    """

    lose: float = 0.0
    delay: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    hostile: Mapping[int, str] = field(default_factory=dict)
    shuffle: bool = False
    forget: bool = False


class FaultyEngine:
    """An engine around any engine, whose `run` is the same but for faults. Only training replies
    are touched."""

    def __init__(self, engine: Engine, faults: Faults) -> None:
        self.engine = engine
        self.faults = faults
        self.delayed: list[Reply] = []

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        replies = self.engine.run(work, ids, models, which, key=key)
        if not isinstance(work, Train):
            return replies
        arrived = self.delayed
        self.delayed = []
        for block in replies:
            for reply in _singles(block):
                # Each client has its own stream: what befalls it does not depend on the engine's
                # order or blocks.
                rng = key.of("faults").client(int(reply.ids[0])).generator()
                arrived += self._what_arrives(reply, rng)
        if self.faults.shuffle:
            key.of("arrival").generator().shuffle(arrived)
        return arrived

    def _what_arrives(self, reply: Reply, rng: np.random.Generator) -> list[Reply]:
        """The reply as it arrives now: not at all, once or twice, spoilt or not."""
        # All four are drawn whatever happens, so that one probability does not move another's draw.
        lose, delay, duplicate, corrupt = rng.random(4)
        how = self.faults.hostile.get(int(reply.ids[0]))
        if how is None and corrupt < self.faults.corrupt:
            how = CORRUPTIONS[rng.integers(len(CORRUPTIONS))]
        if how is not None:
            reply = corrupted(reply, how)
        if lose < self.faults.lose:
            return []
        if delay < self.faults.delay:
            if not self.faults.forget:
                self.delayed.append(reply)
            return []
        if duplicate < self.faults.duplicate:
            return [reply, reply]
        return [reply]

    def set_population(self, population: Population) -> None:
        self.engine.set_population(population)

    def close(self) -> None:
        self.engine.close()


def _singles(block: Reply) -> list[Reply]:
    """The replies of a block, client by client."""
    singles = []
    for at in range(len(block)):
        one = slice(at, at + 1)
        fields = {name: values[one] for name, values in block.fields.items()}
        singles.append(Reply(block.round, block.ids[one], fields, block.purpose))
    return singles


def corrupted(reply: Reply, how: str) -> Reply:
    """One client's reply, spoilt in one of the ways of ``CORRUPTIONS``."""
    # Copies, since a single reply is a view of its block, which other clients' replies share.
    fields: dict[str, NDArray[Any]] = {name: values.copy() for name, values in reply.fields.items()}
    delta = fields["delta"]
    match how:
        # In one coordinate alone, which is enough to spoil a mean.
        case "nan" | "inf" | "huge":
            delta[:, 0] = {"nan": np.nan, "inf": np.inf, "huge": 1e30}[how]
        case "zeros":
            delta[:] = 0
        case "shape":
            fields["delta"] = delta[:, :-1]
        case "dtype":
            fields["delta"] = delta.astype(np.int64)
        case "keys":
            fields["weights"] = fields.pop("delta")
        case "no samples":
            fields["size"][:] = 0
        case "endless samples":
            fields["size"][:] = 1e18
        case _:
            raise ValueError(
                f"corruption: unknown, got {how!r}; expected one of {', '.join(CORRUPTIONS)}"
            )
    return Reply(reply.round, reply.ids, fields, reply.purpose)
