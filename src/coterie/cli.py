"""The command line. Commands import what they need when they run: ``--help`` and ``--version`` wait for no torch."""

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

if TYPE_CHECKING:
    from coterie.experiment import Prepared
    from coterie.store import Checkpoint, RunFolder

USAGE, BUG, INTERRUPT = 2, 70, 130
NO_ARGUMENTS: Any = getattr(
    click.exceptions, "NoArgsIsHelpError", ()
)  # its message is the help; click before 8.2 prints
EPILOG = (
    "Exit codes: 0 ok, 2 usage or configuration, 3 data, 4 checkpoint, 5 quorum, 70 a bug of ours (the traceback is "
    "saved to a file), 130 and 143 stopped by SIGINT or SIGTERM (the state is saved)."
)
app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, epilog=EPILOG
)
data_app = typer.Typer(no_args_is_help=True, help="Look at data before a run.")
app.add_typer(data_app, name="data")

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The configuration.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a value, as algorithm.groups=3; repeatable.")
]
Root = Annotated[
    Path | None, typer.Option("--data-root", help="Folder of the datasets; default: the variable COTERIE_DATA.")
]
EngineName = Annotated[str | None, typer.Option("--engine", help="pool or serial.")]
Workers = Annotated[int | None, typer.Option("--workers", help="Processes of the pool; default: one per core.")]
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


# --- commands -----------------------------------------------------------------------------------------------------


@app.command()
def run(
    config: ConfigFile,
    assignments: Assignments = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run, new; default runs/<algorithm>-<dataset>-...")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The seed.")] = None,
    engine: EngineName = None,
    workers: Workers = None,
    data_root: Root = None,
    debug: Debug = False,
) -> None:
    """Run a configuration."""
    from coterie.config import load

    values = {"seed": seed, **_values(engine, workers, data_root)}
    checked = load(config, assignments or (), values)
    with _signals() as signals:
        from coterie.experiment import make_folder, prepare
        from coterie.store import RunFolder

        if out is not None:
            RunFolder.check_free(out)
        prepared = prepare(checked)
        _execute(prepared, make_folder(prepared, out), signals)


@app.command()
def resume(
    run: RunPath, engine: EngineName = None, workers: Workers = None, data_root: Root = None, debug: Debug = False
) -> None:
    """Go on with a run that was stopped or killed, from its newest checkpoint."""
    from coterie.config import load
    from coterie.store import RunFolder

    folder = RunFolder.open(run)
    checked = load(folder.path / "config.toml", (), _values(engine, workers, data_root))
    checkpoint = folder.latest_checkpoint(checked.resolved())
    for line in checkpoint.warnings if checkpoint else ():
        typer.echo(f"warning: {line}", err=True)
    with _signals() as signals:
        from coterie.experiment import prepare

        _execute(prepare(checked, folder.path / "partition.npz"), folder, signals, checkpoint, resume=True)


@app.command()
def show(run: RunPath, debug: Debug = False) -> None:
    """Show the figures of a run, finished or not."""
    from coterie.store import RunFolder, damaged, summarise
    from coterie.terminal import console, summary_table

    folder = RunFolder.open(run)
    resolved, summary = folder.resolved, folder.summary()
    name = "config.toml or rounds.jsonl" if summary is None else "summary.json"
    try:
        summary = summarise(resolved, folder.rows(), _clients(folder)) if summary is None else summary
        table = summary_table(summary, str(folder.path))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise damaged(folder.path / name, error) from None
    console().print(table, soft_wrap=True)


@app.command(name="list")
def list_(
    what: Annotated[str, typer.Argument(metavar="algorithms|models|datasets|partitions|shifts", help="What to list.")],
) -> None:
    """List what there is to choose from, with options, their defaults and what they may be."""
    from coterie.terminal import choices_list, console

    kinds = {"datasets": "source", **{f"{kind}s": kind for kind in ("algorithm", "model", "partition", "shift")}}
    if what not in kinds:
        raise click.UsageError(f"list: unknown, got {what!r}; expected one of {', '.join(kinds)}")
    console().print(choices_list(_choices(kinds[what])), soft_wrap=True)


