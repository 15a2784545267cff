"""The command that runs several algorithms, seeds and values, and compares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.completion import complete_algorithms
from coterie.cli.options import Assignments, ConfigOrRuns, Debug, MachineOptions, split_names
from coterie.cli.signals import StopRequest, stop_after_round
from coterie.cli.sweep_output import SweepProgress, show_table
from coterie.errors import ConfigError, SweepError

if TYPE_CHECKING:
    from coterie.sweep.measured import Figure
    from coterie.sweep.plan import SweepPlan
    from coterie.sweep.runner import RunFailure
    from coterie.sweep.tuning import Tuned

ATTACKER_SHARES = "0,0.1,0.2,0.3"  # of `coterie compare --attack`


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Which runs a sweep has: every algorithm with every seed and every value."""

    algorithms: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="Algorithms, separated by commas. Default: the one in the configuration.",
            autocompletion=complete_algorithms,
        ),
    ] = ""
    seeds: Annotated[
        str,
        typer.Option(
            metavar="SEEDS",
            help="Seeds, for example 0-4 or 0,2,5-7. Default: the one in the configuration.",
        ),
    ] = ""
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=V1,V2",
            help="Values of a key, for example local.lr=0.01,0.1. Several keys run in all "
            "combinations.",
        ),
    ] = None
    tune: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=V1,V2",
            help="Like --grid, but each algorithm is compared only with its best values. They are "
            "chosen on training samples that are held out.",
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
            raise ConfigError("in-conflict", "--attackers", "requires --attack")
        if self.attack:
            shares = self.attackers or ATTACKER_SHARES
            grid += [f"attack.kind={self.attack}", f"attack.share={shares}"]
        option = "--grid"
        if self.tune:
            option = "--tune"
            if grid:
                other = "--attack" if self.attack else "--grid"
                raise ConfigError("in-conflict", option, f"cannot be combined with {other}")
            grid = list(self.tune)
        return make_plan(config, algorithms, seeds, grid, self.assignments or (), values, option)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What the table of a sweep compares."""

    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The algorithm with which the others are compared. Default: the first.",
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
            min=1,
            max=1024,
            help="The number of runs to execute in parallel, which share the cores.",
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
    """Compare algorithms over several seeds and options.

    Each run is executed once. After an interruption the same command continues.
    """
    with stop_after_round() as request:
        # Imports inside `with`: they load torch, for seconds in which a signal may come.
        from coterie.sweep.comparison import check_choices
        from coterie.sweep.run_once import plan_of_runs
        from coterie.sweep.tuning import plan_trials

        name = config[0].stem
        if len(config) > 1 or config[0].is_dir():
            check_folders(config)
            if sweep != SweepOptions():
                what = "options that plan new runs cannot be used with folders of finished runs"
                raise ConfigError("in-conflict", "compare", what)
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
        trials = plan_trials(plan) if sweep.tune else None
        folder = out or Path("runs") / f"compare-{name}"
        run_sweep(plan, folder, jobs, request, table, trials)


def check_folders(paths: Sequence[Path]) -> None:
    """Refuse what is no folder among others. An assignment behind another one is read as a path:
    `--set a=1 b=2` in place of `--set a=1 --set b=2`."""
    files = [path for path in paths if not path.is_dir()]
    for path in sorted(files, key=lambda path: "=" not in path.name):
        hint = f"--set {path}" if "=" in path.name else None
        allowed = "one CONFIG.toml, or folders of runs"
        raise ConfigError("does-not-fit", "compare", got=str(path), allowed=allowed, hint=hint)


def run_sweep(
    plan: SweepPlan,
    out: Path,
    jobs: int,
    request: StopRequest,
    options: TableOptions,
    trials: SweepPlan | None = None,
) -> None:
    """Execute the runs of a plan that are not done yet, and show and write their table. With trials
    first, each algorithm has only its best settings."""
    from coterie.sweep.comparison import tabulate
    from coterie.sweep.tuning import TRIALS, with_best

    figure: Any = options.figure
    tuning: dict[str, Tuned] = {}
    if trials is not None:
        tuning = _tune(trials, out / TRIALS, jobs, request, figure)
        plan = with_best(plan, tuning)
    failures = _execute(plan, out, jobs, request, figure)
    # `compare_command` has replaced a missing baseline by the first algorithm.
    assert options.baseline is not None
    table = tabulate(plan, out, options.baseline, options.target, figure)
    # The table is of the runs that are done, so it is shown before failures end the command.
    show_table(replace(table, tuning=tuning), plan, out)
    _raise_left_out(tuning)
    if failures:
        lines = [f"{f.run.name} ({out / f.run.id}): {f.line}" for f in failures]
        count = f"{len(failures)} of {len(plan.runs)}"
        raise SweepError("\n".join([*lines, f"compare: runs failed ({count})"]))


def _execute(
    plan: SweepPlan, out: Path, jobs: int, request: StopRequest, figure: Figure, what: str = "run"
) -> list[RunFailure]:
    """Execute the runs of a plan that are not done yet."""
    from coterie.sweep.runner import sweep

    progress = SweepProgress.start(plan, out, jobs, figure, what)
    with request.while_running() as stop:
        return sweep(plan.runs, out, jobs, progress, stop)


def _tune(
    trials: SweepPlan, out: Path, jobs: int, request: StopRequest, figure: Figure
) -> dict[str, Tuned]:
    """Execute the trials that are not done yet, and choose each algorithm's settings by them."""
    from coterie.sweep.comparison import tabulate
    from coterie.sweep.table_files import runs_csv, write_files
    from coterie.sweep.tuning import best_trials

    failures = _execute(trials, out, jobs, request, figure, "trial")
    table = tabulate(trials, out, trials.allowed[0], figure=figure)
    write_files({"runs.csv": runs_csv(table, trials)}, out)
    reasons = {failure.run.id: failure.line for failure in failures}
    found = best_trials(trials, table.measured, reasons, table.headline)
    if all(one.best is None for one in found.values()):
        _raise_left_out(found)
    return found


def _raise_left_out(tuning: Mapping[str, Tuned]) -> None:
    """End with the algorithms that have no settings, because all of their trials were skipped."""
    names = [name for name, one in tuning.items() if one.best is None]
    if names:
        lines = [line for name in names for line in tuning[name].skipped]
        words = f"compare: every trial of {', '.join(names)} failed or diverged"
        raise SweepError("\n".join([*lines, words]))
