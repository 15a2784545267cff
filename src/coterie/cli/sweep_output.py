"""What ``coterie compare`` prints: a line for each run that ends, and the tables of a sweep."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coterie.sweep.comparison import SweepTable
    from coterie.sweep.measured import Figure
    from coterie.sweep.plan import SweepPlan, SweepRun

MOST_SHOWN = 30  # clients that are printed; more are in the files


def show_table(table: SweepTable, plan: SweepPlan, out: Path) -> None:
    """Print the table of a sweep, and write it to the folder."""
    from coterie.sweep.grid import ATTACKERS
    from coterie.sweep.table import text_tables
    from coterie.sweep.table_files import write_tables
    from coterie.terminal import columns_table, console, say

    tables = text_tables(table)
    for one in tables:
        say("")
        console().print(columns_table(one.columns, one.rows))
    _show_clients(table)
    written = write_tables(table, plan, out)
    if ATTACKERS in table.keys:
        # Imported here: drawing loads pandas and altair, which other sweeps do not need.
        from coterie.report.attack_chart import write_attack_chart

        written.append(write_attack_chart(table, out))
    files = " ".join(map(str, written))
    below = [note for one in tables for note in one.notes]
    say("\n".join(["", *below, "", f"tables: {files}"]))


def _show_clients(table: SweepTable) -> None:
    """Print the headline of each client, where they are few."""
    from coterie.sweep.clients import clients_text
    from coterie.terminal import columns_table, console, say

    clients = clients_text(table, table.headline)
    if clients is not None and clients.width > console().width:
        clients = clients_text(table, table.headline, intervals=False)
    if clients is None or len(clients.rows) > MOST_SHOWN:
        return
    say("")
    console().print(columns_table(clients.columns, clients.rows))
    say(f"\n{clients.note} clients.md lists all metrics, with intervals.")


@dataclass(slots=True)
class SweepProgress:
    """Prints a line for each run of a sweep that ends."""

    out: Path
    count: int
    figure: Figure
    ended: int = field(default=0)

    @classmethod
    def start(
        cls, plan: SweepPlan, out: Path, jobs: int, figure: Figure, what: str
    ) -> SweepProgress:
        """Print how many runs there are, and how many an earlier command left done or begun."""
        from coterie.sweep.run_once import EARLIER, is_done, outdated
        from coterie.terminal import counted, say

        # Asked of the folders, which an earlier or another sweep may have filled.
        # Before the first run, which may take hours.
        for line in plan.refused.values():
            say(f"refused: {line}")
        done = sum(is_done(run, out) for run in plan.runs)
        changed = [files for files in (outdated(run, out) for run in plan.runs) if files]
        begun = sum((out / run.id / "config.toml").exists() for run in plan.runs)
        begun -= done + len(changed)
        line = f"{counted(len(plan.runs), what)} in {out}: {done} done, {begun} begun"
        if jobs > 1:
            line += f", {jobs} at a time"
        say(line)
        if changed:
            files = ", ".join(sorted({file for one in changed for file in one}))
            runs = counted(len(changed), "earlier run")
            say(f"{files} changed since {runs}: they are kept in {out / EARLIER} and run again")
        return cls(out, len(plan.runs), figure)

    def __call__(self, run: SweepRun, state: str, reason: str) -> None:
        """A run has ended: ``done``, ``failed``, ``shared`` or ``skipped``."""
        from coterie.runs.folder.store import RunFolder
        from coterie.sweep.measured import key_of
        from coterie.sweep.table import FIGURES
        from coterie.terminal import duration, say

        self.ended += 1
        # It was done before this command began, which the first line said.
        if state == "skipped":
            return
        folder = RunFolder(self.out / run.id)
        summary = None
        if state != "failed":
            summary = folder.results.summary()
        width = len(str(self.count))
        line = f"[{self.ended:>{width}}/{self.count}] {run.name}: "
        if summary is None:
            say(f"{line}failed: {reason}")
            return
        headline = folder.headline
        value = headline.text(summary[headline.name][key_of(self.figure, headline)])
        seconds = duration(summary["seconds"]["total"])
        line += f"{headline.title} {value} ({FIGURES[self.figure][0]}), {seconds}"
        if state == "shared":
            line += ", by another sweep"
        say(line)
