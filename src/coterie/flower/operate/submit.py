"""Start a run on a SuperLink elsewhere, and show its rounds until it is over."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import tomli_w

from coterie.config.identity import SIMULATION
from coterie.errors import (
    CheckpointError,
    ConfigError,
    CoterieError,
    DataError,
    QuorumError,
    RemoteError,
)
from coterie.experiment import Experiment
from coterie.experiment.defaults import resolved_without_lowered
from coterie.files import read_json
from coterie.flower.operate.server_folder import added_nodes
from coterie.flower.processes.flower_commands import (
    FEDERATION,
    environment,
    find_command,
    flower_home,
    run_flwr,
    write_connection,
)
from coterie.flower.server.configured import check_before_submitting, check_rounds
from coterie.flower.server.live import MARK
from coterie.flower.settings import LAST_RUN, DeploymentSettings
from coterie.runs.compose import task_headline
from coterie.runs.folder.digests import CONFIG
from coterie.runs.folder.store import RunFolder
from coterie.runs.reporter import Reporter
from coterie.terminal import console, counted, duration, say, summary_table

UNREACHABLE = 90.0  # seconds without an answer of the SuperLink after which a run is given up
# On a machine that is busy a single command of Flower's may take longer than that to start.
LEAST_TRIES = 3
PAUSE = 2.0  # seconds before the log is opened again
QUIET = 30.0  # seconds without a line after which the run's status is asked for
SETTLE = 20.0  # seconds that a run has to end after its last event
COMPLETE = "finished:completed"  # Flower's status of a run
KEPT_LINES = 20  # of Flower's own, to say why a run failed
# Exit code -> what a server that ended with it raised.
ERRORS: Mapping[int, type[CoterieError]] = {
    kind.code: kind for kind in (ConfigError, DataError, CheckpointError, QuorumError)
}
OnRound = Callable[[Mapping[str, Any]], None]


def run_status(home: Path, run: int) -> str:
    """``pending``, ``starting``, ``running``, or ``finished:`` and how."""
    answer = run_flwr(home, ["list", FEDERATION, "--run-id", str(run)], timeout=60.0)
    runs = answer.get("runs") or []
    if not runs:
        what = f"no run {run} on the SuperLink"
        raise RemoteError("not-found", "flwr list", what, do="`flwr list` shows its runs")
    return str(runs[0].get("status", ""))


def log_lines(home: Path, run: int) -> Generator[str | None, None, None]:
    """The lines of a run's log from its beginning, and ``None`` after each silence.

    Flower's command ends when the run is over, but also when the connection breaks.
    """
    process = subprocess.Popen(
        [find_command("flwr"), "log", str(run), FEDERATION, "--stream"],
        env=environment(home),
        cwd=home,  # as in `run_flwr`
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # Ctrl-C in the terminal is for this process, which decides what becomes of the run.
        start_new_session=True,
    )
    assert process.stdout is not None, "the process has a pipe"
    rest = b""
    try:
        while True:
            readable, _, _ = select.select([process.stdout], [], [], QUIET)
            if not readable:
                yield None
                continue
            data = os.read(process.stdout.fileno(), 1 << 16)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", "replace")
            if not data:
                return
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@dataclass(slots=True)
class Events:
    """The events in a run's log, each once, until the run is over; times are of the monotonic
    clock."""

    home: Path
    run: int
    seen: int = -1
    status: str = "pending"
    other_lines: list[str] = field(default_factory=list)
    heard: float = field(default_factory=time.monotonic)
    unanswered: int = 0

    @property
    def finished(self) -> bool:
        return self.status.startswith("finished")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Ends when the run is over."""
        self.heard = time.monotonic()
        while True:
            with closing(log_lines(self.home, self.run)) as lines:
                for event in self._read(lines):
                    yield event
                    if "done" in event or "error" in event:
                        self._wait_for_status()
                        return
            if self.finished:
                return
            # Even if the run is over by now, its log is read once more: its last events may
            # have come after the end of what was read.
            self._ask_status()
            if not self.finished:
                time.sleep(PAUSE)

    def _read(self, lines: Iterator[str | None]) -> Iterator[dict[str, Any]]:
        """The new events of a log, until its end or that of the run."""
        for line in lines:
            if line is None:
                self._ask_status()
                if self.finished:
                    return
                continue
            event = self._parse(line)
            if event is not None:
                # Only an event is a sign of life: Flower's command prints lines of its own, even
                # where no user answers it.
                self.heard = time.monotonic()
                yield event

    def _ask_status(self) -> None:
        try:
            self.status = run_status(self.home, self.run)
            self.heard = time.monotonic()
            self.unanswered = 0
        except RemoteError as error:
            self.unanswered += 1
            silence = time.monotonic() - self.heard
            if silence > UNREACHABLE and self.unanswered >= LEAST_TRIES:
                given_up = f"given up after {UNREACHABLE:g} s"
                problems = [replace(one, of=given_up) for one in error.problems]
                raise RemoteError.of(problems) from None
            if self.unanswered == 1:
                left = duration(max(0.0, UNREACHABLE - silence))
                say(
                    f"the SuperLink is not responding; retrying for {left}, at least twice (if the "
                    "server was restarted, the run has failed; --resume continues it)"
                )

    def _wait_for_status(self) -> None:
        """Give the run a little time to end after its last event."""
        end = time.monotonic() + SETTLE
        while not self.finished and time.monotonic() < end:
            with suppress(RemoteError):
                self.status = run_status(self.home, self.run)

    def _parse(self, line: str) -> dict[str, Any] | None:
        """The event in a line; ``None`` for any other line, and for an event seen before."""
        begin = line.find(MARK)
        if begin < 0:
            self.other_lines = [*self.other_lines[1 - KEPT_LINES :], line.rstrip()]
            return None
        with suppress(ValueError, TypeError):
            event = read_json(line[begin + len(MARK) :])
            if isinstance(event, dict) and int(event.pop("number")) > self.seen:
                self.seen += 1
                return event
        return None

    def how(self) -> str:
        """How a run ended that did not say why, with the last line that speaks of an error."""
        how = self.status.removeprefix("finished:") or "no status"
        for line in reversed(self.other_lines):
            if "rror" in line or "ERROR" in line:
                return f"{how} ({line.strip()[-200:]!r})"
        if how == "failed":
            return "failed without an error message, as after a restart of the server"
        return how


