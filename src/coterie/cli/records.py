"""Options of a command that belong together, as one record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any, get_type_hints


def with_flat_options(function: Callable[..., None]) -> Callable[..., None]:
    """Show typer the fields of records as options of their own.

    Typer makes an option of each parameter, so a command with many options would have many
    parameters. Here a parameter may be a record, a dataclass whose fields are annotated as typer
    has it. Each field becomes an option, and the function gets the record.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Size:
        ...     width: int = 3
        ...     height: int = 2
        >>> def show(name: str, size: Size) -> None:
        ...     print(name, size.width * size.height)
        >>> flat = with_flat_options(show)
        >>> list(signature(flat).parameters)
        ['name', 'width', 'height']
        >>> flat(name="area", width=5, height=2)
        area 10
    """
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
