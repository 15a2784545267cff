"""Starting a run on a SuperLink and following it: the same lines and the same table as a run on
this machine."""

from __future__ import annotations

import json
import queue
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import tomli_w

from coterie.config import RunConfig
from coterie.deploy.process import FEDERATION, command, environment, flwr, write_connection
from coterie.deploy.settings import Settings
from coterie.errors import (
    CheckpointError,
    ConfigError,
    CoterieError,
    DataError,
    QuorumError,
    RemoteError,
)
from coterie.terminal import Reporter, console, counted, say, summary_table

MARK = "@coterie "
LAST = "last-run.json"
UNREACHABLE = 90.0  # seconds without an answer of the SuperLink after which a run is given up
PAUSE = 2.0  # seconds before the log is opened again
QUIET = 30.0  # seconds without a line after which the run's status is asked for
ERRORS: Mapping[int, type[CoterieError]] = {
    2: ConfigError,
    3: DataError,
    4: CheckpointError,
    5: QuorumError,
}


def home_of(folder: Path) -> Path:
    """Where Flower's commands keep what they keep for this deployment; never part of the app."""
    return (folder / ".flwr").resolve()


def out_of(folder: Path, settings: Settings, config: RunConfig, resume: bool) -> str:
    """The run's folder on the SuperLink's machine: a new one, or that of the last run.

    Raises:
        ConfigError: if there is no last run.
    """
    last = folder / LAST
    if resume:
        try:
            return str(json.loads(last.read_bytes())["out"])
        except (OSError, ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{last}: no run to go on with, got none; expected a run started from here"
            ) from None
    stem = re.sub(
        r"[^A-Za-z0-9_-]+", "-", f"{config.algorithm.name}-{config.data.source}-{config.seed}"
    )
    out = f"{settings.folder.rstrip('/')}/{stem}-{datetime.now():%Y%m%d-%H%M%S}"
    last.write_text(json.dumps({"out": out}) + "\n", encoding="utf-8")
    return out


def submit(folder: Path, config: RunConfig, settings: Settings, out: str, resume: bool) -> int:
    """Hand the app to the SuperLink; returns Flower's number of the run.

    Raises:
        RemoteError: if it does not take it.
    """
    home = home_of(folder)
    given = {
        "coterie-config": tomli_w.dumps(_portable(config.resolved())),
        "coterie-settings": settings.dumps(),
        "coterie-out": out,
        "coterie-resume": resume,
    }
    overrides = home / "run-config.toml"
    overrides.write_text(tomli_w.dumps(given), encoding="utf-8")
    told = flwr(home, ["run", str(folder), FEDERATION, "--run-config", str(overrides)])
    if not str(told.get("run-id", "")).isdigit():
        raise RemoteError(f"flwr run: no number of a run, got {told}; expected one")
    return int(told["run-id"])


def _portable(resolved: dict[str, Any]) -> dict[str, Any]:
    """Without what belongs to this machine: where data lie, how many cores."""
    data = {name: value for name, value in resolved["data"].items() if name != "root"}
    return {name: value for name, value in resolved.items() if name not in ("engine", "folder")} | {
        "data": data
    }


def connect(folder: Path, settings: Settings) -> None:
    """Tell Flower's command where this deployment's SuperLink is.

    Raises:
        ConfigError: if the certificate of its authority is missing.
    """
    certificates = folder / settings.root_certificates
    if not certificates.is_file():
        raise ConfigError(
            f"deploy.toml: root_certificates: no file, got {certificates}; expected a certificate"
        )
    write_connection(home_of(folder), settings.superlink, certificates)


def status(home: Path, run: int) -> str:
    """``pending``, ``starting``, ``running``, ``finished:completed``, ``finished:failed`` or
    ``finished:stopped``.

    Raises:
        RemoteError: if the SuperLink does not say.
    """
    told = flwr(home, ["list", FEDERATION, "--run-id", str(run)], timeout=60.0)
    runs = told.get("runs") or []
    if not runs:
        raise RemoteError(f"flwr list: no run {run}, got none; expected it")
    return str(runs[0].get("status", ""))


