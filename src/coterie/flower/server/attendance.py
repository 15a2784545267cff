"""Who the clients of a run are, with their names on disk, and who is connected in a round."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.core.keys import Key
from coterie.data import Population
from coterie.data.partitions import Partition
from coterie.data.shifts import FederationSnapshot
from coterie.data.sources.files import DataForm
from coterie.engines.flower import FlowerEngine
from coterie.errors import CheckpointError, QuorumError
from coterie.files import MALFORMED, read_json
from coterie.flower.server.live import LiveState
from coterie.flower.settings import DeploymentSettings
from coterie.runs.folder.digests import NODES
from coterie.runs.folder.store import RunFolder
from coterie.terminal import counted, duration


@dataclass(frozen=True, slots=True)
class NodesFile:
    """The file ``nodes.json`` of a run: names of clients, and what they work on.

    A name is on disk before its number is used. So after a kill, too, a client that comes back has
    the number, and the group, that it had.
    """

    folder: RunFolder
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    target_shape: tuple[int, ...] = ()

    def read(self) -> tuple[str, list[str]]:
        """The run's name and the clients' names; a new name and no client without a file."""
        data = self.folder.file(NODES)
        if data is None:
            # The run's name is drawn, not made from the seed: clients keep files under it, and a
            # second run of the same seed must not find what the first one left.
            return secrets.token_hex(8), []
        try:
            kept = read_json(data)
            return str(kept["run"]), [str(name) for name in kept["clients"]]
        except MALFORMED:
            file = self.folder.path / NODES
            raise CheckpointError("damaged", file, found="no list of clients") from None

    def write(self, run: str, names: Sequence[str]) -> None:
        """Write the file so that it is the old one or the new one, whole."""
        record = {
            "run": run,
            "shape": self.shape,
            "classes": self.classes,
            "target_shape": self.target_shape,
            "clients": list(names),
        }
        text = json.dumps(record, ensure_ascii=False, indent=1) + "\n"
        self.folder.write({NODES: text.encode("utf-8")})


def names_only(names: Sequence[str], clients: int) -> Partition:
    """A partition with the names of clients, for commands that read a run's folder, and no samples."""
    nothing = (np.empty(0, np.int64),) * clients
    return Partition(nothing, nothing, padded(names, clients))


def padded(names: Sequence[str], clients: int) -> tuple[str, ...]:
    """Names of clients, and empty ones for those that have not come yet."""
    return (*names, *[""] * (clients - len(names)))


# --- before a round -------------------------------------------------------------------------------

BoolArray = NDArray[np.bool_]
Rows = Sequence[Mapping[str, Any]]
MOST_NAMED = 3  # clients that a line names, in place of their number


