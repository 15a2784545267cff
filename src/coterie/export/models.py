"""The models of an export: a file for each, and which one serves which client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.served import Served

NO_GROUP = "no-group"


@dataclass(frozen=True, slots=True)
class ExportedModels:
    """The models of an export.

    Args:
        vectors: name of the file, without its ending -> flat parameters ``[d]``.
        row: int64 ``[N]``, which of them serves each client.
        groups: how many groups there are.
    """

    vectors: Mapping[str, Tensor]
    row: IntArray
    groups: int

    @classmethod
    def of(cls, groups: Groups, served: Served) -> ExportedModels:
        """Those of a state, and what serves its clients."""
        names = [f"group-{group}" for group in range(groups.k)]
        # The mean of all groups is exported only if some client is served by it.
        if (groups.member < 0).any():
            names.append(NO_GROUP)
        return cls(dict(zip(names, served.models, strict=False)), served.row, groups.k)

    @property
    def any_without_group(self) -> bool:
        """Whether some clients have no group."""
        return NO_GROUP in self.vectors

    def group_of(self, name: str) -> int:
        """The group of a model's name, -1 for that of clients without a group."""
        if name == NO_GROUP:
            return -1
        return int(name.removeprefix("group-"))

    def name_for(self, client: int) -> str:
        """The name of the model that serves a client."""
        return list(self.vectors)[self.row[client]]
