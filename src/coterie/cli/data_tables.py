"""Lists, tables and bars of the commands that show choices and data."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from coterie.terminal import columns_table

SHADES = " ░▒▓█"


def choices_list(rows: Iterable[tuple[str, str, Sequence[tuple[str, str]]]]) -> Text:
    """Choices of a kind: name and description, then a line for each option and what it may be."""
    lines = []
    for name, description, options in rows:
        lines.append(Text.assemble((name, "bold"), f": {description}"))
        width = max((len(option) for option, _ in options), default=0)
        lines += [Text(f"    {option:<{width}}  {allowed}") for option, allowed in options]
    return Text("\n").join(lines)


def sizes_table(rows: Iterable[tuple[str, Sequence[int]]]) -> Table:
    """Samples per client of each split: total, least, median, mean, most."""
    columns = ("split", "clients with samples", "samples", "min", "median", "mean", "max")
    texts = []
    for split, counts in rows:
        figures = [
            sum(count > 0 for count in counts),
            sum(counts),
            min(counts),
            statistics.median(counts),
            statistics.fmean(counts),
            max(counts),
        ]
        texts.append([split, *map(_figure, figures)])
    return columns_table(columns, texts)


def _figure(value: float) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}"


def bars(names: Sequence[str], counts: Sequence[int], width: int = 40) -> list[str]:
    """A bar for each count.

    Example:
        >>> bars(["cat", "dog"], [1, 2], width=4)
        ['cat ██   1', 'dog ████ 2']
    """
    most = max([*counts, 1])
    name_width = max(map(len, names), default=0)
    digits = len(f"{max([*counts, 0]):,}")
    lines = []
    for name, count in zip(names, counts, strict=True):
        bar = "█" * round(width * count / most)
        lines.append(f"{name:<{name_width}} {bar:<{width}} {count:>{digits},}")
    return lines


def heat(counts: Sequence[int]) -> str:
    """One character per class: the darker, the larger its share of the client's samples.

    Example:
        >>> heat([0, 3, 1])
        ' ▓░'
    """
    total = sum(counts)
    if not total:
        return SHADES[0] * len(counts)
    # Rounded up, so that a class with a single sample is seen.
    return "".join(SHADES[-(-4 * count // total)] for count in counts)