@data_app.command()
def inspect(config: ConfigFile, assignments: Assignments = None, data_root: Root = None, debug: Debug = False) -> None:
    """Show clients, sizes and label mix of a configuration's data."""
    from coterie.config import load
    from coterie.experiment import load_data
    from coterie.terminal import bars, console, heat, printable, sizes_table

    checked = load(config, assignments or (), _values(None, None, data_root))
    samples, _, population = load_data(checked)
    out, file = console(), sys.stdout
    dealt = f"{checked.data.source}, {checked.data.partition.kind}"
    out.print(f"{dealt}: {population.clients} clients, {population.classes} classes")
    out.print(sizes_table((s, population.sizes(s).tolist()) for s in ("train", "test")))
    names = [printable(n) for n in samples.label_names] or [str(c) for c in range(population.classes)]
    histograms = population.histograms()
    print("\nlabels of the training samples", *bars(names, histograms.sum(axis=0).tolist()), sep="\n", file=file)
    count = min(24, population.clients)
    shown = [i * population.clients // count for i in range(count)]
    print(f"\nlabel mix of {len(shown)} clients, a column per class (░ little, █ nearly all)", file=file)
    wide = max(len(printable(population.names[i])[:16]) for i in shown)
    for i in shown:
        row = histograms[i].tolist()
        print(f"{printable(population.names[i])[:16]:>{wide}} |{heat(row)}| {sum(row)}", file=file)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder of the page.")] = Path("runs/demo"),
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = False,
    debug: Debug = False,
) -> None:
    """FedAvg beside FedGroup on real digits, in under a minute, ending in an HTML page."""
    from coterie.report.demo import run_demo

    page = run_demo(out)
    if open_:
        import webbrowser

        webbrowser.open(Path(page).resolve().as_uri())


# --- what commands share ------------------------------------------------------------------------------------------


def _values(engine: str | None, workers: int | None, data_root: Path | None) -> dict[str, Any]:
    root = None if data_root is None else str(data_root.expanduser().absolute())
    return {"engine.name": engine, "engine.workers": workers, "data.root": root}


def _execute(
    prepared: Prepared, folder: RunFolder, signals: Signals, checkpoint: Checkpoint | None = None, resume: bool = False
) -> None:
    from coterie.experiment import execute
    from coterie.terminal import Reporter, console, counted, say, summary_table

    config, start = prepared.config, checkpoint.round if checkpoint else 0
    going = f", from round {start + 1}" if resume else ""
    d = sum(p.numel() for p in prepared.module.parameters())
    clients, rounds = counted(prepared.population.clients, "client"), counted(config.train.rounds, "round")
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


def _clients(folder: RunFolder) -> int:
    from coterie.data import load_parts

    return load_parts(folder.path / "partition.npz").clients


def _choices(kind: str) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Name, first line of the docstring, options with their defaults and what they may be."""
    from coterie.config import GIVEN, registry
    from coterie.schema import describe, options, shown

    for name, factory in sorted(registry(kind).items()):
        lines = (factory.__doc__ or "").replace("`", "").strip().splitlines() or [""]
        found = options(factory, (*GIVEN[kind], "root")).items()
        spelled = [(n if d is ... else f"{n}={'' if d is None else shown(d)}", describe(k)) for n, (k, d) in found]
        yield name, lines[0], spelled


class Signals:
    """What was asked for by SIGINT or SIGTERM while a run is on.

    While rounds run the first signal ends the run after the round at hand, and the second one at once. Before the first
    round there is nothing to save, and the first one ends it at once.
    """

    def __init__(self) -> None:
        self.caught, self.running, self.owner = 0, False, os.getpid()

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


# --- errors -------------------------------------------------------------------------------------------------------


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
        return result if isinstance(result, int) else 0
    except NO_ARGUMENTS as error:
        typer.echo(error.format_message())
        return USAGE
    except click.ClickException as error:
        _say(error.format_message())
        return USAGE
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPT
    except SystemExit as leave:
        if not isinstance(leave.__context__, BrokenPipeError):  # rich and click leave with 1 when nobody reads on
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
    if "coterie.types" not in sys.modules:
        return BUG
    from coterie.types import CoterieError

    return error.code if isinstance(error, CoterieError) else BUG


def _message(error: Exception) -> str:
    """One line; only a configuration has several, one for each of its mistakes."""
    from coterie.types import ConfigError

    return str(error) if isinstance(error, ConfigError) else " ".join(str(error).split())


def _say(message: str) -> None:
    for line in message.splitlines() or [""]:
        print(f"error: {line}", file=sys.stderr)


def _crash(error: Exception) -> str:
    """Save the traceback to a file of the current folder; returns the line that names it."""
    text, number = "".join(traceback.format_exception(error)), 1
    what = f"coterie: a bug, got {type(error).__name__} ({(str(error).splitlines() or [''])[0]})"
    while True:
        try:
            with open(f"coterie-crash-{number}.txt", "x", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            return f"{what}; the traceback is in {file.name}, please report it"
        except FileExistsError:
            number += 1
        except OSError:
            sys.stderr.write(text)
            return f"{what}; the traceback is above, please report it"


if __name__ == "__main__":
    main()
