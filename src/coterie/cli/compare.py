"""The command that runs several algorithms, seeds and values, and compares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.completion import complete_algorithms
from coterie.cli.options import (
    Assignments,
    ConfigOrRuns,
    Debug,
    MachineOptions,
    split_names,
)
from coterie.cli.signals import StopRequest, stop_after_round
from coterie.errors import ConfigError, SweepError

if TYPE_CHECKING:
    from coterie.sweep.comparison import SweepTable
    from coterie.sweep.measured import Figure
    from coterie.sweep.plan import SweepPlan, SweepRun

MOST_SHOWN = 30  # clients that are printed; more are in the files
ATTACKER_SHARES = "0,0.1,0.2,0.3"  # of `coterie compare --attack`


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Which runs a sweep has: every algorithm with every seed and every value."""

    algorithms: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="Names, separated by commas. Default: the one in the configuration.",
            autocompletion=complete_algorithms,
        ),
    ] = ""
    seeds: Annotated[
        str,
        typer.Option(
            metavar="SEEDS",
            help="For example 0-4, or 0,2,5-7. Default: the one in the configuration.",
        ),
    ] = ""
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=V1,V2",
            help="Values of a key, for example local.lr=0.01,0.1. Several keys are crossed.",
        ),
    ] = None
    attack: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="Attacks from `coterie list attacks`, separated by commas. Draws the accuracy of honest "
            "clients against the share of attackers.",
        ),
    ] = ""
    attackers: Annotated[
        str,
        typer.Option(
            metavar="SHARES",
            help=f"Shares of attackers, with --attack. Default: {ATTACKER_SHARES}.",
        ),
    ] = ""
    assignments: Assignments = None

    def plan(self, config: Path, values: Mapping[str, Any]) -> SweepPlan:
        """The runs."""
        from coterie.sweep.grid import read_seeds
        from coterie.sweep.plan import make_plan

        algorithms = split_names(self.algorithms)
        seeds: Sequence[int] = ()
        if self.seeds:
            seeds = read_seeds(self.seeds)
        grid = list(self.grid or ())
        if self.attackers and not self.attack:
            raise ConfigError(
                "in-conflict", "--attackers", found=self.attackers, allowed="--attack as well"
            )
        if self.attack:
            shares = self.attackers or ATTACKER_SHARES
            grid += [f"attack.kind={self.attack}", f"attack.share={shares}"]
        return make_plan(config, algorithms, seeds, grid, self.assignments or (), values)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What the table of a sweep compares."""

    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The algorithm to compare the others with. Default: the first."
        ),
    ] = None
    target: Annotated[
        float | None,
        typer.Option(
            help="An accuracy as a fraction, or the value of another task: shows the rounds and "
            "bytes to reach it."
        ),
    ] = None
    figure: Annotated[
        str, typer.Option(help="The figure to compare: final, max (the best) or last10_mean.")
    ] = "final"


def compare_command(
    config: ConfigOrRuns,
    sweep: SweepOptions,
    table: TableOptions,
    machine: MachineOptions,
    jobs: Annotated[
        int,
        typer.Option(
            min=1, max=1024, help="How many runs to execute in parallel. They share the cores."
        ),
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The folder of the sweep. Default: runs/compare-<config>, or runs/compare-runs."
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Compare algorithms over seeds and values.

    Each run is executed once. After an interruption the same command continues.
    """
    with stop_after_round() as request:
        # Imports inside `with`: they load torch, for seconds in which a signal may come.
        from coterie.sweep.comparison import check_choices
        from coterie.sweep.run_once import plan_of_runs

        name = config[0].stem
        if len(config) > 1 or config[0].is_dir():
            if sweep != SweepOptions():
                what = "finished runs, with options that plan runs"
                raise ConfigError("in-conflict", "compare", what, allowed="the folders alone")
            plan = plan_of_runs(config)
            name = "runs"
        else:
            # Every configuration of the plan is checked here, before the first run starts.
            plan = sweep.plan(config[0], machine.values())
        # Runs side by side would otherwise each start a process per core.
        if machine.workers is None and jobs > 1:
            plan = plan.side_by_side(jobs)
        # Said before the first run, which may take hours.
        baseline = check_choices(plan, table.baseline, table.figure, table.target)
        table = replace(table, baseline=baseline)
        run_sweep(plan, out or Path("runs") / f"compare-{name}", jobs, request, table)


def run_sweep(
    plan: SweepPlan, out: Path, jobs: int, request: StopRequest, options: TableOptions
) -> None:
    """Execute the runs of a plan that are not done yet, and show and write their table."""
    from coterie.sweep.comparison import tabulate
    from coterie.sweep.grid import ATTACKERS
    from coterie.sweep.runner import sweep
    from coterie.sweep.table import (
        column_names,
        notes,
        row_texts,
        score_columns,
        score_notes,
        score_rows,
    )
    from coterie.sweep.table_files import write_tables
    from coterie.terminal import columns_table, console, say

    figure: Any = options.figure
    progress = SweepProgress.start(plan, out, jobs, figure)
    with request.while_running() as stop:
        failures = sweep(plan.runs, out, jobs, progress, stop)
    # `compare_command` has replaced a missing baseline by the first algorithm.
    assert options.baseline is not None
    table = tabulate(plan, out, options.baseline, options.target, figure)
    say("")
    console().print(columns_table(column_names(table), row_texts(table)))
    if score_rows(table):
        say("")
        console().print(columns_table(score_columns(table), score_rows(table)))
    _show_clients(table)
    written = write_tables(table, plan, out)
    if ATTACKERS in table.keys:
        # Imported here: drawing loads pandas and altair, which other sweeps do not need.
        from coterie.report.attack_chart import write_attack_chart

        written.append(write_attack_chart(table, out))
    files = " ".join(map(str, written))
    # The table is of the runs that are done, so it is written before failures end the command.
    say("\n".join(["", *notes(table), *score_notes(table), "", f"tables: {files}"]))
    if failures:
        lines = [f"{f.run.name} ({out / f.run.id}): {f.line}" for f in failures]
        count = f"got {len(failures)} of {len(plan.runs)}; expected none"
        raise SweepError("\n".join([*lines, f"compare: runs failed, {count}"]))


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
    say(f"\n{clients.note} clients.md has all metrics, with intervals.")


@dataclass(slots=True)
class SweepProgress:
    """Prints a line for each run of a sweep that ends."""

    out: Path
    count: int
    figure: Figure
    ended: int = field(default=0)

    @classmethod
    def start(cls, plan: SweepPlan, out: Path, jobs: int, figure: Figure) -> SweepProgress:
        """Print how many runs there are, and how many an earlier command left done or begun."""
        from coterie.sweep.run_once import is_done
        from coterie.terminal import counted, say

        # Asked of the folders, which an earlier or another sweep may have filled.
        # Before the first run, which may take hours.
        for line in plan.refused.values():
            say(f"refused: {line}")
        done = sum(is_done(run, out) for run in plan.runs)
        begun = sum((out / run.id / "config.toml").exists() for run in plan.runs) - done
        line = f"{counted(len(plan.runs), 'run')} in {out}: {done} done, {begun} begun"
        if jobs > 1:
            line += f", {jobs} at a time"
        say(line)
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
