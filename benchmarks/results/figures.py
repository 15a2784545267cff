"""Figures as sentences show them, computed from the records so that nobody types one.

A function takes a page and keys of records (``case/subject/metric``) and returns text. Those that
claim an order, such as ``above``, refuse when the records no longer bear it out: a sentence that
has become wrong stops the build.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal

from benchmarks.results.papers import printed_at
from benchmarks.results.records import Record, ResultPage


def decimals(values: Sequence[float]) -> int:
    """How many decimals the most exact of the values has."""
    exponents = [Decimal(repr(value)).as_tuple().exponent for value in values]
    return max((-exponent for exponent in exponents if isinstance(exponent, int)), default=0)


def own_decimals(record: Record) -> int:
    """The decimals of a record's values; a count of one run has none."""
    counts = not record.unit and all(float(value).is_integer() for value in record.known)
    if counts and len(record.known) == 1:
        return 0
    return decimals(record.known)


def number(value: float, places: int) -> str:
    """A number with so many decimals, halves rounded up, thousands set apart.

    Python rounds halves to even, which makes 38.2 of a printed 38.25.
    """
    step = Decimal(1).scaleb(-max(places, 0))
    if 0 < abs(value) < 1e-3:
        return f"{value:.2g}".replace("e-0", "e-")
    # 34.6 - 38.25 is -3.6499999999999986 in binary, which is meant to be -3.65.
    exact = Decimal(repr(round(value, 12)))
    return f"{exact.quantize(step, rounding=ROUND_HALF_UP):,}"


def middle(record: Record) -> float:
    """Mean over seeds, median of repetitions: a slow repetition says little, a bad seed a lot."""
    if not record.known:
        raise ValueError(f"{record.key}: no value, so no mean")
    if record.seeds is None:
        return statistics.median(record.known)
    return statistics.fmean(record.known)


def summary(record: Record, places: int | None = None) -> str:
    """A cell of a table: the value, mean ± standard deviation, or median with its range.

    Args:
        record: whose values.
        places: decimals; default those of the values.
    """
    known = record.known
    if not known:
        return "never"
    if places is None:
        places = own_decimals(record)
    centre = number(middle(record), places)
    if len(known) == 1:
        return centre
    if record.seeds is not None:
        return f"{centre} ± {number(statistics.stdev(known), places)}"
    ends = f"{number(min(known), places)} to {number(max(known), places)}"
    # Of two repetitions nothing lies in the middle.
    return ends if len(known) == 2 else f"{centre} ({ends})"


def value(page: ResultPage, key: str) -> str:
    """The mean over seeds, or the median of repetitions, with its unit."""
    record = page.find(key)
    if record.seeds is None and len(record.known) == 2:
        return spread(page, key)
    return _with_unit(number(middle(record), decimals(record.known)), record.unit)


def spread(page: ResultPage, key: str) -> str:
    """Mean and standard deviation, or median and range, with the unit."""
    record = page.find(key)
    return _with_unit(summary(record), record.unit)


def each(page: ResultPage, key: str) -> str:
    """All values, with the unit."""
    record = page.find(key)
    places = decimals(record.known)
    return _with_unit(_listed([number(value, places) for value in record.known]), record.unit)


def span(page: ResultPage, *keys: str) -> str:
    """The least and the largest of the records' means, with the unit."""
    records = [page.find(key) for key in keys]
    known = [value for record in records for value in record.known]
    places = decimals(known)
    return _with_unit(
        f"{number(min(known), places)} to {number(max(known), places)}", records[0].unit
    )


def above(page: ResultPage, higher: str, lower: str) -> str:
    """By how much one figure is above another, in the mean over the seeds that both have."""
    gaps, places = _gaps(page, higher, lower)
    gap = statistics.fmean(gaps)
    if gap <= 0:
        raise ValueError(f"{higher} is not above {lower}: {gap:.3g}")
    return _with_unit(number(gap, places), _gap_unit(page.find(higher)))


def above_each(page: ResultPage, higher: str, lower: str) -> str:
    """The same, seed by seed."""
    gaps, places = _gaps(page, higher, lower)
    if min(gaps) <= 0:
        raise ValueError(f"{higher} is not above {lower} on every seed")
    return _with_unit(_listed([number(gap, places) for gap in gaps]), _gap_unit(page.find(higher)))


