"""The command line. Commands import what they need when they run: ``--help`` and ``--version`` wait
for no torch."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from coterie.cli import deploy as commands_deploy
from coterie.cli import runs as commands_runs
from coterie.cli.completion import (
    complete_algorithms,
    complete_engine,
    complete_kind,
    complete_paper,
    complete_run,
    complete_set,
)
from coterie.errors import ConfigError, CoterieError, SweepError

if TYPE_CHECKING:
    from coterie.runs.checkpoint import Checkpoint
    from coterie.runs.run import Prepared
    from coterie.runs.store import RunFolder
    from coterie.sweep.plan import Run, SweepPlan

USAGE = 2
BUG = 70
INTERRUPT = 130
NO_ARGUMENTS: Any = getattr(
    click.exceptions, "NoArgsIsHelpError", ()
)  # its message is the help; click before 8.2 prints
EPILOG = (
    "Exit codes: 0 ok, 2 usage or configuration, 3 data, 4 checkpoint, 5 quorum, 7 a run elsewhere failed, "
    "8 runs of a sweep failed, 70 a bug of ours (the traceback is saved to a file), 130 and 143 stopped by SIGINT or "
    "SIGTERM (the state is saved)."
)
app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, epilog=EPILOG
)
data_app = typer.Typer(no_args_is_help=True, help="Look at data before a run.")
app.add_typer(data_app, name="data")
study_app = typer.Typer(
    no_args_is_help=True, help="Look at what clients' updates tell, without a run."
)
app.add_typer(study_app, name="study")

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The configuration.")]
RunPath = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder of a run.", autocompletion=complete_run)
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a value, as algorithm.groups=3; repeatable.",
        autocompletion=complete_set,
    ),
]
Root = Annotated[
    Path | None,
    typer.Option("--data-root", help="Folder of the datasets; default: the variable COTERIE_DATA."),
]
EngineName = Annotated[
    str | None,
    typer.Option("--engine", help="pool, serial, vmap or ray.", autocompletion=complete_engine),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", help="Processes of the pool, actors of Ray; default: one per core."),
]
RayAddress = Annotated[
    str | None,
    typer.Option("--ray-address", metavar="ADDRESS", help="Of a Ray cluster: host:port, or auto."),
]
DeviceName = Annotated[
    str | None, typer.Option("--device", help="Of vmap: auto, cpu, cuda, cuda:1, ...")
]
Open = Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")]
PAPERS = "fedgroup, flexcfl, fedclust, fedgsp or rfedavg"
KINDS = "What to list: algorithms, models, datasets, partitions, shifts, servers or objectives."
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def _version(wanted: bool) -> None:
    if wanted:
        try:
            typer.echo(f"coterie {version('coterie')}")
        except PackageNotFoundError:
            typer.echo("coterie (not installed)")
        raise typer.Exit


@app.callback()
def _root(
    wanted: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Clustered federated learning: group clients that belong together, train a model per group."""


# --- commands -------------------------------------------------------------------------------------


@app.command()
def run(
    config: ConfigFile,
    assignments: Assignments = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the run, new; default runs/<algorithm>-<dataset>-..."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The seed.")] = None,
    engine: EngineName = None,
    workers: Workers = None,
    ray_address: RayAddress = None,
    device: DeviceName = None,
    data_root: Root = None,
    debug: Debug = False,
) -> None:
    """Run a configuration."""
    from coterie.config import load

    reached = {"engine.address": ray_address, "engine.device": device}
    values = {"seed": seed, **reached, **_values(engine, workers, data_root)}
    validated = load(config, assignments or (), values)
    with _signals() as signals:
        from coterie.runs.run import make_folder, prepare
        from coterie.runs.store import RunFolder

        if out is not None:
            RunFolder.check_free(out)
        prepared = prepare(validated)
        _execute(prepared, make_folder(prepared, out), signals)


