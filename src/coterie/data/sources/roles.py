"""What the columns of a user's file are for."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.core.arrays import IntArray
from coterie.data.sources.checks import Array
from coterie.data.sources.columns import Columns
from coterie.data.sources.labels import one_per_row


@dataclass(frozen=True, slots=True)
class Roles:
    """What columns of a file are for.

    Args:
        features: inputs: a column, a list of them, or ``*``.
        label: the column of labels, or several.
        client: the column that names the client; the default one may be absent.
        split: the column of ``train`` and ``test``; the default one may be absent.
    """

    features: str | list[str]
    label: str | list[str]
    client: str = "client"
    split: str = "split"

    @property
    def labels(self) -> list[str]:
        """The columns of labels."""
        return [self.label] if isinstance(self.label, str) else self.label

    def owners(self, columns: Columns, order: IntArray | None) -> dict[str, Array]:
        """The client of each row, under the name of the column and under ``client``.

        Args:
            columns: of the file.
            order: of the rows; ``None``: as in the file.
        """
        # The default column may be absent; one that the user named must be there.
        if self.client not in columns.names and self.client == "client":
            return {}
        owners = one_per_row(columns, columns.check(self.client, "client"))
        if order is not None:
            owners = owners[order]
        # Under both names, so that partitions find the clients whatever the file calls them.
        return dict.fromkeys({self.client, "client"}, owners)
