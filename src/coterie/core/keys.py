"""Derived random streams.

Every random draw comes from ``key(seed, purpose, round, client)``, never from a carried or global
generator. Adding a method, a worker or a measure therefore changes nobody else's stream, and
resuming a run needs only the round number.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch

SECRET_BITS = 256


@dataclass(frozen=True, slots=True)
class Key:
    """The name of one random stream: a seed, a purpose, a round and, optionally, a client.

    Example:
        >>> key = Key(seed=7, round=3)
        >>> key.of("train").client(12).generator().integers(100) == key.of("train").client(12).generator().integers(100)
        np.True_
        >>> key.of("train") == key.of("assign")
        False
    """

    seed: int
    purpose: str = ""
    round: int = -1
    id: int = -1

    def of(self, purpose: str) -> Key:
        """The stream for a purpose within this one; purposes form a path."""
        # Written out, here and below: `dataclasses.replace` takes several times as long, and each
        # training of a client makes a few keys.
        return Key(self.seed, f"{self.purpose}/{purpose}", self.round, self.id)

    @property
    def what(self) -> str:
        """The last step of the purpose."""
        return self.purpose.rpartition("/")[2]

    def at(self, round: int) -> Key:
        """The same stream in another round."""
        return Key(self.seed, self.purpose, round, self.id)

    def client(self, id: int) -> Key:
        """The stream of one client."""
        return Key(self.seed, self.purpose, self.round, int(id))

    def integer(self) -> int:
        """A 128-bit integer that is a fixed function of this key on every platform.

        It is a hash, so that the streams of neighbouring rounds or clients are unrelated. The parts
        are separated by a zero, so that no two keys hash the same text.
        """
        text = f"{self.seed}\0{self.purpose}\0{self.round}\0{self.id}"
        return int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "little")

    def seed32(self) -> int:
        """The key folded to 32 bits, for libraries that take such a seed."""
        return self.integer() & 0xFFFFFFFF

    def generator(self) -> np.random.Generator:
        """A fresh counter-based NumPy generator for this stream."""
        # Philox takes a key as it is and makes any number of streams cheaply; its draws are
        # the same on every platform.
        return np.random.Generator(np.random.Philox(key=self.integer()))

    def torch(self) -> torch.Generator:
        """A fresh torch generator for this stream."""
        # Torch takes a signed seed of 64 bits.
        return torch.Generator().manual_seed(self.integer() & (2**63 - 1))


def system_secret() -> Key:
    """A stream that follows from nothing but a number that the operating system draws."""
    return Key(secrets.randbits(SECRET_BITS))


@contextmanager
def keyed_torch(key: Key, gpus: Sequence[int] = ()) -> Iterator[None]:
    """Let a module's own randomness (dropout masks, noise), also on these GPUs, follow ``key``, and
    leave torch's global state as it was."""
    # Dropout and the like take no generator, they draw from these.
    generators = [torch.default_generator, *(torch.cuda.default_generators[g] for g in gpus)]
    before = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(key.integer() & (2**63 - 1))
    try:
        yield
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)