@app.command()
def resume(
    run: RunPath,
    engine: EngineName = None,
    workers: Workers = None,
    ray_address: RayAddress = None,
    device: DeviceName = None,
    data_root: Root = None,
    debug: Debug = False,
) -> None:
    """Go on with a run that was stopped or killed, from its newest checkpoint."""
    from coterie.config import load
    from coterie.runs.store import RunFolder

    folder = RunFolder.open(run)
    reached = {"engine.address": ray_address, "engine.device": device}
    validated = load(
        folder.path / "config.toml", (), {**reached, **_values(engine, workers, data_root)}
    )
    checkpoint = folder.latest_checkpoint(validated.resolved())
    for line in checkpoint.warnings if checkpoint else ():
        typer.echo(f"warning: {line}", err=True)
    with _signals() as signals:
        from coterie.runs.run import prepare

        _execute(
            prepare(validated, folder.path / "partition.npz"),
            folder,
            signals,
            checkpoint,
            resume=True,
        )


@app.command()
def show(run: RunPath, debug: Debug = False) -> None:
    """Show the figures of a run, finished or not."""
    from coterie.runs.files import damaged
    from coterie.runs.store import RunFolder
    from coterie.runs.summary import summarise
    from coterie.terminal import console, summary_table

    folder = RunFolder.open(run)
    resolved = folder.resolved
    summary = folder.summary()
    name = "config.toml or rounds.jsonl" if summary is None else "summary.json"
    try:
        summary = (
            summarise(resolved, folder.rows(), _clients(folder)) if summary is None else summary
        )
        table = summary_table(summary, str(folder.path))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise damaged(folder.path / name, error) from None
    console().print(table, soft_wrap=True)


@app.command()
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Folders of runs or of sweeps, to be compared on one page.",
            autocompletion=complete_run,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The page; default report.html in the first run's folder.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for the page's charts as PNG files.")
    ] = None,
    data_root: Root = None,
    open_: Open = False,
    debug: Debug = False,
) -> None:
    """Write the HTML page of a run, finished or not, or of several."""
    from coterie.report import write_figures, write_page
    from coterie.report.load import intro_of, title_of, views_of
    from coterie.terminal import say

    root = _values(None, None, data_root)["data.root"]
    views = views_of(runs, root)
    page = write_page(out or runs[0] / "report.html", views, title_of(runs), intro_of(views))
    if figures is not None:
        say(f"figures: {len(write_figures(figures, views))} in {figures}")
    _show_page(page, open_)


@app.command()
def plot(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Folders of runs, as for `coterie report`.",
            autocompletion=complete_run,
        ),
    ],
    chart: Annotated[
        str, typer.Option(help="A chart of their page: accuracy, agreement, mix, map, tree, ...")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file, .png, .svg or .pdf; default <chart>.png in the first run's folder."
        ),
    ] = None,
    data_root: Root = None,
    debug: Debug = False,
) -> None:
    """Write one chart of a run's page, or of several, as PNG, SVG or PDF."""
    from coterie.report.export import write_chart
    from coterie.report.load import views_of
    from coterie.terminal import say

    views = views_of(runs, _values(None, None, data_root)["data.root"])
    say(f"chart: {write_chart(out or runs[0] / f'{chart}.png', views, chart).resolve()}")


@app.command()
def compare(
    config: ConfigFile,
    algorithms: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="Names between commas; default that of the configuration.",
            autocompletion=complete_algorithms,
        ),
    ] = "",
    seeds: Annotated[
        str,
        typer.Option(
            metavar="SEEDS", help="As 0-4, or 0,2,5-7; default that of the configuration."
        ),
    ] = "",
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=V1,V2", help="Values of a key, as local.lr=0.01,0.1; several are crossed."
        ),
    ] = None,
    assignments: Assignments = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What others are compared with; default the first."),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="An accuracy as a fraction: tell rounds and bytes to it."),
    ] = None,
    figure: Annotated[
        str, typer.Option(help="The accuracy compared: last10_mean, max or final.")
    ] = "last10_mean",
    jobs: Annotated[
        int, typer.Option(min=1, max=1024, help="Runs side by side, which share the cores.")
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the sweep, new or not; default runs/compare-<config>."),
    ] = None,
    engine: EngineName = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", help="Processes of a run's pool; default: the cores among the jobs."
        ),
    ] = None,
    data_root: Root = None,
    debug: Debug = False,
) -> None:
    """Run algorithms over seeds and values, each run once, and compare them; the same command goes
    on."""
    with _signals() as signals:
        from coterie.sweep.comparison import check_choices
        from coterie.sweep.grid import read_seeds
        from coterie.sweep.plan import make_plan
        from coterie.sweep.runner import cores_per_run

        names = [name.strip() for name in algorithms.split(",")] if algorithms else []
        values = _values(
            engine, cores_per_run(jobs) if workers is None and jobs > 1 else workers, data_root
        )
        plan = make_plan(
            config, names, read_seeds(seeds) if seeds else (), grid or (), assignments or (), values
        )
        first = check_choices(plan, baseline, figure)
        _sweep(
            plan,
            out or Path("runs") / f"compare-{config.stem}",
            jobs,
            signals,
            first,
            target,
            figure,
        )


