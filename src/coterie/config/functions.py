"""Functions of the user's own: how they are called, and what they return."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from coterie.errors import ConfigError


def check_takes(
    path: str, function: Callable[..., Any], names: Sequence[str], hint: str = ""
) -> None:
    """Refuse a function that cannot be called with these arguments."""
    if isinstance(function, type):
        raise ConfigError("wrong-type", path, got=function, allowed="a function")
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # some functions that are written in C do not say
    # By their number and not their names, since a user may have called them anything.
    try:
        signature.bind(*names)
    except TypeError:
        taken = ", ".join(signature.parameters)
        allowed = f"({', '.join(names)}){hint}"
        what = "wrong arguments"
        raise ConfigError("differs", path, what, found=f"({taken})", allowed=allowed) from None


def check_returned(
    path: str, value: Any, fits: bool, expected: str, function: Callable[..., Any] | None = None
) -> None:
    """Refuse what a function returned."""
    if not fits:
        what = f"the function{_place(function)} returned something else"
        raise ConfigError("wrong-type", path, what, got=value, allowed=expected)


def check_pair(
    path: str, function: Callable[..., Any], value: Any, kinds: tuple[Any, Any], expected: str
) -> None:
    """Refuse what a function returned if it is no pair of these types."""
    fits = isinstance(value, tuple) and len(value) == 2 and all(map(isinstance, value, kinds))
    # By its type: the text of a state is long, and says nothing.
    got = type(value).__name__
    if isinstance(value, tuple):
        got = f"({', '.join(type(one).__name__ for one in value)})"
    if not fits:
        what = f"the function{_place(function)} returned something else"
        raise ConfigError("wrong-type", path, what, found=got, allowed=expected)


def _place(function: Callable[..., Any] | None) -> str:
    """Where a function begins, in words; empty where that is not known."""
    if function is None:
        return ""
    called: Any = inspect.unwrap(function)
    if not inspect.isroutine(called):
        called = type(called).__call__
    code = getattr(called, "__code__", None)
    if code is None:
        return ""
    return f" at {code.co_filename}, line {code.co_firstlineno},"
