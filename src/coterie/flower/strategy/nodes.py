"""Which nodes are there in a round, and their numbers as clients."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np
from flwr.serverapp import Grid

from coterie.core import BoolArray, IntArray, Key
from coterie.data import Population
from coterie.data.shifts import FederationSnapshot
from coterie.data.sources.files import DataForm
from coterie.engines.flower.register import Pause
from coterie.errors import QuorumError
from coterie.flower.server.attendance import came_and_went, stand_in_population

log = logging.getLogger("flwr")
_LEAST_POLL = 0.1  # seconds
_FORM = DataForm((1,), ())  # of the made-up sample that each node has
SPARE = 10  # places for nodes that come later, in addition to as many as begin


class NodePlaces:
    """The nodes of a grid. Each has a number from when it is first seen, to the end of the run.

    It stands where a simulation has its shift: both change who is present.

    Args:
        ids: node ids by their numbers; nodes that come are added.
        least: nodes without which no round begins.
        longest: seconds to wait for them.
    """

    def __init__(self, grid: Grid, ids: list[int], least: int, longest: float) -> None:
        self.grid = grid
        self.ids = ids
        self.least = least
        self.longest = longest
        self.places: int | None = None
        self.present: IntArray = np.empty(0, np.int64)
        # Called with all node ids and the places before a new number is used.
        self.joined: Callable[[list[int], int], None] = lambda ids, places: None
        self._left_out: set[int] = set()

    def gather(self) -> None:
        """Wait for enough nodes, and number those that are new.

        Raises:
            QuorumError: if there are too few when the time is over.
        """
        pause = Pause(time.monotonic() + self.longest, _LEAST_POLL)
        there = self._look()
        if there < self.least:
            log.info("coterie: waiting for nodes: %d connected, %d needed", there, self.least)
        while there < self.least:
            if pause.over:
                what = f"too few nodes after {self.longest:g} s"
                allowed = f"at least {self.least}"
                raise QuorumError(
                    "too-few", "min_available_nodes", what, got=there, allowed=allowed
                )
            pause.wait()
            there = self._look()

    def _look(self) -> int:
        """Number the nodes that are there; returns how many have a number."""
        there = sorted(self.grid.get_node_ids())
        known = set(self.ids)
        before = len(known)
        for node in there:
            if node in known or node in self._left_out:
                continue
            if self.places is not None and len(self.ids) >= self.places:
                self._left_out.add(node)
                log.warning(
                    "coterie: node %d does not take part: all %d places are taken (max_nodes)",
                    node,
                    self.places,
                )
            else:
                self.ids.append(node)
        if self.places is not None and len(self.ids) > before:
            self.joined(self.ids, self.places)
        number = {node: at for at, node in enumerate(self.ids)}
        self.present = np.array(sorted(number[node] for node in there if node in number), np.int64)
        return len(self.present)

    def sample(self, fraction: float, least: int, key: Key) -> IntArray:
        """A share of the nodes that are there, drawn without replacement, and at least so many."""
        if fraction == 0:
            return self.present[:0]
        count = min(len(self.present), max(int(len(self.present) * fraction), least))
        rng = key.generator()
        return np.sort(rng.choice(self.present, count, replace=False))

    def population(self) -> Population:
        """What the rounds have to know of the clients: who can train."""
        assert self.places is not None, "the run has begun"
        trains = np.arange(self.places) < len(self.ids)
        return stand_in_population(trains, np.zeros_like(trains), list(map(str, self.ids)), _FORM)

    def __call__(
        self,
        snapshot: FederationSnapshot,
        initial: Population,
        round: int,
        has_group: BoolArray,
        key: Key,
    ) -> FederationSnapshot:
        """The federation in this round. See ``coterie.data.shifts.Shift``."""
        before = set(self.present.tolist())
        # Those of the first round were gathered before it.
        if round:
            self.gather()
        now = set(self.present.tolist())
        joined = [str(self.ids[number]) for number in sorted(now - before)]
        left = [str(self.ids[number]) for number in sorted(before - now)]
        events = came_and_went(joined, left)
        assert self.places is not None, "the run has begun"
        present = np.zeros(self.places, bool)
        present[self.present] = True
        return FederationSnapshot(self.population(), present, events)
