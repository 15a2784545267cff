"""The state of a federation, read from the folder of its run: by any process, at any moment."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coterie.config.toml_text import read
from coterie.errors import CheckpointError, ConfigError
from coterie.files import MALFORMED, read_json
from coterie.flower.operate.server_folder import added_nodes, nodes_file
from coterie.flower.operate.submit import last_run
from coterie.flower.processes.process import ProcessId, is_running
from coterie.flower.server.live import LIVE
from coterie.flower.server.scores import SameClients, same_clients
from coterie.flower.settings import DeploymentSettings
from coterie.runs.folder.digests import NODES
from coterie.runs.folder.store import RunFolder
from coterie.runs.published import is_private, published_state
from coterie.runs.state import RunState, read_state
from coterie.terminal import amount, counted, duration


@dataclass(frozen=True, slots=True)
class FederationStatus:
    """What is known of a run on real clients; a field is empty where it is not known, and a group
    is -1 for none."""

    state: RunState
    live: Mapping[str, Any]
    running: bool
    names: Sequence[str]
    groups: Sequence[int]
    # Clients whose keys the operator removed.
    removed: Sequence[str] = ()
    # Whether single clients may be shown.
    shows_clients: bool = True

    def published(self) -> FederationStatus:
        """The same as a page may show it: of a private run no single client, nor who is asked."""
        if not is_private(self.state.config):
            return self
        shown = ("process", "doing", "connected", "waiting")
        live = {name: self.live[name] for name in shown if name in self.live}
        waiting = live.get("waiting")
        if waiting is not None:
            # A run that waits for few clients names them.
            missing = max(1, int(waiting["least"]) - len(live.get("connected") or ()))
            live["waiting"] = {**waiting, "awaited": counted(missing, "client")}
        return replace(
            self,
            state=published_state(self.state),
            live=live,
            names=(),
            groups=(),
            removed=(),
            shows_clients=False,
        )

    @property
    def sentence(self) -> str:
        """What the run does, in a sentence."""
        if self.state.over:
            return self._after_the_rounds
        at = f"Round {len(self.state.rows) + 1} of {self.state.rounds}"
        if not self.running:
            return f"{at}: no process writes this run; resume it with `coterie deploy run --resume`"
        waiting = self.live.get("waiting")
        if waiting is not None:
            until = self.until(waiting["until"])
            return f"{at}: waiting for {waiting['awaited']} to connect, {until}"
        exchange = self.exchange
        if exchange is not None:
            left = len(exchange["awaited"])
            asked = left + len(exchange["answered"]) + len(exchange["failed"])
            awaited = f"{left} of {counted(asked, 'client')}"
            work = work_name(exchange["kind"])
            return f"{at}: {work}, waiting for {awaited}, {self.until(exchange['until'])}"
        return f"{at}: the server is working"

    @property
    def _after_the_rounds(self) -> str:
        """What the run does when no round is left."""
        at = f"All {counted(self.state.rounds, 'round')} are complete"
        if self.state.done:
            return at
        if self.running:
            return f"{at}: the server serves clients without labels and writes the results"
        return (
            f"{at}, but no process writes the results and serves clients without labels; resume it "
            "with `coterie deploy run --resume`"
        )

    @property
    def exchange(self) -> Mapping[str, Any] | None:
        """The exchange that goes on; ``None`` where none does."""
        exchanges = self.live.get("exchanges") or []
        if not exchanges or exchanges[-1]["seconds"] is not None:
            return None
        last: Mapping[str, Any] = exchanges[-1]
        return last

    @property
    def awaited(self) -> Sequence[str]:
        """The clients whose replies are awaited in it."""
        if self.exchange is None:
            return ()
        awaited: Sequence[str] = self.exchange["awaited"]
        return awaited

    def until(self, end: float) -> str:
        """Until when something is waited for."""
        clock = time.strftime("%H:%M:%S", time.localtime(end))
        if end > self.state.now:
            return f"for at most {duration(end - self.state.now)}, until {clock}"
        return f"until {clock}"

    @property
    def bytes(self) -> tuple[int, int]:
        """Sent to clients and by clients, in all rounds."""
        down = sum(int(row["transfers"]["down_bytes"]) for row in self.state.rows)
        up = sum(int(row["transfers"]["up_bytes"]) for row in self.state.rows)
        return down, up

    @property
    def same(self) -> SameClients:
        """The clients that all scored rounds have, and what they reached."""
        return same_clients(self.state.scored)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Figures, by name."""
        state = self.state
        found = [("rounds", f"{len(state.rows)} of {state.rounds}")]
        if state.scored:
            last = state.scored[-1]
            name = f"{state.headline.title}, round {int(last['round']) + 1}"
            found.append((name, state.headline.text(last[state.headline.name])))
        if self.running:
            found.append(("clients connected", str(len(self.live.get("connected") or []))))
        if state.start_up:
            found.append(("start-up of the server", duration(state.start_up)))
        down, up = self.bytes
        found.append(("sent to clients", amount(down)))
        found.append(("sent by clients", amount(up)))
        found.append(("replies not used", str(state.counted("refused").total())))
        clipped = sorted(state.counted("clipped").items())
        if clipped:
            found.append(("clipped", ", ".join(f"{name} {count}" for name, count in clipped)))
        return found


