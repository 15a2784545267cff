"""What stays with a client of a federation, in files on its node that only their owner may read.

One holds the personal layers of the client, or what it stores for a model of its own: one vector
after each of the last rounds in which it trained. Several, since a server that was killed goes on
from its checkpoint: the client then has to go on from what it had at that time. Another holds the
model that serves a client without labels.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.core.keep import ClientStore, Keep, Vectors
from coterie.core.vectors import Layout, state_dict
from coterie.errors import DataError, first_line
from coterie.files import read_json
from coterie.flower.keys import replace_private

KEPT_FILE = "kept.safetensors"
Parts = tuple[tuple[str, tuple[int, ...]], ...]
_KEPT_FORMAT = "coterie-kept-1"  # what the file is, with the version of its format


@dataclass(frozen=True, slots=True)
class KeptRounds:
    """What a client had after the last rounds in which it trained.

    Args:
        server: the server's process that it trained for last.
        vectors: float32 ``[m, s]``.
    """

    server: str
    rounds: IntArray
    vectors: Vectors

    @classmethod
    def none(cls, server: str, size: int) -> KeptRounds:
        """Of a client that never trained."""
        return cls(server, np.empty(0, np.int64), np.empty((0, size), np.float32))

    def for_server(self, server: str, since: int) -> KeptRounds:
        """What is left when a process of the server asks that began with round ``since``: to another
        process than before later rounds are not known, and will be done again.

        Example:
            >>> kept = KeptRounds("a", np.array([2, 5]), np.array([[1.0], [2.0]], np.float32))
            >>> kept.for_server("a", 5).rounds.tolist(), kept.for_server("b", 5).rounds.tolist()
            ([2, 5], [2])
        """
        if server == self.server:
            return self
        known = self.rounds < since
        return KeptRounds(server, self.rounds[known], self.vectors[known])

    def after(self, round: int, vector: Vectors, most: int) -> KeptRounds:
        """The same after one more training, with the last ``most`` rounds.

        Example:
            >>> kept = KeptRounds("a", np.array([2, 5]), np.array([[1.0], [2.0]], np.float32))
            >>> kept.after(7, np.array([3.0], np.float32), most=2).rounds.tolist()
            [5, 7]
        """
        # A second training in one round goes on from the first and takes its place.
        before = self.rounds != round
        rounds = np.append(self.rounds[before], round)
        vectors = np.concatenate([self.vectors[before], vector[None]])
        return replace(self, rounds=rounds[-most:], vectors=vectors[-most:])


@dataclass(frozen=True, slots=True)
class KeptFile:
    """The file of a client in a run, with names and shapes for those who take the tensors away."""

    path: Path
    run: str
    keep: Keep
    parts: Parts = ()

    def read(self, server: str) -> KeptRounds:
        """What the file holds; nothing where there is none."""
        if not self.path.exists():
            return KeptRounds.none(server, self.keep.size)
        about, rounds, vectors = _read(self.path)
        if about.get("run") != self.run:
            raise self._other("run", repr(about.get("run")), repr(self.run))
        spans = json.dumps(self.keep.spans)
        if about.get("spans") != spans or vectors.shape != (len(rounds), self.keep.size):
            raise self._other("model", f"coordinates {about.get('spans')}", spans)
        return KeptRounds(str(about.get("server")), rounds, vectors)

    def _other(self, of: str, got: str, expected: str) -> DataError:
        what = f"belongs to another {of}"
        return DataError("differs", self.path, what, found=got, allowed=expected)

    def write(self, kept: KeptRounds) -> None:
        """Write the file so that it is the old one or the new one, whole."""
        about = {
            "what": _KEPT_FORMAT,
            "run": self.run,
            "server": kept.server,
            "spans": json.dumps(self.keep.spans),
            "parts": json.dumps(self.parts),
        }
        about["digest"] = _digest(about, kept.rounds, kept.vectors)
        # Contiguous copies: a slice would be saved as the bytes that it begins with.
        tensors: dict[str, NDArray[Any]] = {
            "rounds": np.ascontiguousarray(kept.rounds),
            "vectors": np.ascontiguousarray(kept.vectors),
        }
        replace_private(self.path, save(tensors, about))


def newest_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """What a client had after the last round in which it trained, by the names of its tensors."""
    about, _, vectors = _read(path)
    found: dict[str, NDArray[Any]] = {}
    at = 0
    for name, shape in read_json(about["parts"]):
        size = math.prod(shape)
        found[name] = vectors[-1, at : at + size].reshape(shape).copy()
        at += size
    return found


def _read(path: Path) -> tuple[dict[str, str], IntArray, Vectors]:
    """What a file says of itself, the rounds and the vectors."""
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            rounds = file.get_tensor("rounds")
            vectors = file.get_tensor("vectors")
    except (OSError, SafetensorError) as error:
        got = first_line(error)
        raise DataError("cannot-be-read", path, found=got, allowed=KEPT_FILE) from None
    digest = about.pop("digest", "")
    if about.get("what") != _KEPT_FORMAT or digest != _digest(about, rounds, vectors):
        raise DataError("damaged", path, found="other values", allowed="those of its digest")
    return about, rounds, vectors


def _digest(about: Mapping[str, str], rounds: IntArray, vectors: Vectors) -> str:
    words = json.dumps(dict(about), sort_keys=True).encode()
    return hashlib.sha256(words + rounds.tobytes() + vectors.tobytes()).hexdigest()


# --- as an engine has it --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptStores:
    """The coordinates that a client keeps of its model, and what it stores of its own. In its
    file they are one vector, the coordinates first."""

    parts: ClientStore
    own: ClientStore

    @classmethod
    def of(cls, parts: Keep | None, own: Keep | None) -> KeptStores:
        """Stores that hold nothing yet."""
        made = cls(ClientStore(), ClientStore())
        for store, keep in ((made.parts, parts), (made.own, own)):
            if keep is not None:
                store.begin(keep)
        return made

    @property
    def _used(self) -> list[tuple[ClientStore, int]]:
        """The stores that hold something, and how many values of a client."""
        stores = (self.parts, self.own)
        return [(store, store.keep.size) for store in stores if store.keep is not None]

    def put(self, client: int, vector: Vectors) -> None:
        """Store what a client has.

        Example:
            >>> stores = KeptStores.of(Keep(((4, 6),)), Keep(((0, 1),)))
            >>> stores.put(3, np.array([1, 2, 3], np.float32))
            >>> stores.own.get(np.array([3])).tolist(), stores.vector(3).tolist()
            ([[3.0]], [1.0, 2.0, 3.0])
        """
        begin = 0
        for store, size in self._used:
            store.put(np.array([client]), vector[None, begin : begin + size])
            begin += size

    def vector(self, client: int) -> Vectors | None:
        """What a client has, float32 ``[s]``; ``None`` if it never trained."""
        ids = np.array([client])
        stores = [store for store, _ in self._used]
        if not all(store.has_stored(ids).all() for store in stores):
            return None
        return np.concatenate([store.get(ids)[0] for store in stores])


# --- the model that serves a client ---------------------------------------------------------------

SERVED_FILE = "served.safetensors"
_SERVED_FORMAT = "coterie-served-1"  # what the file is, with the version of its format


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model that serves a client, by the names of its tensors.

    Args:
        group: the client's group, -1 for none.
        by: how it came to the group, in words.
        round: after which it was sent, from 0.
    """

    tensors: Mapping[str, NDArray[Any]]
    group: int
    by: str
    round: int

    @classmethod
    def of(cls, layout: Layout, vector: Tensor, group: int, by: str, round: int) -> ServedModel:
        """A model as it is sent."""
        tensors = state_dict(layout, vector)
        # Contiguous copies: a slice would be saved as the bytes that it begins with.
        arrays = {name: np.ascontiguousarray(one.numpy()) for name, one in tensors.items()}
        return cls(arrays, group, by, round)

    def write(self, path: Path) -> None:
        """Write the file so that it is the old one or the new one, whole."""
        about = {
            "what": _SERVED_FORMAT,
            "group": str(self.group),
            "by": self.by,
            "round": str(self.round),
        }
        replace_private(path, save(dict(self.tensors), {"coterie": json.dumps(about)}))

    @classmethod
    def read(cls, path: Path) -> ServedModel:
        try:
            with safe_open(path, framework="numpy") as file:
                about = read_json((file.metadata() or {})["coterie"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if about["what"] != _SERVED_FORMAT:
                raise ValueError(about["what"])
            return cls(tensors, int(about["group"]), str(about["by"]), int(about["round"]))
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            got = first_line(error)
            raise DataError("cannot-be-read", path, found=got, allowed=SERVED_FILE) from None