def ignore_round(row: Mapping[str, Any]) -> None:
    """Do nothing after a round."""


def follow(
    home: Path,
    config: Experiment,
    run: int,
    on_round: OnRound = ignore_round,
    out: Path | None = None,
) -> dict[str, Any]:
    """Show a run until it is over; returns its summary, from its folder ``out`` where the end of the
    log was lost and the folder is on this machine.

    Raises:
        CoterieError: what ended the run. Its exit code is that of a run on this machine where the
            server could report it; otherwise it is a `RemoteError`.
    """
    events = Events(home, run)
    summary = None
    with ExitStack() as stack:
        reporter: OnRound = ignore_round
        for event in events:
            match event:
                case {"start": start}:
                    say(_first_line(config, start))
                    headline = task_headline(config)
                    bar = Reporter(start["rounds"], start["round"], headline=headline)
                    reporter = stack.enter_context(bar)
                case {"round": row}:
                    reporter(row)
                    on_round(row)
                case {"say": line} | {"waiting": line}:
                    say(str(line))
                case {"error": error}:
                    kind = ERRORS.get(error["code"], RemoteError)
                    raise kind(str(error["message"]))
                case {"done": value}:
                    summary = value
    if summary is None and events.status == COMPLETE and out is not None:
        summary = _stored_summary(out)
    if summary is None:
        why = events.how()
        advice = "to continue, run the same command with --resume"
        # On a busy machine Flower drops what it could not send within three seconds.
        if events.status == COMPLETE:
            why = "complete, but the end of its log is missing"
            advice = "to see its results, run the same command with --resume"
        raise RemoteError("failed", f"run {run}", why, do=advice)
    return summary


def _stored_summary(out: Path) -> dict[str, Any] | None:
    """The summary in the folder of a run; ``None`` where there is no such folder."""
    if not (out / CONFIG).is_file():
        return None
    return RunFolder.open(out).results.summary()


def _first_line(config: Experiment, start: Mapping[str, Any]) -> str:
    """What begins to run, and where it is stored."""
    rounds = counted(start["rounds"], "round")
    if start["round"]:
        rounds += f", from round {start['round'] + 1}"
    model = f"{config.name('model')} ({start['parameters']:,} parameters)"
    name = f"{config.name('algorithm')} on {config.name('source')}"
    return f"{name}: {model}, {rounds}, in {start['folder']}"


# --- start ----------------------------------------------------------------------------------------


