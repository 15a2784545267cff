"""What stays with one client of a federation, as its engine and as its file have it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.core.keep import ClientStore, Keep, Vectors


@dataclass(frozen=True, slots=True)
class KeptStores:
    """The coordinates that a client keeps of its model, and what it stores beside its model. In its
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
        """What a client has, float32 ``[s]``; ``None`` for one that never trained."""
        ids = np.array([client])
        stores = [store for store, _ in self._used]
        if not all(store.met(ids).all() for store in stores):
            return None
        return np.concatenate([store.get(ids)[0] for store in stores])
