"""A factory of the user's own, named as ``module:factory``."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any


def import_factory(name: str) -> Callable[..., Any]:
    """The factory that ``module:factory`` names; the current folder is searched, too.

    Raises:
        ImportError, AttributeError, TypeError, ValueError: where it names none; or what the module
            itself raises.
    """
    module, _, attribute = name.partition(":")
    if not module or module.startswith("."):
        raise ValueError("no module before the colon")
    search_in(os.getcwd())
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(
                part, [n for n in vars(found) if not n.startswith("_")], n=1
            )
            raise AttributeError(
                f"no {part!r} in {module}" + (f"; did you mean {near[0]!r}?" if near else "")
            )
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{attribute} is not a function")
    return found


def search_in(folder: str) -> None:
    """Search a folder for modules, after all others; there it stays, and worker processes inherit
    it."""
    # At the end, so that a user's `random.py` does not stand in for Python's own.
    if folder not in sys.path:
        sys.path.append(folder)
