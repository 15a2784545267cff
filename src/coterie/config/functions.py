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
        raise ConfigError(
            "differs", path, "wrong arguments", found=f"({taken})", allowed=allowed
        ) from None


def check_returned(path: str, value: Any, fits: bool, expected: str) -> None:
    """Refuse what a function returned."""
    if not fits:
        what = "the function returned something else"
        raise ConfigError("wrong-type", path, what, got=value, allowed=expected)
