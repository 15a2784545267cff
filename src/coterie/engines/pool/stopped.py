"""Workers that a signal stopped: they live and answer nothing, so a run would wait for ever."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import psutil

from coterie.engines.silence import Silence
from coterie.terminal import warn

LOOK = 1.0  # seconds between two looks
SAID = 5  # looks in a row that find a worker stopped, until a line says so
KILLED = 60  # and until it is killed, and so replaced


def wait_for(pipes: Sequence[Any], processes: Sequence[Any], end: float | None) -> list[Any]:
    """Those of some pipes and sentinels that are ready, none if the time is over. A worker that is
    stopped for long is named, and then killed, which its sentinel tells.

    The state that the system gives is no guess: a worker that computes or sleeps, however slowly,
    is not stopped. Looks are counted and not seconds, so that no worker is killed for the time in
    which this process was stopped itself, as by Ctrl-Z.
    """
    seen = [0] * len(processes)
    silence = Silence()
    while True:
        left = LOOK
        if end is not None:
            left = min(LOOK, max(0.0, end - time.monotonic()))
        ready = wait(pipes, left)
        if ready or left < LOOK:
            return ready
        silence.look()
        for number, process in enumerate(processes):
            seen[number] = seen[number] + 1 if _is_stopped(process) else 0
            if seen[number] == SAID:
                warn(
                    f"worker process {process.pid} is stopped, and the run is waiting for it. "
                    f"Run `kill -CONT {process.pid}` to continue it; otherwise it will be "
                    f"replaced in {(KILLED - SAID) * LOOK:g} s"
                )
            if seen[number] == KILLED:
                process.kill()


def _is_stopped(process: Any) -> bool:
    with suppress(psutil.Error):
        return bool(psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    # It has ended, which its sentinel tells.
    return False


def give_up_sending(pipe: Connection) -> None:
    """Let what is sent through a pipe fail if nobody reads for as long: a job may be larger than
    the pipe, and a stopped worker does not read."""
    # Elsewhere pipes are no sockets.
    if os.name == "posix":
        with socket.socket(fileno=os.dup(pipe.fileno())) as end:
            patience = struct.pack("ll", int(KILLED * LOOK), 0)  # a timeval
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
