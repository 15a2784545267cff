"""How clients are reached. Engines have never heard of groups."""

from coterie.clients.clients import Clients
from coterie.clients.ledger import Ledger
from coterie.clients.validation import ReplyValidator
from coterie.engines.attacks import ATTACKS, Attack
from coterie.engines.attacks.attack import AttackingEngine, poisoned
from coterie.engines.keeping import KeepingEngine, RememberingEngine
from coterie.engines.own_models import OwnModelEngine
from coterie.engines.pool import PoolEngine
from coterie.engines.registry import ENGINES, Simulation, make_clients
from coterie.engines.simulation import SerialEngine
from coterie.engines.vmap import VmapEngine

__all__ = [
    "ATTACKS",
    "ENGINES",
    "Attack",
    "AttackingEngine",
    "Clients",
    "KeepingEngine",
    "Ledger",
    "OwnModelEngine",
    "PoolEngine",
    "RememberingEngine",
    "ReplyValidator",
    "SerialEngine",
    "Simulation",
    "VmapEngine",
    "make_clients",
    "poisoned",
]
