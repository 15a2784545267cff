"""What the clients of a simulation keep, as arrays beside the state in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from coterie.clients.clients import Clients
from coterie.core.keep import ClientStore, KeptState

# The names in a checkpoint: a field that is renamed is no longer found in older ones.
KEPT = tuple(field.name for field in fields(KeptState))
OWN_MODELS = "own_models."


def kept_arrays(clients: Clients) -> dict[str, Any]:
    """The arrays of what clients keep, by their names in a checkpoint; empty if they keep nothing."""
    found: dict[str, Any] = {}
    for prefix, store in _stores(clients).items():
        kept = store.state()
        # Most methods keep nothing, and their checkpoints need no empty arrays.
        if len(kept.ids):
            found |= {f"{prefix}{name}": getattr(kept, name) for name in KEPT}
    return found


def restore_kept(clients: Clients, extra: Mapping[str, Any]) -> None:
    """Give clients back what they kept."""
    for prefix, store in _stores(clients).items():
        names = [f"{prefix}{name}" for name in KEPT]
        if all(name in extra for name in names):
            store.restore(KeptState(*(extra[name] for name in names)))


def kept_state(extra: Mapping[str, Any], prefix: str = "") -> KeptState:
    """What clients keep of their models, from what a checkpoint holds beside the state; nothing for
    most methods.

    Args:
        prefix: `OWN_MODELS` for what they store for a model of their own.
    """
    names = [f"{prefix}{name}" for name in KEPT]
    if all(name in extra for name in names):
        return KeptState(*(extra[name] for name in names))
    return KeptState(
        np.empty(0, np.int64), np.empty((0, 0), np.float32), np.empty((0, 2), np.int64)
    )


def _stores(clients: Clients) -> dict[str, ClientStore]:
    """What the clients of a simulation store, by the beginning of its names in a checkpoint."""
    stores = {"": clients.stores.parts, OWN_MODELS: clients.stores.own_models}
    if clients.stores.networks is not None:
        stores["local_networks."] = clients.stores.networks
    return stores
