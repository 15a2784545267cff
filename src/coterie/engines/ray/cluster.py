"""A Ray cluster: how to join one, and how to leave this process as it was."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# Ray reads these when it is imported: it reports nothing to its makers, and leaves the variable
# alone by which this process finds its GPU.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
from ray.exceptions import RayError

from coterie.errors import ConfigError, first_line


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster, how much of it, and how long to wait for it.

    Args:
        address: ``auto`` for the one that runs on this machine; ``None``: that of ``RAY_ADDRESS``,
            else one is started here.
        workers: actors; default as many as nodes have cores for their threads, or GPUs where actors
            need one.
        retries: how often a client is run again after its actor was lost.
        patience: seconds without a single actor after which the run ends.
    """

    address: str | None = None
    workers: int | None = None
    retries: int = 3
    patience: float = 120.0


def connect(address: str | None, cores: int | None = None) -> bool:
    """Join a cluster, or start one with so many cores here; whether this process was in none
    before.

    Raises:
        ConfigError: if there is none at this address.
    """
    if ray.is_initialized():
        return False
    options: dict[str, Any] = {}
    if not address and not os.environ.get("RAY_ADDRESS"):
        options = {"num_cpus": cores, "include_dashboard": False}
    try:
        # Ray's own signal handlers would outlive the connection, so they are taken back at once.
        # Where nothing listens at `host:port`, Ray itself would wait a minute.
        host, colon, port = (address or "").rpartition(":")
        if colon and port.isdigit() and "/" not in host:
            socket.create_connection((host, int(port)), timeout=5).close()
        with _own_signals():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (RayError, ConnectionError, ValueError, RuntimeError, AssertionError, OSError) as error:
        what = f"cannot join ({first_line(error)})"
        expected = "a running cluster (ray start --head), or no address, to start one here"
        raise ConfigError(
            "unreachable", "engine.address", what, got=address, allowed=expected
        ) from error
    return True


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes over SIGTERM when it starts; the handlers of before are put back."""
    before: dict[signal.Signals, Any] = {}
    try:
        before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
        yield
    finally:
        for number, handler in before.items():
            try:
                signal.signal(number, handler)
            except ValueError:
                break  # not the main thread, in which nothing can have taken them
