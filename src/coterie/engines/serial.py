"""One client at a time in this process: the reference, and the debugger."""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.threads import one_thread
from coterie.core.work import Train
from coterie.engines.simulation import SimulationEngine
from coterie.errors import CoterieError
from coterie.local import LocalRunner


class ClientError(CoterieError):
    """A client's own code raised: which client, at what, in which round."""

    code = 2


def failure(id: int, key: Key, error: Exception) -> str:
    """The line that says whose code failed where."""
    return f"model.name: client {id}: training failed in round {key.round}: {error}"


class SerialEngine(SimulationEngine):
    """Trains clients one after another; stops asking at the deadline.

    Args:
        runner: the population, the module and the solver.
        round_timeout: seconds after which clients not yet trained are left out, ``None``: wait for
            all.
    """

    def __init__(self, runner: LocalRunner, round_timeout: float | None = None) -> None:
        super().__init__(runner)
        self.round_timeout = round_timeout

    def train(
        self, work: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        end = None if self.round_timeout is None else time.monotonic() + self.round_timeout
        delta = torch.empty(len(ids), models.shape[1])
        size = np.zeros(len(ids))
        loss = np.zeros(len(ids))
        done = np.zeros(len(ids), bool)
        with one_thread():
            for at, (id, row) in enumerate(zip(ids.tolist(), which.tolist(), strict=True)):
                if end is not None and time.monotonic() > end:
                    break
                try:
                    result = self.runner.train(work, id, models[row], delta[at], key)
                except Exception as error:
                    raise ClientError(failure(id, key, error)) from error
                size[at] = result.size
                loss[at] = result.loss
                done[at] = True
        fields = {
            "delta": work.uploaded(delta.numpy()[done]),
            "size": size[done],
            "loss": loss[done],
        }
        return [Reply(key.round, ids[done], fields, key.purpose)]

    def close(self) -> None:
        pass
