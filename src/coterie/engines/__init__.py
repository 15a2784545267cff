"""How clients are reached. Engines have never heard of groups."""

from coterie.clients.clients import Clients
from coterie.clients.ledger import Ledger
from coterie.clients.quorum import Quorum
from coterie.clients.validation import ReplyValidator
from coterie.engines.attacking import AttackingEngine, poisoned
from coterie.engines.attacks import ATTACKS, Attack
from coterie.engines.faults import Faults, FaultyEngine
from coterie.engines.keeping import KeepingEngine
from coterie.engines.local_networks import RememberingEngine
from coterie.engines.make import make_clients
from coterie.engines.own_models import OwnModelEngine
from coterie.engines.pool import PoolEngine
from coterie.engines.registry import ENGINES, Simulation
from coterie.engines.serial import SerialEngine
from coterie.engines.vmap import VmapEngine

__all__ = [
    "ATTACKS",
    "ENGINES",
    "Attack",
    "AttackingEngine",
    "Clients",
    "Faults",
    "FaultyEngine",
    "KeepingEngine",
    "Ledger",
    "OwnModelEngine",
    "PoolEngine",
    "Quorum",
    "RememberingEngine",
    "ReplyValidator",
    "SerialEngine",
    "Simulation",
    "VmapEngine",
    "make_clients",
    "poisoned",
]
