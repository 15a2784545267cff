"""Distribution shifts: who holds what, who is present, and what labels mean.

A shift is applied at the start of a round. It is a pure function of the snapshot of the round
before, the population before any shift, and a key. It moves index arrays and copies no sample. A
client whose data did not change keeps the *identical* arrays, so that engines and caches can see
what changed. A run that resumes goes on from the saved snapshot.

`SHIFTS` holds the factories by name; the table ``[shift]`` of a configuration names one,
``[[shift]]`` several. To add one, write its file next to these and name it in `SHIFTS`.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from coterie.config import registry
from coterie.data.shifts.concepts import concepts, rotate_labels
from coterie.data.shifts.incremental import incremental
from coterie.data.shifts.presence import arrivals, departures
from coterie.data.shifts.shift import BEFORE, RoundSchedule, Shift, combined
from coterie.data.shifts.snapshot import Event, FederationSnapshot, Mask
from coterie.data.shifts.swaps import swap_all, swap_part

__all__ = [
    "BEFORE",
    "SHIFTS",
    "Event",
    "FederationSnapshot",
    "Mask",
    "RoundSchedule",
    "Shift",
    "arrivals",
    "combined",
    "concepts",
    "departures",
    "incremental",
    "make_shift",
    "rotate_labels",
    "swap_all",
    "swap_part",
]

SHIFTS: MappingProxyType[str, Callable[..., Shift]] = MappingProxyType(
    {
        "swap_all": swap_all,
        "swap_part": swap_part,
        "incremental": incremental,
        "arrivals": arrivals,
        "departures": departures,
        "rotate_labels": rotate_labels,
        "concepts": concepts,
    }
)


def make_shift(tables: Sequence[Mapping[str, Any]]) -> Shift | None:
    """The shift of some tables, each with its ``kind`` and its options: ``None`` without tables,
    the shifts one after another where there are several."""
    made = [registry.build("shift", table) for table in tables]
    if not made:
        return None
    # A single shift draws from the round's own stream, as `combined` would not let it.
    if len(made) == 1:
        return made[0]
    return combined(made)
