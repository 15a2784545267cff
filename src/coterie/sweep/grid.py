"""Seeds and grids of a sweep as a user writes them: ``0-4`` and ``algorithm.groups=2,3``.

Used by the command ``coterie compare`` for ``--seeds`` and ``--grid``, and by ``coterie reproduce``
for its ``--seeds``.
"""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ConfigError
from coterie.sweep.options import check_option

# A range such as 0-999999999 is a slip of the hand: its list would fill the memory.
MAX_SEEDS = 10_000
SEEDS = "seeds such as 0-4 or 0,2,5-7"

# The key of a grid that makes a sweep one over attackers.
ATTACKERS = "attack.share"


def read_seeds(text: str) -> list[int]:
    """Read seeds from numbers and ranges, as ``0-2,7``: each once, in the order of the text."""
    # A dictionary keeps the order and takes each seed once.
    found: dict[int, None] = {}
    for part in text.split(","):
        found |= dict.fromkeys(_read_range(part, text))
    return list(found)


def _read_range(part: str, text: str) -> range:
    """The seeds of one part; a single number is a range of one."""
    first, dash, last = (piece.strip() for piece in part.partition("-"))
    if not dash:
        last = first
    for end in (first, last):
        # `isdigit` alone accepts digits of other scripts, and `int` is slow for huge numbers.
        if not (end.isascii() and end.isdigit() and len(end) <= 18):
            raise ConfigError("wrong-type", "--seeds", "not seeds", got=text, allowed=SEEDS)
    low = int(first)
    high = int(last)
    if high < low or high - low >= MAX_SEEDS:
        what = "an empty range, or too many seeds"
        raise ConfigError("out-of-range", "--seeds", what, got=part, allowed=SEEDS)
    return range(low, high + 1)


def read_grid(
    grid: Sequence[str], algorithms: Sequence[str], option: str = "--grid"
) -> dict[str, list[str]]:
    """The keys of ``key=v1,v2`` assignments, and the values of each as text."""
    found: dict[str, list[str]] = {}
    for assignment in grid:
        key, equals, text = (part.strip() for part in assignment.partition("="))
        # Values stay text: which type they have depends on the algorithm that reads them.
        values = list(dict.fromkeys(split_values(text)))
        # An empty value is a slip, too: TOML has no way to write one.
        if not equals or not all(key.split(".")) or not all(values):
            example = "key=v1,v2, such as algorithm.groups=2,3"
            what = "not a key and its values"
            raise ConfigError("wrong-type", option, what, got=assignment, allowed=example)
        if key in found:
            raise ConfigError("in-conflict", option, f"{key} twice", allowed="each key once")
        if key in ("seed", "algorithm.name"):
            what = f"{key} cannot be used in a grid"
            raise ConfigError("in-conflict", option, what, do="use --seeds or --algorithms")
        check_option(option, key, algorithms)
        found[key] = values
    return found


def split_values(text: str) -> list[str]:
    """Split values at commas, but not at commas within brackets or quotes."""
    pieces = [""]
    depth = 0
    quote = ""
    for letter in text:
        if quote:
            if letter == quote:
                quote = ""
        elif letter in "\"'":
            quote = letter
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        # A closing quote is over when its letter is read, so it cannot hide the next comma.
        if letter == "," and depth <= 0 and not quote:
            pieces.append("")
        else:
            pieces[-1] += letter
    return [piece.strip() for piece in pieces]
