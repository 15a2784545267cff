"""Groups of commands, with the same help texts under every version of typer and click."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from typing import Any, get_type_hints

import click
import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.models import ArgumentInfo

Function = Callable[..., None]


def command_group(commands: Mapping[str, Function], **options: Any) -> typer.Typer:
    """Make a group of commands, by name; without a command it shows its help."""
    # Texts are not markup: names in brackets would vanish.
    app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None, **options)
    for name, function in commands.items():
        app.command(name, cls=Command)(with_flat_options(function))
    return app


def did_you_mean(names: Sequence[str]) -> str:
    """A question about similar names, to follow a message; empty where there are none.

    Example:
        >>> did_you_mean(["run", "resume"])
        " Did you mean 'run' or 'resume'?"
    """
    if not names:
        return ""
    return f" Did you mean {' or '.join(map(repr, names))}?"


class PlainFormatter(click.HelpFormatter):
    r"""Removes the backslash that typer writes before ``[`` for rich, as in ``\[required]``: help
    is plain text here."""

    def write_dl(self, rows: Iterable[tuple[str, str]], *args: Any, **kwargs: Any) -> None:
        plain = [(name, text.replace("\\[", "[")) for name, text in rows]
        super().write_dl(plain, *args, **kwargs)


class PlainContext(click.Context):
    """The context of a command whose help is plain text."""

    formatter_class = PlainFormatter


class Command(TyperCommand):
    """A command that shows the help texts of its arguments, once.

    Click 8.5 has help texts for arguments, as typer does. Its constructor overwrites those of
    typer 0.20 with nothing, and it writes a section of its own.
    """

    context_class = PlainContext

    def __init__(self, name: str | None, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        texts = _argument_help(self.callback)
        for parameter in self.params:
            if isinstance(parameter, TyperArgument):
                parameter.help = parameter.help or texts.get(parameter.name or "")

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write nothing: typer writes the arguments together with the options."""


class CommandGroup(TyperGroup):
    """A group of commands that makes one suggestion for an unknown name."""

    context_class = PlainContext

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that a name means."""
        try:
            # Click's method, not typer's: each adds a suggestion of its own to the message.
            return click.Group.resolve_command(self, ctx, args)
        except click.UsageError as error:
            # Click has other usage errors here, such as a missing command.
            if not error.message.startswith("No such command"):
                raise
            similar = get_close_matches(args[0], self.commands)
            message = f"No such command {args[0]!r}.{did_you_mean(similar)}"
            help_hint = f"`{ctx.command_path} --help` lists them."
            raise click.UsageError(f"{message} {help_hint}", ctx) from None


def _argument_help(function: Callable[..., Any] | None) -> dict[str, str]:
    if function is None:
        return {}
    found = {}
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        for info in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(info, ArgumentInfo) and info.help:
                found[name] = info.help
    return found


def with_flat_options(function: Callable[..., None]) -> Callable[..., None]:
    """Show typer the fields of records as separate options, so that a command with many options
    needs few parameters: a parameter may be a dataclass whose fields are annotated for typer."""
    records: dict[str, type] = {}
    parameters: list[Parameter] = []
    for parameter in signature(function, eval_str=True).parameters.values():
        kind = parameter.annotation
        if is_dataclass(kind) and isinstance(kind, type):
            records[parameter.name] = kind
            parameters += _parameters_of(kind)
        else:
            # By name, because a field without a default may follow an option with one.
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(function)
    def command(**values: Any) -> None:
        for name, record in records.items():
            options = {field.name: values.pop(field.name) for field in fields(record)}
            values[name] = record(**options)
        function(**values)

    # Typer reads both of these.
    flat = signature(function).replace(parameters=parameters)
    command.__dict__["__signature__"] = flat
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _parameters_of(record: type) -> list[Parameter]:
    # With extras: what typer needs to know stands in `Annotated`.
    hints = get_type_hints(record, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            # A field without a default is a required option.
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(record)
    ]
