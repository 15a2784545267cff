"""Files that more than one layer writes or names, without what reads them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

POPULATION = "population.npz"  # in the folder of a run, the data of a run from Python

# A spreadsheet takes a cell that begins with one of the first for a formula. The last marks a cell
# that was changed, so that no two texts are written alike.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'")


def csv_text(header: Sequence[object], rows: Iterable[Sequence[object]], end: str = "\r\n") -> str:
    """A table as CSV, in which no cell is a formula for a spreadsheet.

    Args:
        header: names of the columns.
        rows: of the table.
        end: of a line.

    Example:
        >>> csv_text(["name", "gain"], [["=1+1", -0.5], ["ann", "-0.5"]], end=";")
        "name,gain;'=1+1,-0.5;ann,-0.5;"
    """
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator=end)
    writer.writerow([safe_cell(name) for name in header])
    writer.writerows([safe_cell(value) for value in row] for row in rows)
    return lines.getvalue()


def safe_cell(value: object) -> object:
    """A value as a cell: text that a spreadsheet would execute begins with an apostrophe.

    Example:
        >>> safe_cell("=cmd|' /C calc'!A0"), safe_cell("-1"), safe_cell(-1), safe_cell("'t Hart")
        ("'=cmd|' /C calc'!A0", '-1', -1, "''t Hart")
    """
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    # A number in letters, as the values of a grid are.
    return value


def cell_text(cell: str) -> str:
    """The text that `safe_cell` was given.

    Example:
        >>> cell_text("'=1+1"), cell_text("ann")
        ('=1+1', 'ann')
    """
    return cell.removeprefix("'")