def times(page: ResultPage, larger: str, smaller: str) -> str:
    """How many times one figure is another, to two digits."""
    ratio = middle(page.find(larger)) / middle(page.find(smaller))
    if ratio <= 1:
        raise ValueError(f"{larger} is not larger than {smaller}")
    return f"{ratio:.2g} times"


def printed(page: ResultPage, key: str) -> str:
    """What the paper prints."""
    record = page.find(key)
    return _with_unit(number(_print(record), decimals([_print(record)])), record.unit)


def above_printed(page: ResultPage, key: str) -> str:
    """By how much the mean is above the paper's value."""
    return _gap_to_print(page.find(key), sign=1)


def below_printed(page: ResultPage, key: str) -> str:
    """By how much the mean is below the paper's value."""
    return _gap_to_print(page.find(key), sign=-1)


def below_print(page: ResultPage, key: str) -> str:
    """How many of a record's values are below the paper's: where that lies among the seeds."""
    record = page.find(key)
    below = sum(value < _print(record) for value in record.known)
    return f"{below} of {len(record.known)}"


def aim(page: ResultPage, key: str) -> str:
    """What was aimed at."""
    return _with_unit(bound(page.find(key)), page.find(key).unit)


def bound(record: Record) -> str:
    """``at least 8``, or nothing where there is no aim."""
    if record.at_least is not None and record.at_most is not None:
        return f"{record.at_least:g} to {record.at_most:g}"
    if record.at_least is not None:
        return f"at least {record.at_least:g}"
    if record.at_most is not None:
        return f"at most {record.at_most:g}"
    return ""


def verdict(record: Record) -> str:
    """The aim, and whether it was reached."""
    if not bound(record):
        return ""
    centre = middle(record)
    too_small = record.at_least is not None and centre < record.at_least
    too_large = record.at_most is not None and centre > record.at_most
    if too_small or too_large:
        return f"{bound(record)}: missed"
    return f"{bound(record)}: met"


def difference(record: Record) -> str:
    """Mean minus the paper's value, with its sign, or nothing where none is printed."""
    if record.printed is None or not record.known:
        return ""
    # Without rounding, a mean that equals the printed value is shown as 1e-14 away from it.
    gap = round(middle(record) - record.printed.value, 9)
    rounded = number(abs(gap), own_decimals(record))
    # A gap that is rounded away is no gap below print.
    is_below = gap < 0 and float(rounded.replace(",", "")) > 0
    return f"{'-' if is_below else '+'}{rounded}"


def paper(page: ResultPage, at: str) -> str:
    """A value that a paper prints, by its place in ``paper_tables.toml``."""
    found = printed_at(at)
    return number(found, decimals([found]))


def _gaps(page: ResultPage, higher: str, lower: str) -> tuple[list[float], int]:
    """Differences by seed; two records without common seeds are compared as wholes."""
    a, b = page.find(higher), page.find(lower)
    places = decimals([*a.known, *b.known])
    if a.seeds is None or b.seeds is None:
        return [middle(a) - middle(b)], places
    of_b = dict(zip(b.seeds, b.values, strict=True))
    pairs = [(x, of_b.get(seed)) for seed, x in zip(a.seeds, a.values, strict=True)]
    gaps = [x - y for x, y in pairs if x is not None and y is not None]
    if not gaps:
        raise ValueError(f"{higher} and {lower} have no seed in common")
    return gaps, places


def _gap_to_print(record: Record, sign: int) -> str:
    gap = sign * (middle(record) - _print(record))
    if gap < 0:
        raise ValueError(f"{record.key}: the paper's value lies on the other side")
    return _with_unit(number(gap, decimals(record.known)), _gap_unit(record))


def _print(record: Record) -> float:
    if record.printed is None:
        raise ValueError(f"{record.key}: no printed value")
    return record.printed.value


def _gap_unit(record: Record) -> str:
    return "points" if record.unit == "%" else record.unit


def _with_unit(text: str, unit: str) -> str:
    return f"{text} {unit}".rstrip()


def _listed(items: Sequence[str]) -> str:
    if len(items) == 1:
        return items[0]
    return f"{', '.join(items[:-1])} and {items[-1]}"


FIGURES: dict[str, Callable[..., str]] = {
    "value": value,
    "spread": spread,
    "each": each,
    "span": span,
    "above": above,
    "above_each": above_each,
    "times": times,
    "printed": printed,
    "above_printed": above_printed,
    "below_printed": below_printed,
    "below_print": below_print,
    "paper": paper,
    "aim": aim,
}
