"""What columns of a user's file may hold, and the errors for what they do not."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from coterie.errors import DataError

Array = NDArray[Any]


def missing_column(path: Path, name: str, present: Iterable[str], parameter: str = "") -> DataError:
    """The error for a column that a file does not have: it names those it has, and the nearest.

    Args:
        path: the file.
        name: the column that is missing.
        present: the columns that the file has.
        parameter: the parameter of the source that named it, if one did.
    """
    known = sorted(present)
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    where = f"data.{parameter}: " if parameter else ""
    expected = ", ".join(known) or "(none)"
    return DataError(f"{where}{path}: no column {name!r}; expected one of {expected}{hint}")


def is_number(text: str) -> bool:
    """Whether a text is written as a number.

    Example:
        >>> is_number("1e-3"), is_number("1,5")
        (True, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return True


def require_one_per_row(values: Array, name: str, path: Path) -> Array:
    """The values, if they are one per row.

    Raises:
        DataError: if not.
    """
    if values.ndim != 1:
        raise DataError(
            f"{path}: column {name}, got shape {values.shape}; expected one value per row"
        )
    return values


def require_numbers(values: Array, name: str, path: Path) -> Array:
    """The values, if they are numbers.

    Raises:
        DataError: if not.
    """
    # Whole numbers, with and without sign, fractions and bools. Text that looks like numbers is
    # refused: it may have been a category or a code with leading zeros.
    if values.ndim == 0 or values.dtype.kind not in "iufb":
        got = f"{values.dtype} of shape {values.shape}"
        if values.dtype.kind == "U":
            got = "text"
        raise DataError(f"{path}: column {name}, got {got}; expected numbers")
    return values