@dataclass(slots=True)
class Lines:
    """The marked lines of a run's log, each once, while it goes on and until it is over.

    Args:
        home: Flower's.
        run: Flower's number of the run.
    """

    home: Path
    run: int
    seen: int = -1
    status: str = "pending"
    plain: list[str] = field(default_factory=list)
    process: subprocess.Popen[str] | None = None
    reader: threading.Thread | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Ends when the run is over.

        Raises:
            RemoteError: if the SuperLink does not answer for too long.
        """
        heard = time.monotonic()
        try:
            while True:
                lines = self._open()
                while True:
                    try:
                        line = lines.get(timeout=QUIET)
                    except queue.Empty:
                        heard = self._ask(heard)
                        if self.status.startswith("finished") and lines.empty():
                            break
                        continue
                    if line is None:
                        break
                    found = self._parse(line)
                    if found is not None:
                        heard = (
                            time.monotonic()
                        )  # the command prints lines of its own, even where nobody answers it
                        yield found
                        if "done" in found or "error" in found:
                            self._settle()
                            return
                self._close()
                if self.status.startswith("finished"):
                    return
                heard = self._ask(heard)
                time.sleep(0.0 if self.status.startswith("finished") else PAUSE)
        finally:
            self._close()

    def _open(self) -> queue.Queue[str | None]:
        """The log from its beginning, line by line; ``None`` at its end."""
        lines: queue.Queue[str | None] = queue.Queue()
        arguments = [command("flwr"), "log", str(self.run), FEDERATION, "--stream"]
        process = subprocess.Popen(
            arguments,
            env=environment(self.home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.process = process

        def read() -> None:
            assert process.stdout is not None
            with process.stdout, suppress(ValueError, OSError):
                for line in process.stdout:
                    lines.put(line)
            lines.put(None)

        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()
        return lines

    def _close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        if self.reader is not None:
            self.reader.join(10.0)
            self.reader = None

    def _ask(self, heard: float) -> float:
        """Ask for the status; returns when the SuperLink was last heard of."""
        try:
            self.status = status(self.home, self.run)
            return time.monotonic()
        except RemoteError as error:
            if time.monotonic() - heard > UNREACHABLE:
                raise RemoteError(f"{error} (given up after {UNREACHABLE:g} s)") from None
            return heard

    def _settle(self) -> None:
        """Wait a little for the status after the last line."""
        end = time.monotonic() + 20.0
        while not self.status.startswith("finished") and time.monotonic() < end:
            with suppress(RemoteError):
                self.status = status(self.home, self.run)

    def _parse(self, line: str) -> dict[str, Any] | None:
        at = line.find(MARK)
        if at < 0:
            self.plain = [*self.plain[-19:], line.rstrip()]
            return None
        with suppress(ValueError, TypeError):
            told = json.loads(line[at + len(MARK) :])
            if isinstance(told, dict) and int(told.pop("number")) > self.seen:
                self.seen += 1
                return told
        return None


def nothing(row: Mapping[str, Any]) -> None:
    """Tell nobody of a round."""


def follow(
    folder: Path,
    config: RunConfig,
    run: int,
    on_round: Callable[[Mapping[str, Any]], None] = nothing,
) -> dict[str, Any]:
    """Show a run until it is over; returns its summary.

    Raises:
        CoterieError: what ended it, with the exit code of a run on this machine where the server
            could say; otherwise `RemoteError`.
    """
    lines = Lines(home_of(folder), run)
    summary = None
    with ExitStack() as stack:
        reporter: Callable[[Mapping[str, Any]], None] = nothing
        for told in lines:
            if "start" in told:
                begun = told["start"]
                going = f", from round {begun['round'] + 1}" if begun["round"] else ""
                rounds = counted(begun["rounds"], "round")
                say(
                    f"{config.algorithm.name} on {config.data.source}: {config.model.name} ({begun['parameters']:,} "
                    f"parameters), {rounds}{going}, in {begun['folder']}"
                )
                reporter = stack.enter_context(Reporter(begun["rounds"], begun["round"]))
            elif "round" in told:
                reporter(told["round"])
                on_round(told["round"])
            elif "say" in told:
                say(str(told["say"]))
            elif "error" in told:
                raise ERRORS.get(told["error"]["code"], RemoteError)(str(told["error"]["message"]))
            elif "done" in told:
                summary = told["done"]
    if summary is None:
        errors = (
            line.strip() for line in reversed(lines.plain) if "rror" in line or "ERROR" in line
        )
        last = next(errors, "")
        why = repr(last[-200:]) if last else "no word of why, as when it is killed"
        raise RemoteError(
            f"run {run}: {lines.status or 'no status'}, got {why}; expected it to end well"
        )
    return summary


def run_remote(
    folder: Path, config: RunConfig, settings: Settings, resume: bool, out: str | None = None
) -> None:
    """Submit a run, show it, and its table.

    Raises:
        CoterieError: if it fails.
    """
    connect(folder, settings)
    place = out or out_of(folder, settings, config, resume)
    run = submit(folder, config, settings, place, resume)
    try:
        summary = follow(folder, config, run)
    except BaseException as error:
        if not isinstance(error, CoterieError) or isinstance(error, RemoteError):
            with suppress(RemoteError):
                flwr(home_of(folder), ["stop", str(run), FEDERATION], timeout=30.0)
        raise
    console().print(summary_table(summary, place), soft_wrap=True)