@dataclass(slots=True)
class Attendance:
    """Waits for enough clients before a round, and says who came and who left.

    It stands where a simulation has its shift: both change who is present and what clients hold.
    """

    engine: FlowerEngine
    settings: DeploymentSettings
    live: LiveState | None = None
    say: Callable[[str], None] = lambda line: None
    last: BoolArray | None = None  # [N], who was present in the round before
    numbered: int = 0  # clients that had a number in the round before
    awaited: str = ""  # who was last said to be waited for
    expected: int = 0  # clients for which the next round waits, in addition to `min_clients`

    @classmethod
    def begin(
        cls,
        engine: FlowerEngine,
        settings: DeploymentSettings,
        rows: Rows,
        live: LiveState,
        say: Callable[[str], None],
    ) -> Attendance:
        """That of a process which begins a run, or goes on after these rounds."""
        attendance = cls(engine, settings, live, say, expected=settings.start_clients or 0)
        if rows:
            names = engine.register.names
            there = who_took_part(names, rows)
            attendance.expected = min(attendance.expected, len(there))
            attendance.numbered = len(names)
            attendance.last = np.zeros(engine.terms.capacity, bool)
            attendance.last[[names.index(name) for name in there]] = True
        return attendance

    def gather(self, round: int) -> None:
        """Wait for enough clients; the first time also for those that are expected, without whom the
        round begins after the same time."""
        least = self.settings.min_clients
        longest = self.settings.longest_wait
        known = set(self.engine.register.names)
        # Seconds since 1970, which other processes read.
        end = time.time() + longest
        self.awaited = ""
        came = self.engine.gather(least, longest, lambda: self._announce(round, end), self.expected)
        register = self.engine.register
        for name in sorted(known & set(came)):
            register.say(f"client {name!r} is back")
        able = register.able
        if able < least:
            what = f"too few clients before round {round + 1} after {longest:g} s"
            expected = f"at least {least}"
            error = QuorumError("too-few", "min_clients", what, got=able, allowed=expected)
            raise error.located("deploy.toml")
        missing = self.expected - register.answered
        if missing > 0:
            self.say(f"round {round + 1} begins without {self._missing(missing)}")
        self.expected = 0
        if self.live is not None:
            self.live.work(self._connected())

    def _announce(self, round: int, end: float) -> None:
        """Say who is waited for, and for how long, wherever that has changed."""
        register = self.engine.register
        least = max(self.settings.min_clients, self.expected)
        missing = self.settings.min_clients - register.able
        awaited = self._missing(max(missing, self.expected - register.answered))
        if awaited == self.awaited:
            return
        self.awaited = awaited
        if self.live is not None:
            self.live.wait(round, least, awaited, end, register.there)
        limit = duration(max(0.0, end - time.time()))
        self.say(f"waiting for {awaited} to connect, for at most {limit}")

    def _missing(self, count: int) -> str:
        """Those that are waited for: by name where no others could come, else how many."""
        register = self.engine.register
        there = register.there
        gone = [
            name
            for client, name in enumerate(register.names)
            if register.trains[client] and name not in there
        ]
        if len(gone) == count <= MOST_NAMED:
            return ", ".join(gone)
        return counted(count, "client")

    def _connected(self) -> list[str]:
        return self._names(self.engine.register.present)

    def population(self) -> Population:
        """What the rounds have to know of the clients: who can train, and who can be evaluated."""
        register = self.engine.register
        return stand_in_population(
            register.trains, register.tests, register.names, self.settings.form
        )

    def is_crowded(self) -> bool:
        """Whether clients have come for which the run has no place yet."""
        register = self.engine.register
        if register.terms.closed:
            return False
        # Who answers by now has its place in the next round.
        register.poll()
        return register.wanted > register.terms.capacity

    def grow(self, places: int) -> None:
        """Have so many places for clients."""
        more = places - self.engine.terms.capacity
        self.engine.grow(places)
        if self.last is not None:
            self.last = np.pad(self.last, (0, more))

    def __call__(
        self,
        snapshot: FederationSnapshot,
        initial: Population,
        round: int,
        has_group: BoolArray,
        key: Key,
    ) -> FederationSnapshot:
        """The federation in this round. See ``coterie.data.shifts.Shift``."""
        register = self.engine.register
        before = self.last
        # No client joins in the first round: all that are there by then belong to the beginning.
        if before is None:
            before = register.present
        self.gather(round)
        present = register.present
        if self.last is not None:
            for name in register.names[self.numbered :]:
                register.say(f"client {name!r} joined")
        self.last = present
        self.numbered = len(register.names)
        joined = self._names(present & ~before)
        left = self._names(before & ~present)
        # The population is made anew: a node says only when it comes what its client holds.
        return FederationSnapshot(self.population(), present, came_and_went(joined, left))

    def _names(self, chosen: BoolArray) -> list[str]:
        return [self.engine.register.names[client] for client in np.flatnonzero(chosen)]


def came_and_went(joined: Sequence[str], left: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """The events of a round in which these clients joined and left."""
    events = (("joined", joined), ("left", left))
    return tuple({"kind": kind, "clients": list(names)} for kind, names in events if names)


def who_took_part(names: Sequence[str], rows: Rows) -> list[str]:
    """The clients that were connected in the last of these rounds, of all that had a number.

    Example:
        >>> left = {"attendance": [{"kind": "left", "clients": ["a", "b"]}]}
        >>> back = {"attendance": [{"kind": "joined", "clients": ["b"]}]}
        >>> who_took_part(["a", "b", "c"], [{"attendance": []}, left, back])
        ['b', 'c']
    """
    away: set[str] = set()
    for row in rows:
        for event in row["attendance"]:
            if event["kind"] == "left":
                away |= set(event["clients"])
            else:
                away -= set(event["clients"])
    return [name for name in names if name not in away]


def stand_in_population(
    trains: BoolArray, tests: BoolArray, names: Sequence[str], form: DataForm
) -> Population:
    """A population with one made-up sample, held by every client that has samples of that split.

    The server knows no samples. Rounds ask a population only who can train and be evaluated.
    """

    def held(able: BoolArray) -> tuple[NDArray[np.int64], ...]:
        # Row 0 for a client that has samples, no row for any other.
        return tuple(np.zeros(int(one), np.int64) for one in able)

    return Population(
        torch.zeros(1, *form.shape),
        form.targets(1),
        held(trains),
        held(tests),
        len(form.classes),
        padded(names, len(trains)),
    )
