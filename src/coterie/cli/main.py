"""The command ``coterie``: its commands, and how they end.

Commands import what they need when they run, so ``--help`` and ``--version`` do not wait for torch.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import click
import typer

from coterie.cli import compare, data, deploy, node, pages, predict, runs, server, studies
from coterie.cli.help import command_group, did_you_mean
from coterie.crashes import crash_line, exit_code
from coterie.errors import ConfigError, CoterieError, SweepError
from coterie.terminal import visible, with_escapes

EXIT_CODES = (
    "Exit codes: 0 ok, 2 usage or configuration, 3 data, 4 run folder, 5 quorum, "
    "7 a remote run failed, 8 runs of a sweep failed, 9 a federation is open to outsiders, "
    "10 another process is writing to the run folder, "
    "70 a bug in Coterie (the traceback is saved to a file), "
    "130 and 143 stopped by SIGINT or SIGTERM (the state is saved)."
)


def show_version(wanted: bool) -> None:
    """Print the version and end, if that is wanted."""
    if wanted:
        try:
            typer.echo(f"coterie {version('coterie')}")
        except PackageNotFoundError:
            typer.echo("coterie (not installed)")
        raise typer.Exit


app = command_group(
    {
        "run": runs.run_command,
        "resume": runs.resume_command,
        "show": runs.show_command,
        "watch": runs.watch_command,
        "report": pages.report_command,
        "plot": pages.plot_command,
        "compare": compare.compare_command,
        "export": runs.export_command,
        "predict": predict.predict_command,
        "advise": studies.advise_command,
        "reproduce": studies.reproduce_command,
        "scoreboard": studies.scoreboard_command,
        "list": data.list_command,
        "demo": pages.demo_command,
    },
    # Errors are shown by `invoke` alone; typer's own boxes would print the values of variables.
    pretty_exceptions_enable=False,
    epilog=EXIT_CODES,
)
data_app = command_group(
    {"inspect": data.inspect_command},
    help="Inspect data before a run.",
)
study_app = command_group(
    {"layers": studies.layers_command},
    help="Study clients' updates without a run.",
)
deploy_app = command_group(
    {
        "init": deploy.deploy_init,
        "run": deploy.deploy_run,
        "local": deploy.deploy_local,
        "status": deploy.deploy_status,
        "check": deploy.deploy_check,
    },
    help="Run a federation of real clients over Flower.",
)
server_app = command_group(
    {
        "up": server.server_up,
        "add": server.server_add,
        "remove": server.server_remove,
        "status": server.server_status,
    },
    help="Run the server of a federation, and manage its nodes.",
)
node_app = command_group(
    {
        "join": node.node_join,
        "check": node.node_check,
        "status": node.node_status,
        "key": node.node_key,
        "export": node.node_export,
        "forget": node.node_forget,
    },
    help="Take part in a federation, on the machine of a client.",
)
app.add_typer(data_app, name="data")
app.add_typer(study_app, name="study")
app.add_typer(deploy_app, name="deploy")
app.add_typer(server_app, name="server")
app.add_typer(node_app, name="node")


@app.callback()
def coterie(
    wanted: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Clustered federated learning: find groups of similar clients and train one model per group."""


@cache
def whole_command() -> click.Command:
    """The command with all below it, made once in a process."""
    return typer.main.get_command(app)


def main() -> None:
    """Run the command with the words of the command line, and exit."""
    # Python searches for garbage after so many new objects; by default it is 700. Imports make many
    # more, which stay, and searches would be a seventh of the time of a small run.
    gc.set_threshold(50_000)
    with_escapes(sys.stdout)
    code = invoke(sys.argv[1:])
    # The last search, at Python's end, would look through all that was imported.
    gc.freeze()
    try:
        # Here and not at Python's end, where an error of a closed pipe can no longer be caught.
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
    sys.exit(code)


def invoke(arguments: Sequence[str]) -> int:
    """Run a command; returns its exit code."""
    try:
        # Not standalone: click would print errors in its own form and exit with its own codes.
        result = whole_command()(list(arguments), prog_name="coterie", standalone_mode=False)
        # Of `typer.Exit`, as --help and --version raise it; a command itself returns nothing.
        if isinstance(result, int):
            return result
        return 0
    except click.ClickException as error:
        return usage_code(error)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPT
    except SystemExit as leave:
        # Rich and click exit with 1 when the reader of standard output has gone; that is no error.
        if not isinstance(leave.__context__, BrokenPipeError):
            raise
        discard_output()
        return 0
    except Exception as error:  # noqa: BLE001 - no error is shown to a user as a traceback
        # From the words themselves: the error may come before an option was parsed.
        return failure_code(error, "--debug" in arguments)


# --- how a command ends ---------------------------------------------------------------------------


USAGE = 2  # as in click
INTERRUPT = 130  # as in shells: 128 and the number of SIGINT
# A command without arguments raises this to show its help. Click before 8.2 prints the help itself.
NO_ARGUMENTS: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())


def usage_code(error: click.ClickException) -> int:
    """Print what is wrong with the arguments of a command, or its help if it has none."""
    if isinstance(error, NO_ARGUMENTS):
        typer.echo(error.format_message())
    elif isinstance(error, click.NoSuchOption):
        print_error(f"{error.message}{did_you_mean(error.possibilities or ())}")
    else:
        print_error(error.format_message())
    return USAGE


def failure_code(error: Exception, debug: bool) -> int:
    """Print why a command failed; returns its exit code."""
    if debug:
        traceback.print_exception(error)
    if isinstance(error, CoterieError):
        print_error(_message(error))
    else:
        print_error(save_traceback(error))
    return exit_code(error)


def _message(error: Exception) -> str:
    """One line; only a configuration and a sweep have several, one for each mistake or failure."""
    if isinstance(error, ConfigError | SweepError):
        return str(error)
    # What a library said of a file may have several lines; one error is one line, also for `grep`.
    return " ".join(str(error).split())


def print_error(message: str) -> None:
    """Print each line of a message to standard error."""
    for line in message.splitlines() or [""]:
        print(f"error: {visible(line)}", file=sys.stderr)


def save_traceback(error: Exception) -> str:
    """Save the traceback to a new file in the current folder; returns the line that names it."""
    # In a file: the terminal shows one line, and the file can be attached to a report.
    text = "".join(traceback.format_exception(error))
    number = 1
    while True:
        name = f"coterie-crash-{number}.txt"
        try:
            # "x" never writes over the traceback of an earlier crash.
            with open(name, "x", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            return crash_line(error, f"in {name}")
        except FileExistsError:
            number += 1
        except OSError:
            # A folder that cannot be written to.
            sys.stderr.write(text)
            return crash_line(error, "above")


def discard_output() -> None:
    """Send what is left to print nowhere, after the reader of standard output has gone."""
    # The descriptor, not `sys.stdout`: Python flushes at its end and would complain of a
    # broken pipe.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
