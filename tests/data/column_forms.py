"""A column in every type and form that files and frames give it, and what is right."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from coterie.data.samples import Targets

ROWS = 40
SITES = ["a", "b"] * (ROWS // 2)
VALUES = [(7 * at) % 100 / 4 for at in range(ROWS)]
DAYS = [dt.datetime(2024, 2, 28), dt.datetime(2023, 12, 31), dt.datetime(2024, 3, 1)]
FRACTIONS = [0.5, -1.25, 0.001953125, 123456.75, 2.0]
WORDS = ["no", "Ja, klar", 'the "x"', "é", "two\nlines", "a;b"]
MISSING_WORDS = ["NA", "n/a", "-", "None", "<NA>", "NaT"]

Values = Sequence[Any]  # one a row, None where it is missing
Form = Callable[[Values], Any]  # a series, or the fields of a CSV file


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def series(kind: Any, change: Callable[[Any], Any] = lambda one: one) -> Form:
    """The values as a column of some type, of which categories are made where it says so."""
    name, _, categories = str(kind).partition(" ")
    kind = name if isinstance(kind, str) else kind

    def made(values: Values) -> pd.Series:
        changed = [None if one is None else change(one) for one in values]
        found = pd.Series(
            pd.array(changed, dtype=kind) if kind != "object" else changed, dtype=kind
        )
        return found.astype("category") if categories else found

    return made


def fields(
    change: Callable[[Any], str] = str, missing: str = "", separator: str = ",", end: str = "\n"
) -> Form:
    """The values as fields of a CSV file."""

    def made(values: Values) -> bytes:
        lines = ["site,v,y".replace(",", separator)]
        sign = "." if separator == "," else ","
        for site, number, value in zip(SITES, VALUES, values, strict=True):
            field = missing if value is None else change(value)
            lines.append(separator.join([site, str(number).replace(".", sign), field]))
        return (end.join(lines) + end).encode()

    return made


def comma(change: Callable[[Any], str] = str) -> Callable[[Any], str]:
    return lambda one: change(one).replace(".", ",")


@dataclass(frozen=True)
class Labels:
    """Labels, as every reader has to find them, and forms in which they come.

    Args:
        right: a value as it is found: the name of a class, or a number.
        frames: forms as a column of a frame, which parquet has as well.
    """

    values: Sequence[Any]
    right: Callable[[Any], Any]
    frames: dict[str, Form]
    files: dict[str, Form]
    targets: Sequence[Targets] = ("auto",)


WHOLE_FRAMES = {
    **{kind: series(kind) for kind in ("Int64", "Int64 category", "Float64", "float64", "object")},
    "Arrow": series(pd.ArrowDtype(pa.int64())),
    "Arrow float": series(pd.ArrowDtype(pa.float64()), float),
    "decimal": series("object", Decimal),
    "decimal of Arrow": series(pd.ArrowDtype(pa.decimal128(20, 2)), Decimal),
}
WHOLE_FILES = {
    "whole": fields(),
    "point": fields(lambda one: f"{one}.0"),
    "two places": fields(lambda one: f"{one}.00"),
    "comma": fields(lambda one: f"{one},0", separator=";"),
    "tabs": fields(separator="\t", end="\r\n"),
    "spaces": fields(lambda one: f" {one} "),
    "quoted": fields(lambda one: f'"{one}"'),
    **{word: fields(missing=word) for word in MISSING_WORDS},
}
TEXT_FRAMES = {
    **{kind: series(kind) for kind in ("object", "str", "string", "str category")},
    "Arrow": series(pd.ArrowDtype(pa.large_string())),
    "views": series(pd.ArrowDtype(pa.string_view())),
}
# An empty text is no value in any type.
EMPTY_FRAMES = {
    "empty text": lambda values: pd.Series(["" if one is None else one for one in values]),
    "a space": lambda values: pd.Series([" " if one is None else one for one in values]),
}
CASES = {
    "0 and 1": Labels(
        [0, 1, 1],
        str,
        WHOLE_FRAMES | {"text": series("str", str), "text of floats": series("str", "{}.0".format)},
        WHOLE_FILES,
        ("auto", "classes"),
    ),
    "-1 and 1": Labels([-1, 1], str, WHOLE_FRAMES, WHOLE_FILES, ("auto", "classes")),
    "9, 10 and 100": Labels([9, 100, 10], str, WHOLE_FRAMES, WHOLE_FILES),
    "large": Labels([2**53 - 1, 2**53 - 2], str, WHOLE_FRAMES, WHOLE_FILES),
    "whole numbers to predict": Labels([0, 3, 7], float, WHOLE_FRAMES, WHOLE_FILES, ("numbers",)),
    "fractions": Labels(
        FRACTIONS,
        float,
        {
            **{kind: series(kind) for kind in ("float64", "Float64", "float64 category", "object")},
            "float32": series("float32"),
            "Arrow": series(pd.ArrowDtype(pa.float64())),
            "decimal": series("object", Decimal),
            "decimal of Arrow": series(pd.ArrowDtype(pa.decimal128(20, 9)), Decimal),
        },
        {
            "point": fields(),
            "comma": fields(comma(), separator=";"),
            "comma and tabs": fields(comma(), "-", "\t"),
            "bars": fields(separator="|", change=comma()),
            "exponent": fields("{:.15e}".format),
            "plus": fields("{:+.12f}".format, "n/a"),
            "CR": fields(end="\r"),
            "CR and LF": fields(end="\r\n"),
        },
        ("auto", "numbers"),
    ),
    "codes": Labels(
        ["01", "1B", "02", "10"],
        str,
        TEXT_FRAMES | EMPTY_FRAMES,
        {"plain": fields(), "semicolons": fields(separator=";"), "quoted": fields(quoted)},
        ("auto", "classes"),
    ),
    "codes of digits": Labels(
        ["01", "02", "10"],
        str,
        TEXT_FRAMES,
        {"plain": fields(), "semicolons": fields(separator=";"), "quoted": fields(quoted)},
    ),
    "words": Labels(
        WORDS,
        str,
        TEXT_FRAMES,
        {
            "commas": fields(quoted),
            "semicolons": fields(quoted, separator=";"),
            "tabs": fields(quoted, separator="\t"),
        },
    ),
    "yes and no": Labels(
        [True, False],
        str,
        {
            **{kind: series(kind) for kind in ("boolean", "object", "boolean category")},
            "Arrow": series(pd.ArrowDtype(pa.bool_())),
            "text": series("str", str),
        },
        {"of Python": fields()},
    ),
    "yes and no as numbers": Labels(
        [True, False, True],
        float,
        {"boolean": series("boolean"), "Arrow": series(pd.ArrowDtype(pa.bool_()))},
        {
            "of Python": fields(),
            "of R": fields(lambda one: str(one).upper()),
            "of JSON": fields(lambda one: str(one).lower(), separator=";"),
            "numbers": fields(lambda one: str(int(one))),
        },
        ("numbers",),
    ),
    "dates": Labels(
        DAYS,
        lambda one: one.date().isoformat(),
        {
            **{f"in {unit}": series(f"datetime64[{unit}]") for unit in ("s", "us", "ns")},
            "UTC": series(pd.DatetimeTZDtype("us", "UTC"), lambda one: one.replace(tzinfo=dt.UTC)),
            "dates": series("object", dt.datetime.date),
            "datetimes": series("object"),
            "Arrow": series(pd.ArrowDtype(pa.date32()), dt.datetime.date),
            "categories": series("datetime64[us] category"),
            "text": series("str", lambda one: one.date().isoformat()),
        },
        {
            "dates": fields(lambda one: one.date().isoformat()),
            "midnight": fields(lambda one: one.isoformat(" ")),
            "T": fields(lambda one: one.isoformat("T"), separator=";"),
            "UTC": fields(lambda one: one.isoformat("T") + "Z"),
            "milliseconds": fields(lambda one: one.isoformat("T", "milliseconds") + "+00:00"),
        },
    ),
}


def sources(
    labels: Labels, values: Values, folder: Path, but: Sequence[str] = ()
) -> Iterator[tuple[str, Any]]:
    """The labels in every form, but for some of files."""
    for name, form in labels.frames.items():
        frame = pd.DataFrame({"site": SITES, "v": VALUES, "y": form(values)})
        yield f"{name}: frame", frame
        path = folder / f"{name}.parquet"
        frame.to_parquet(path)
        yield path.name, path
    for name, form in labels.files.items():
        if name in but:
            continue
        path = folder / f"{name.replace('/', '')}.csv"
        path.write_bytes(form(values))
        yield path.name, path
