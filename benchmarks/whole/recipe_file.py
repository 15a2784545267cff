"""What every program reads, and the line that it ends with. Needs only NumPy."""

from __future__ import annotations

import numpy as np


class Recipe:
    """FedAvg as every program is to do it.

    Attributes: ``x [S, ...]`` float32, ``y [S]`` int64; ``test [T]``, the rows of all test samples;
    ``network``, ``epochs``, ``batch``, ``lr``, ``rounds``, ``cohort``, and ``every``, the rounds
    from one test to the next.
    """

    def __init__(self, path: str) -> None:
        with np.load(path) as file:
            held = {name: file[name] for name in file.files}
        self.x = held["x"]
        self.y = held["y"]
        self.test = held["test"]
        self.network = str(held["network"])
        self.epochs = int(held["epochs"])
        self.batch = int(held["batch"])
        self.lr = float(held["lr"])
        self.rounds = int(held["rounds"])
        self.cohort = int(held["cohort"])
        self.every = int(held["every"])
        self._rows = held["rows"]
        self._ends = held["ends"]

    @property
    def clients(self) -> int:
        """How many there are."""
        return len(self._ends)

    @property
    def classes(self) -> int:
        """How many there are."""
        return int(self.y.max()) + 1

    def client(self, number: int) -> np.ndarray:
        """The rows of a client's training samples."""
        begin = self._ends[number - 1] if number else 0
        return self._rows[begin : self._ends[number]]


def report(accuracy: float) -> None:
    """A program's last line: the accuracy of the last test."""
    print(f"\n## accuracy {accuracy}", flush=True)
