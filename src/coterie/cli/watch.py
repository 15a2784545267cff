"""Follows a run in the terminal: from its folder alone, so from any process."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from rich.live import Live
from rich.text import Text

from coterie.cli.follower import Follower
from coterie.cli.watch_screen import screen, silence_line
from coterie.runs.folder.files import MALFORMED, damaged
from coterie.runs.folder.store import RunFolder, check_folder
from coterie.runs.reporter import Reporter
from coterie.terminal import console, counted, summary_table


def watch(run: Path | str, *, once: bool = False, interval: float = 0.5) -> None:
    """Show a run until it ends: a live screen in a terminal, a line now and then elsewhere."""
    folder = RunFolder.open(run)
    check_folder(folder)
    follower = Follower(folder)
    out = console()
    follower.read()
    if once:
        out.print(_readable(follower, lambda: screen(follower)), soft_wrap=True)
        return
    # SIGTERM must leave the live screen as Ctrl-C does, or the terminal stays without a cursor.
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        if out.is_terminal:
            _live(follower, interval)
        else:
            _lines(follower, interval)
    finally:
        signal.signal(signal.SIGTERM, before)
    out.print(_readable(follower, lambda: _summary(follower)), soft_wrap=True)


def _leave(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _live(follower: Follower, interval: float) -> None:
    # Cropped: a screen higher than the terminal would be printed again with every refresh.
    with Live(console=console(), auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(_readable(follower, lambda: screen(follower)), refresh=True)
            if follower.done:
                return
            time.sleep(interval)
            follower.read()


def _lines(follower: Follower, interval: float) -> None:
    """Print the lines that the run itself prints where there is no terminal."""
    printed = len(follower.rows)
    reporter = Reporter(follower.rounds, printed, headline=follower.headline)
    warned = False
    if follower.rows and not follower.done:
        print(f"{printed} of {counted(follower.rounds, 'round')} done", flush=True)
    while not follower.done:
        time.sleep(interval)
        if follower.read():
            # A resumed run goes back to its last checkpoint: its rounds are printed again.
            printed = min(printed, len(follower.rows))
            for row in follower.rows[printed:]:
                _report(follower, reporter, row)
            printed = len(follower.rows)
            warned = False
        elif not warned:
            line = silence_line(follower)
            if line:
                print(line, flush=True)
                warned = True


def _report(follower: Follower, reporter: Reporter, row: dict[str, Any]) -> None:
    _readable(follower, lambda: reporter(row))


def _readable(follower: Follower, show: Callable[[], Any]) -> Any:
    """What is shown, or one line that names the file if its rows are not what a run writes."""
    try:
        return show()
    # Rows are JSON but may have other keys or types than a run writes, where a file was edited.
    except MALFORMED as error:
        raise damaged(follower.file, error) from None


def _summary(follower: Follower) -> Text:
    """The table of `coterie show`, after the last round."""
    # Imported here: who watches a run for hours does not hold torch in memory meanwhile.
    from coterie.data import load_partition
    from coterie.runs.summary import summarise

    # From the partition: `groups.csv` is written at the end only.
    clients = load_partition(follower.folder.partition).clients
    summary = follower.folder.results.summary()
    if not summary:
        summary = summarise(follower.config, follower.rows, clients, follower.headline)
    return summary_table(summary, str(follower.folder.path))
