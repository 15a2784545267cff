"""How a command ends: its exit code, and one line on standard error for each mistake.

Used by `coterie.cli.main`, which runs every command. The codes of Coterie's own errors stand with
their classes in `coterie.errors`.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import click
import typer

from coterie.cli.help import did_you_mean
from coterie.crashes import crash_line, exit_code
from coterie.errors import ConfigError, CoterieError, SweepError
from coterie.terminal import visible

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
