"""Attacks that a simulation can try on a method, `ATTACKS` by name.

An attack defines which clients are attackers, what they do to their data before the run, and what
they send in place of their update. `coterie.engines.attacks.attack` wraps any engine to carry it
out. All attackers of a request work together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from coterie.engines.attacks.attack import Attack, Forge, Poison
from coterie.engines.attacks.changed_data import backdoor, collusion, label_flip, triggered
from coterie.engines.attacks.forged_updates import alie, ipm, noise, scaling, sign_flip

ATTACKS: Mapping[str, Callable[..., Attack]] = MappingProxyType(
    {
        "sign_flip": sign_flip,
        "scaling": scaling,
        "noise": noise,
        "label_flip": label_flip,
        "alie": alie,
        "ipm": ipm,
        "backdoor": backdoor,
        "collusion": collusion,
    }
)

__all__ = [
    "ATTACKS",
    "Attack",
    "Forge",
    "Poison",
    "alie",
    "backdoor",
    "collusion",
    "ipm",
    "label_flip",
    "noise",
    "scaling",
    "sign_flip",
    "triggered",
]