def run_remote(
    folder: Path, config: Experiment, settings: DeploymentSettings, resume: bool
) -> None:
    """Submit a run, or go on with the last one; show its rounds, and print its summary."""
    # Nodes are real, and so is what a refused run would cost them: what can be known here is.
    check_before_submitting(config, settings)
    settings = _without_strangers(folder, settings)
    certificates = folder / settings.root_certificates
    if not certificates.is_file():
        missing = ConfigError("not-found", "root_certificates", found=certificates)
        raise missing.located("deploy.toml")
    write_connection(flower_home(folder), settings.superlink, certificates)
    out = _run_folder(folder, settings, config, resume)
    run = submit(folder, config, settings, out, resume)
    home = flower_home(folder)
    try:
        summary = follow(home, config, run, out=Path(out))
    except BaseException as error:
        # Also after Ctrl-C the run must not go on unseen. A failed run has ended by itself; of one
        # that cannot be reached nothing is known.
        failed = isinstance(error, CoterieError) and not isinstance(error, RemoteError)
        if not failed:
            with suppress(RemoteError):
                run_flwr(home, ["stop", str(run), FEDERATION], timeout=30.0)
        if isinstance(error, SystemExit):
            say(
                f"stopped; the run folder is {out}. To continue, run the same command with --resume"
            )
        raise
    console().print(summary_table(summary, out), soft_wrap=True)


def submit(
    folder: Path, config: Experiment, settings: DeploymentSettings, out: str, resume: bool
) -> int:
    """Hand the app to the SuperLink; returns Flower's number of the run."""
    home = flower_home(folder)
    # Without what belongs to this machine: where data lie, how many cores.
    resolved = resolved_without_lowered(config)
    tables = {name: value for name, value in resolved.items() if name not in SIMULATION}
    tables["data"] = {name: value for name, value in resolved["data"].items() if name != "root"}
    values = {
        "coterie-config": tomli_w.dumps(tables),
        "coterie-settings": settings.dumps(),
        "coterie-out": out,
        "coterie-resume": resume,
    }
    # In a file: on a command line, TOML inside of TOML would need two kinds of quotes.
    values_file = home / "run-config.toml"
    values_file.write_text(tomli_w.dumps(values), encoding="utf-8")
    app = str(folder.resolve())
    answer = run_flwr(home, ["run", app, FEDERATION, "--run-config", str(values_file)])
    number = str(answer.get("run-id", ""))
    if not number.isdigit():
        raise RemoteError("failed", "flwr run", "its answer contains no run number", found=answer)
    return int(number)


def _without_strangers(folder: Path, settings: DeploymentSettings) -> DeploymentSettings:
    """The settings of a run that waits for no more sites than the operator has added."""
    added = len(added_nodes(folder))
    if not added or settings.start_clients is None:
        return settings
    return replace(settings, start_clients=min(added, settings.start_clients))


def _run_folder(
    folder: Path, settings: DeploymentSettings, config: Experiment, resume: bool
) -> str:
    """The run's folder on the SuperLink's machine: a new one, or that of the last run."""
    if resume:
        out = last_run(folder, settings.folder)
        _refuse_moved(folder, settings.folder, Path(out).name)
        if (Path(out) / CONFIG).is_file():
            run = RunFolder.open(out)
            check_rounds(run, config, max(run.checkpoints.all(), default=0))
        return out
    name = f"{config.name('algorithm')}-{config.name('source')}-{config.seed}"
    safe_name = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
    # A time, not a number: the folders that exist are on another machine.
    out = f"{settings.folder.rstrip('/')}/{safe_name}-{datetime.now():%Y%m%d-%H%M%S}"
    # Before the run is submitted: one whose start fails half-way can still be resumed.
    begun = {"out": out, "clients": settings.clients}
    (folder / LAST_RUN).write_text(json.dumps(begun) + "\n", encoding="utf-8")
    return out


def last_run(folder: Path, runs: str) -> str:
    """The folder of the last run that was started from a deployment's folder.

    Args:
        runs: the folder of all runs, by ``deploy.toml``; both files may come from a backup or from
            someone else, and no run is looked for outside it.
    """
    file = folder / LAST_RUN
    try:
        out = str(read_json(file)["out"])
    except (OSError, ValueError, KeyError, TypeError):
        start = f"`coterie deploy run {folder}`"
        what = "no run was started from here"
        raise ConfigError("missing", file, what, do=f"start one with {start}") from None
    parent, _, name = out.rpartition("/")
    if parent != runs.rstrip("/") or name in ("", ".", ".."):
        expected = f"a run in {runs}, the folder set in deploy.toml"
        raise ConfigError("does-not-fit", file, "names another folder", got=out, allowed=expected)
    return out


def _refuse_moved(folder: Path, runs: str, name: str) -> None:
    """Refuse a deployment that was restored elsewhere with its old path: the run is here, and would
    begin anew there."""
    here = folder / "runs"
    if (here / name).exists() and here.resolve() != Path(runs).resolve():
        advice = f"if the deployment was moved, set folder to {str(here.resolve())!r}"
        what = f"the last run is not in {str(runs)!r}; {advice}"
        raise ConfigError("differs", "folder", what).located("deploy.toml")
