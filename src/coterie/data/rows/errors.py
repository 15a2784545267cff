"""What is wrong with a file or a column, in one line."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Any

try:
    from coterie.errors import DataError
except ImportError:  # next to an export, which needs no Coterie

    class DataError(ValueError):  # type: ignore[no-redef]
        """What is wrong with a file, in one line."""

        def __init__(self, code: str, path: object, what: str = "", **more: object) -> None:
            line = f"{path}: {what or code.replace('-', ' ')}"
            words = {
                "found": " ({})" if what and isinstance(more.get("found"), str) else ", got {}",
                "allowed": "; expected {}",
                "do": ": {}",
                "hint": "; did you mean '{}'?",
            }
            if code in ("missing", "not-found") and more.get("found") is None:
                words["allowed"] = ": specify {}"
            parts = [words[name].format(value) for name, value in more.items() if value is not None]
            super().__init__(line + "".join(parts))


def column_error(code: Any, where: object, name: str, got: object, allowed: object) -> DataError:
    """The error about the values of a column."""
    what = f"column {name}: {code.replace('-', ' ')}"
    return DataError(code, where, what, found=got, allowed=allowed)


def missing_column(where: str, name: str, present: Collection[str], option: str = "") -> DataError:
    """The error for a column that a file does not have: it names those it has, and the nearest."""
    known = sorted(present)
    near = get_close_matches(name, known, n=1)
    hint = next(iter(near), None)
    path = where
    what = f"no column {name!r}"
    if option:
        path = f"data.{option}"
        what = f"{where}: {what}"
    columns = f"it has {', '.join(known) or 'none'}"
    return DataError("not-found", path, what, do=columns, hint=hint)


def unreadable(path: object, kind: str, error: Exception) -> DataError:
    """The error for what a library cannot read, with the first line of what it says."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return DataError("cannot-be-read", path, f"cannot be read as {kind} ({line})")


def refuse_twice(names: Sequence[str], where: str) -> None:
    """Refuse two columns of one name: which is meant cannot be known."""
    for name in names:
        if names.count(name) > 1:
            got = f"{names.count(name)} columns with this name"
            raise column_error("in-conflict", where, name, got, "one")
