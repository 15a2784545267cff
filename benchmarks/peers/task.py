"""What every peer's worker shares: the task, and the lines it speaks with the script that drives
it. Needs only NumPy.

A worker reads one file: pooled samples, the clients of each round, the order of their samples in
each epoch, and the first model as a flat vector. It says when it is ready, trains the round it is
told the number of, and says how long it took.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np


class Task:
    """FedAvg as every worker is to do it.

    Attributes: ``x [S, ...]`` float32, ``y [S]`` int64, ``w0 [d]``; ``model``; ``lr``, ``batch``,
    ``epochs``.
    """

    def __init__(self, path: str) -> None:
        with np.load(path) as file:
            held = {name: file[name] for name in file.files}
        self.x = held["x"]
        self.y = held["y"]
        self.w0 = held["w0"]
        self.model = str(held["model"])
        self.lr = float(held["lr"])
        self.batch = int(held["batch"])
        self.epochs = int(held["epochs"])
        self._cohort = held["cohort"]
        self._at = held["at"]
        self._rows = held["rows"]
        self._order = held["order"]

    @property
    def clients(self) -> int:
        """Clients in a round."""
        return self._cohort.shape[1]

    def client(self, round: int, number: int) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
        """Of one client of a round: its id, its inputs and labels, and the order of each epoch
        ``[E, n]``."""
        id, (start, stop) = int(self._cohort[round, number]), self._at[round, number]
        rows = self._rows[start:stop]
        order = self._order[start * self.epochs : stop * self.epochs].reshape(
            self.epochs, stop - start
        )
        return id, self.x[rows], self.y[rows], order


def wait_for_round(round: int) -> bool:
    """Wait to be told to run a round; ``False`` at the end."""
    line = sys.stdin.readline()
    assert line.strip() in ("", "end", str(round)), line
    return line.strip() == str(round)


def say(*words: object) -> None:
    """A line for the driver, whatever else a library prints."""
    print("\n##", *words, flush=True)


def serve(run: Callable[[int], np.ndarray], out: str) -> None:
    """Run rounds as told; the model after the first goes to the file ``out``."""
    say("ready")
    round = 0
    while wait_for_round(round):
        begun = time.perf_counter()
        vector = run(round)
        say("done", time.perf_counter() - begun)
        if round == 0:
            np.save(out, vector)
        round += 1