def work_name(kind: str) -> str:
    """What clients were asked to do."""
    # One kind of message asks for a statistic, and brings a model to a client without labels.
    names = {
        "train": "training",
        "evaluate": "evaluation",
        "query.statistic": "a statistic or a delivery",
    }
    return names.get(kind, kind)


def find_run(folder: Path) -> Path:
    """The run that a folder means: itself, or the last one of a deployment."""
    if (folder / "config.toml").exists():
        return folder
    run = Path(last_run(folder, _folder_of_runs(folder)))
    if not (run / "config.toml").exists():
        what = "the run has not begun, or is on another machine"
        raise ConfigError("not-found", run, what, allowed="the folder of a run")
    return run


def _folder_of_runs(folder: Path) -> str:
    """Where the runs of a deployment are."""
    file = folder / "deploy.toml"
    if not file.is_file():
        return ""
    return DeploymentSettings.of(read(file), str(file)).folder


def read_status(folder: Path) -> FederationStatus:
    """The state of a run at this moment."""
    run = find_run(folder)
    opened = RunFolder.open(run)
    with refuse_strange_state(run):
        state = read_state(opened)
        live = _read_json(run / LIVE)
        names = [str(name) for name in _read_json(run / NODES).get("clients", [])]
        groups = _groups(opened, state.rows, len(names))
        added = added_nodes(folder)
        # On one machine no keys are added.
        has_keys = nodes_file(folder).exists()
        removed = [name for name in names if has_keys and name not in added]
        return FederationStatus(state, live, _runs(live), names, groups, removed)


@contextmanager
def refuse_strange_state(run: Path) -> Iterator[None]:
    """Refuse in one line what is no state of a run: the folder may be damaged, or somebody else's.

    What a file says is used where it is shown. So this stands around that, too.
    """
    try:
        yield
    # A time of another age ends in an OSError.
    except (*MALFORMED, OSError) as error:
        got = type(error).__name__
        raise CheckpointError("damaged", run, found=got, allowed="a run of real clients") from None


def _read_json(file: Path) -> dict[str, Any]:
    """A JSON object, empty where there is none."""
    try:
        found = read_json(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _runs(live: Mapping[str, Any]) -> bool:
    """Whether the process of a run is there."""
    process = live.get("process")
    if live.get("doing") in ("done", "failed") or not process:
        return False
    return is_running(ProcessId(*process))


def _groups(folder: RunFolder, rows: Sequence[Mapping[str, Any]], clients: int) -> list[int]:
    """The group of each client, as far as the run is."""
    member = [-1] * clients
    for row in rows:
        for client, group in row["moves"]:
            if client < clients:
                member[client] = int(group)
    # Clients without labels are placed after the last round, so no row has them.
    at_end = folder.results.groups() or []
    known = min(clients, len(at_end))
    member[:known] = at_end[:known]
    return member
