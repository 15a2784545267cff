"""How clients are reached. Engines have never heard of groups."""

from coterie.engines.door import Door, Ledger, Quorum
from coterie.engines.faults import Faults, FaultyEngine
from coterie.engines.gate import Gate
from coterie.engines.make import ENGINES, make_door
from coterie.engines.pool import PoolEngine
from coterie.engines.serial import SerialEngine

__all__ = [
    "ENGINES",
    "Door",
    "Faults",
    "FaultyEngine",
    "Gate",
    "Ledger",
    "PoolEngine",
    "Quorum",
    "SerialEngine",
    "make_door",
]
