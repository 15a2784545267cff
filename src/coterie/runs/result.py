"""What a run in Python leaves: its rows, its groups, and the network of each client."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from coterie.core.arrays import IntArray
from coterie.core.client_store import KeptState
from coterie.core.groups import Groups
from coterie.core.served import Served
from coterie.core.vectors import Layout, state_dict
from coterie.headline import ACCURACY, Headline

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Result:
    """What a run leaves: a row per round, the last state, and the way back to modules.

    Args:
        rows: one dictionary per round, as in ``rounds.jsonl``.
        state: the groups after the last round.
        module: the network; its own parameters are the start.
        served: which model serves each client.
        kept: what clients kept of their models, which is a part of what serves them; nothing for
            the methods of Coterie.
        headline: what the run is measured by.
    """

    rows: Sequence[dict[str, Any]]
    state: Groups
    module: nn.Module
    served: Served
    kept: KeptState
    headline: Headline = ACCURACY

    @property
    def accuracy(self) -> list[float]:
        """Weighted accuracy per evaluated round, over the clients with a group in it, as
        fractions; of a classification. Other tasks have `scores`."""
        return [row["accuracy"] for row in self.rows if row.get("accuracy") is not None]

    @property
    def scores(self) -> list[float]:
        """The headline of the task per evaluated round, over the clients with a group in it."""
        name = self.headline.name
        return [row[name] for row in self.rows if row[name] is not None]

    @property
    def groups(self) -> IntArray:
        """int64 ``[N]``, the group of each client, -1 without one."""
        return self.state.member

    def vector_for(self, client: int) -> Tensor:
        """The flat parameters that serve a client."""
        return self.kept.put_into(self.served.vector(client), client)

    def model_for(self, client: int) -> nn.Module:
        """The network that serves a client, ready to predict."""
        # A copy, since `module` holds the first weights, from which another run may start.
        module = copy.deepcopy(self.module)
        values = state_dict(Layout.of(module), self.vector_for(client))
        # Frozen parameters and integer buffers are in no flat vector; they stay as they are
        # in the copy.
        module.load_state_dict(values, strict=False)
        return module.eval()

    def frame(self) -> pd.DataFrame:
        """The rows as a pandas frame, one column per measure (nested ones joined by a dot)."""
        # Imported here: it takes a while, and most runs make no frame.
        import pandas as pd

        return pd.json_normalize(list(self.rows))