@app.command()
def advise(
    data: Annotated[
        Path,
        typer.Argument(metavar="DATA", help="A configuration, or a .parquet or .npz file of data."),
    ],
    assignments: Assignments = None,
    client: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Of a file: the column of clients.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Of a file: the column of labels.")
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,...", help="Of a file: one column of inputs, or several of numbers."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of what is written; default a new one, runs/advise-1 and so on."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=2, max=1000, help="Rounds of each short run.")] = 15,
    seeds: Annotated[int, typer.Option(min=1, max=5, help="Short runs of each method.")] = 3,
    methods: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="Of fedgroup, flexcfl, ifca, fedclust; default: all that differ.",
        ),
    ] = "",
    engine: EngineName = None,
    workers: Workers = None,
    data_root: Root = None,
    debug: Debug = False,
) -> None:
    """Say whether grouping would help on your data, into which groups, by which method, and at what
    cost."""
    with _signals():
        from coterie.studies.advise.command import go

        columns = {"client": client, "label": label, "features": features}
        names = [name.strip() for name in methods.split(",")] if methods else []
        go(
            data,
            out,
            assignments or (),
            _values(engine, workers, data_root),
            columns,
            rounds,
            seeds,
            names,
        )


@app.command(name="list")
def list_(
    what: Annotated[str, typer.Argument(metavar="KIND", help=KINDS, autocompletion=complete_kind)],
) -> None:
    """List what there is to choose from, with options, their defaults and what they may be."""
    from coterie.terminal import choices_list, console

    named = ("algorithm", "model", "partition", "shift", "server", "objective")
    kinds = {"datasets": "source", **{f"{kind}s": kind for kind in named}}
    if what not in kinds:
        raise click.UsageError(f"list: unknown, got {what!r}; expected one of {', '.join(kinds)}")
    console().print(choices_list(_choices(kinds[what])), soft_wrap=True)


