"""One client at a time in this process: the reference, and the debugger."""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.process import threads
from coterie.core.work import Train
from coterie.engines.failures import ClientError, failure_line
from coterie.engines.simulation import SimulationEngine


class SerialEngine(SimulationEngine):
    """Trains clients one after another; stops asking at the deadline.

    Args:
        runner: the population, the module and the solver.
        round_timeout: seconds after which clients not yet trained are left out, ``None``: wait for
            all.
        threads: how many the training of one client uses.
    """

    def train(
        self, work: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        end = self.deadline()
        delta = torch.empty(len(ids), models.shape[1])
        size = np.zeros(len(ids))
        loss = np.zeros(len(ids))
        done = np.zeros(len(ids), bool)
        # As many as in the other engines' processes: with more or fewer, sums have other bits.
        with threads(self.threads):
            for at, (client, row) in enumerate(zip(ids.tolist(), which.tolist(), strict=True)):
                if end is not None and time.monotonic() > end:
                    break
                try:
                    trained = self.runner.train(work, client, models[row], delta[at], key)
                except Exception as error:
                    raise ClientError(failure_line(client, key, error)) from error
                size[at] = trained.size
                loss[at] = trained.loss
                done[at] = True
        fields = {
            "delta": work.uploaded(delta.numpy()[done]),
            "size": size[done],
            "loss": loss[done],
        }
        return [Reply(key.round, ids[done], fields, key.purpose)]

    def close(self) -> None:
        """Nothing: there are no processes."""
