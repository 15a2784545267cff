"""Who the real clients of a run are: their names in the order of their numbers, on disk.

Used by `coterie.deploy.serve`, the server of a federation of real clients.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coterie.data.partitions import Partition
from coterie.errors import CheckpointError
from coterie.runs.folder.digests import NODES
from coterie.runs.folder.files import MALFORMED
from coterie.runs.folder.store import RunFolder


@dataclass(frozen=True, slots=True)
class NodesFile:
    """The file ``nodes.json`` of a run: names of clients, and what they work on.

    A name is on disk before its number is used. So after a kill, too, a client that comes back has
    the number, and the group, that it had.
    """

    folder: RunFolder
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    target_shape: tuple[int, ...] = ()

    def read(self) -> tuple[str, list[str]]:
        """The run's name and the clients' names; a new name and no client without a file."""
        data = self.folder.file(NODES)
        if data is None:
            # The run's name is drawn, not made from the seed: clients keep files under it, and a
            # second run of the same seed must not find what the first one left.
            return secrets.token_hex(8), []
        try:
            kept = json.loads(data)
            return str(kept["run"]), [str(name) for name in kept["clients"]]
        except (*MALFORMED, RecursionError):
            what = "damaged, got no list of clients"
            raise CheckpointError(f"{self.folder.path / NODES}: {what}; expected one") from None

    def write(self, run: str, names: Sequence[str]) -> None:
        """Write the file so that it is the old one or the new one, whole."""
        record = {
            "run": run,
            "shape": self.shape,
            "classes": self.classes,
            "target_shape": self.target_shape,
            "clients": list(names),
        }
        text = json.dumps(record, ensure_ascii=False, indent=1) + "\n"
        self.folder.write({NODES: text.encode("utf-8")})


def names_only(names: Sequence[str], clients: int) -> Partition:
    """A partition that has the clients' names and none of their samples.

    Commands that read a run's folder find the names there.
    """
    nothing = (np.empty(0, np.int64),) * clients
    return Partition(nothing, nothing, padded(names, clients))


def padded(names: Sequence[str], clients: int) -> tuple[str, ...]:
    """Names of clients, and empty ones for those that have not come yet."""
    return (*names, *[""] * (clients - len(names)))