@data_app.command()
def inspect(
    config: ConfigFile,
    assignments: Assignments = None,
    data_root: Root = None,
    debug: Debug = False,
) -> None:
    """Show clients, sizes and label mix of a configuration's data."""
    import numpy as np

    from coterie.config import load
    from coterie.runs.run import load_data
    from coterie.terminal import bars, console, heat, printable, sizes_table

    validated = load(config, assignments or (), _values(None, None, data_root))
    samples, _, population = load_data(validated)
    out = console()
    file = sys.stdout
    dealt = f"{validated.data.source}, {validated.data.partition.kind}"
    out.print(f"{dealt}: {population.clients} clients, {population.classes} classes")
    out.print(sizes_table((s, population.sizes(s).tolist()) for s in ("train", "test")))
    names = [printable(n) for n in samples.label_names] or [
        str(c) for c in range(population.classes)
    ]
    count = min(24, population.clients)
    shown = [i * population.clients // count for i in range(count)]
    # of a federation that is drawn client by client only those shown are made
    counted = np.array(shown) if population.drawn else np.arange(population.clients)
    histograms = dict(zip(counted.tolist(), population.histograms_of(counted), strict=True))
    whose = f" of {len(shown)} clients" if population.drawn else ""
    total = sum(histograms.values()).tolist()
    print(f"\nlabels of the training samples{whose}", *bars(names, total), sep="\n", file=file)
    print(
        f"\nlabel mix of {len(shown)} clients, a column per class (░ little, █ nearly all)",
        file=file,
    )
    wide = max(len(printable(population.names[i])[:16]) for i in shown)
    for i in shown:
        row = histograms[i].tolist()
        print(f"{printable(population.names[i])[:16]:>{wide}} |{heat(row)}| {sum(row)}", file=file)


@study_app.command()
def layers(
    config: ConfigFile,
    assignments: Assignments = None,
    out: Annotated[Path, typer.Option(help="Folder of what is written.")] = Path("runs/layers"),
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Local epochs; default those of [local].")
    ] = None,
    engine: EngineName = None,
    workers: Workers = None,
    data_root: Root = None,
    open_: Open = False,
    debug: Debug = False,
) -> None:
    """Train every client once from the same start; show which layers tell their data apart
    (FedClust, Fig. 1)."""
    from coterie.config import load

    validated = load(config, assignments or (), _values(engine, workers, data_root))
    with _signals():
        from coterie.runs.run import prepare
        from coterie.studies.layers import COLUMNS, headline, shown, study_layers, write_study
        from coterie.terminal import columns_table, console, counted

        prepared = prepare(validated)
        study = study_layers(prepared, epochs)
    trained = counted(epochs or validated.local.epochs, "local epoch")
    clients = counted(len(study.clients), "client")
    intro = f"{validated.model.name} on {validated.data.source}, {validated.data.partition.kind}: {clients}, {trained} each."
    page, *others = write_study(
        study, out, f"Layers of {validated.model.name} on {validated.data.source}", intro
    )
    console().print(
        intro,
        columns_table(list(COLUMNS.values()), shown(study)),
        headline(study),
        sep="\n",
        soft_wrap=True,
    )
    print("numbers:", *others)
    _show_page(page, open_)


