"""Real clients through Flower. Only this package, ``coterie.flower.app``, ``coterie.flower.strategy``,
``coterie.flower.client_mods`` and ``coterie.flower.processes.supernode`` know of Flower.

What a message holds is listed in ``docs/privacy.md``.
"""

from coterie.engines.flower.engine import FlowerEngine
from coterie.engines.flower.exchange import ExchangeObserver
from coterie.engines.flower.messages import (
    Answered,
    column_statistics,
    read_request,
    requests_in,
    run_name,
    write_answers,
    write_failure,
    write_identity,
)
from coterie.engines.flower.register import ClientRegister, Terms

__all__ = [
    "Answered",
    "ClientRegister",
    "ExchangeObserver",
    "FlowerEngine",
    "Terms",
    "column_statistics",
    "read_request",
    "requests_in",
    "run_name",
    "write_answers",
    "write_failure",
    "write_identity",
]