@app.command()
def reproduce(
    papers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PAPER]...",
            help=f"{PAPERS}; default: all five.",
            autocompletion=complete_paper,
        ),
    ] = None,
    table: Annotated[
        str | None, typer.Option(help="One table or figure, as 3, 4a or fig6.")
    ] = None,
    row: Annotated[
        list[str] | None, typer.Option(help="A row, as mnist-mclr, or row/column; repeatable.")
    ] = None,
    profile: Annotated[
        str, typer.Option(help="quick: a choice of lines, fewer rounds, one seed; full.")
    ] = "quick",
    seeds: Annotated[
        str | None, typer.Option(help="As 0-2 or 0,3; default: those of the profile.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder of the page and, in runs/, of the runs.")
    ] = Path("runs/reproduce"),
    data_root: Root = None,
    list_: Annotated[
        bool, typer.Option("--list", help="Show the lines and what they cost; run nothing.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Run the papers' tables and write them beside what is printed; the same command goes on after
    a kill."""
    with _signals() as signals:
        from coterie.studies.reproduce.command import go

        signals.running = True
        go(
            papers or (),
            table,
            row or (),
            profile,
            seeds,
            out,
            _values(None, None, data_root)["data.root"],
            list_,
            stop=lambda: signals.caught,
        )
        signals.running = False


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder of the page.")] = Path("runs/demo"),
    open_: Open = False,
    debug: Debug = False,
) -> None:
    """FedAvg beside FedGroup on real digits, in under a minute, ending in an HTML page."""
    from coterie.cli.demo import run_demo

    _open(run_demo(out), open_)


commands_runs.register(app)
app.add_typer(commands_deploy.app, name="deploy")


# --- what commands share --------------------------------------------------------------------------


def _show_page(page: Path, wanted: bool) -> None:
    from coterie.terminal import console

    console().print(f"page: {page.resolve()}", soft_wrap=True)
    _open(page, wanted)


def _open(page: Path, wanted: bool) -> None:
    if wanted:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def _values(engine: str | None, workers: int | None, data_root: Path | None) -> dict[str, Any]:
    root = None if data_root is None else str(data_root.expanduser().absolute())
    return {"engine.name": engine, "engine.workers": workers, "data.root": root}


def _execute(
    prepared: Prepared,
    folder: RunFolder,
    signals: Signals,
    checkpoint: Checkpoint | None = None,
    resume: bool = False,
) -> None:
    from coterie.runs.run import execute
    from coterie.terminal import Reporter, console, counted, say, summary_table

    config = prepared.config
    start = checkpoint.round if checkpoint else 0
    going = f", from round {start + 1}" if resume else ""
    d = sum(p.numel() for p in prepared.module.parameters())
    clients = counted(prepared.population.clients, "client")
    rounds = counted(config.train.rounds, "round")
    say(
        f"{config.algorithm.name} on {config.data.source}: {clients}, {config.model.name} ({d:,} parameters), "
        f"{rounds}{going}, in {folder.path}"
    )
    with Reporter(config.train.rounds, start) as reporter:
        signals.running = True
        summary = execute(
            prepared,
            folder,
            lambda result: reporter(result.row),
            checkpoint=checkpoint,
            resume=resume,
            stop=lambda: signals.caught,
        )
        signals.running = False
    console().print(summary_table(summary, str(folder.path)), soft_wrap=True)


def _sweep(
    plan: SweepPlan,
    out: Path,
    jobs: int,
    signals: Signals,
    baseline: str,
    target: float | None,
    figure: Any,
) -> None:
    from coterie.sweep.comparison import tabulate
    from coterie.sweep.runner import sweep
    from coterie.sweep.table import column_names, notes, row_texts
    from coterie.sweep.table_files import write_tables
    from coterie.terminal import columns_table, console, say

    teller = Teller(plan, out, jobs)
    signals.running = True
    failures = sweep(plan, out, jobs, teller, lambda: signals.caught)
    signals.running = False
    table = tabulate(plan, out, baseline, target, figure)
    say("")
    console().print(columns_table(column_names(table), row_texts(table)))
    say(
        "\n".join(
            ["", *notes(table), "", f"tables: {' '.join(map(str, write_tables(table, plan, out)))}"]
        )
    )
    if failures:
        lines = [f"{f.run.name} ({out / f.run.id}): {f.line}" for f in failures]
        lines.append(
            f"compare: runs failed, got {len(failures)} of {len(plan.runs)}; expected none"
        )
        raise SweepError("\n".join(lines))


class Teller:
    """Tells of the runs of a sweep, a line for each that ends."""

    def __init__(self, plan: SweepPlan, out: Path, jobs: int) -> None:
        from coterie.sweep.run_once import is_done
        from coterie.terminal import counted, say

        self.out = out
        self.count = len(plan.runs)
        self.ended = 0
        done = [is_done(run, out) for run in plan.runs]
        begun = sum((out / run.id / "config.toml").exists() for run in plan.runs) - sum(done)
        side = f", {jobs} at a time" if jobs > 1 else ""
        say(f"{counted(self.count, 'run')} in {out}: {sum(done)} done, {begun} begun{side}")

    def __call__(self, run: Run, state: str) -> None:
        from coterie.runs.store import RunFolder
        from coterie.terminal import duration, percent, say

        self.ended += 1
        if state == "skipped":
            return
        said = f"[{self.ended:>{len(str(self.count))}}/{self.count}] {run.name}: "
        summary = None if state == "failed" else RunFolder(self.out / run.id).summary()
        if summary is None:
            say(f"{said}failed")
            return
        accuracy = summary["accuracy"]["last10_mean"]
        seconds = summary["seconds"]["total"]
        shared = ", by another sweep" if state == "shared" else ""
        say(f"{said}accuracy {percent(accuracy)} (last ten rounds), {duration(seconds)}{shared}")


def _clients(folder: RunFolder) -> int:
    from coterie.data import load_partition

    return load_partition(folder.path / "partition.npz").clients


def _choices(kind: str) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Name, first line of the docstring, options with their defaults and what they may be.

    A plugin has the name of its package besides; one that cannot be used is a warning.
    """
    from coterie.config import registry
    from coterie.config.wording import describe, shown

    for name in sorted(registry.names(kind)):
        try:
            factory = registry.find(kind, name)
            found = registry.options(kind, name).items()
        except ConfigError as error:
            typer.echo(f"warning: {error}", err=True)
            continue
        # The first paragraph says what it is; it may take more than one line of the docstring.
        summary = (factory.__doc__ or "").replace("`", "").strip().split("\n\n")[0]
        line = " ".join(summary.split())
        package = registry.package(kind, name)
        if package is not None:
            line = f"{line} [{package}]"
        spelled = [
            (n if d is ... else f"{n}={'' if d is None else shown(d)}", describe(k))
            for n, (k, d) in found
        ]
        yield name, line, spelled
    for refusal in registry.plugins(kind).refused.values():
        typer.echo(f"warning: {refusal}", err=True)


class Signals:
    """What was asked for by SIGINT or SIGTERM while a run is on.

    While rounds run the first signal ends the run after the round at hand, and the second one at
    once. Before the first round there is nothing to save, and the first one ends it at once.
    """

    def __init__(self) -> None:
        self.caught = 0
        self.running = False
        self.owner = os.getpid()

    def __call__(self, number: int, frame: object) -> None:
        if os.getpid() != self.owner:  # a worker that has inherited the handler
            os._exit(128 + number)
        if self.caught or not self.running:
            raise SystemExit(128 + number)
        self.caught = number
        with suppress(OSError, RuntimeError):
            sys.stderr.write("stopping after this round; once more stops at once\n")


@contextmanager
def _signals() -> Iterator[Signals]:
    signals = Signals()
    before = {number: signal.signal(number, signals) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- errors ---------------------------------------------------------------------------------------


def main() -> None:
    """The ``coterie`` command."""
    code = invoke(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _close_pipe()
    sys.exit(code)


def _close_pipe() -> None:
    """Nobody reads on: let what is left to print go nowhere, without a word."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def invoke(arguments: Sequence[str]) -> int:
    """Run a command; returns its exit code. Expected errors are one line each on standard error."""
    debug = "--debug" in arguments
    try:
        result = app(list(arguments), prog_name="coterie", standalone_mode=False)
        if isinstance(result, int):
            return result
        return 0
    except NO_ARGUMENTS as error:
        typer.echo(error.format_message())
        return USAGE
    except click.ClickException as error:
        message = error.format_message().split(" (Did you mean")[0]  # typer says it once more
        _say(
            f"{message} `coterie --help` lists them."
            if message.startswith("No such command")
            else message
        )
        return USAGE
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPT
    except SystemExit as leave:
        if not isinstance(
            leave.__context__, BrokenPipeError
        ):  # rich and click leave with 1 when nobody reads on
            raise
        _close_pipe()
        return 0
    except Exception as error:  # noqa: BLE001 - the last line of defence
        if debug:
            traceback.print_exc()
        code = _expected(error)
        _say(_crash(error) if code == BUG else _message(error))
        return code


def _expected(error: Exception) -> int:
    """The exit code of an error: one of ours has its own, any other is a bug."""
    if isinstance(error, CoterieError):
        return error.code
    return BUG


def _message(error: Exception) -> str:
    """One line; only a configuration and a sweep have several, one for each mistake or failure."""
    if isinstance(error, ConfigError | SweepError):
        return str(error)
    return " ".join(str(error).split())


def _say(message: str) -> None:
    for line in message.splitlines() or [""]:
        print(f"error: {line}", file=sys.stderr)


def _crash(error: Exception) -> str:
    """Save the traceback to a file of the current folder; returns the line that names it."""
    text = "".join(traceback.format_exception(error))
    number = 1
    what = f"coterie: a bug, got {type(error).__name__} ({(str(error).splitlines() or [''])[0]})"
    while True:
        try:
            with open(
                f"coterie-crash-{number}.txt", "x", encoding="utf-8", errors="backslashreplace"
            ) as file:
                file.write(text)
            return f"{what}; the traceback is in {file.name}, please report it"
        except FileExistsError:
            number += 1
        except OSError:
            sys.stderr.write(text)
            return f"{what}; the traceback is above, please report it"


if __name__ == "__main__":
    main()
