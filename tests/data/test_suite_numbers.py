"""Columns of numbers as they are, in every type and form: no reader scales or rounds one of them.

What is right is computed here, without any reader.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from coterie.errors import DataError
from tests.data.all_readers import (
    ALL_CASES,
    Case,
    Read,
    differing,
    differing_new_rows,
    load,
    node,
    record_of,
    refuse_any,
    training,
)
from tests.refusals import refuses

ROWS = 40
SITES = ["a", "b"] * (ROWS // 2)
LABELS = ["no", "yes", "yes", "no"] * (ROWS // 4)
CLASSES = ("no", "yes")
FEATURES = ["first", "second"]
# Whole and small, so that every type has them; fractions of powers of two are exact in all floats.
WHOLE = [[(7 * at) % 100 for at in range(ROWS)], [(3 * at) % 50 for at in range(ROWS)]]
FRACTIONS = [[value / 4 - 3 for value in values] for values in WHOLE]
SIGNS = [[value % 2 == 0 for value in values] for values in WHOLE]

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
NULLABLE = [name.replace("int", "Int").replace("uI", "UI") for name in INTEGERS]
OF_ARROW = [f"{name}[pyarrow]" for name in (*INTEGERS, "halffloat", "float", "double")]
FLOATS = ["float16", "float32", "float64", "Float32", "Float64"]
BOOLEANS = ["bool", "boolean", "bool[pyarrow]", "object"]
DECIMALS = [pa.decimal128(12, 0), pa.decimal128(12, 4), pa.decimal256(40, 3)]


def columns() -> Iterator[tuple[str, list[Any], list[pd.Series]]]:
    """Types, and the two columns in each: as values, and as series."""
    for kind in (*INTEGERS, *NULLABLE, *FLOATS, *OF_ARROW, "object"):
        yield kind, WHOLE, [pd.Series(values).astype(kind) for values in WHOLE]
    for kind in (*FLOATS, "double[pyarrow]", "object"):
        yield f"{kind} fractions", FRACTIONS, [pd.Series(one).astype(kind) for one in FRACTIONS]
    for kind in BOOLEANS:
        yield f"{kind} signs", SIGNS, [pd.Series(values).astype(kind) for values in SIGNS]
    for decimals in DECIMALS:
        values = FRACTIONS if decimals.scale else WHOLE
        exact = [[decimal.Decimal(value) for value in column] for column in values]
        kind = pd.ArrowDtype(decimals)
        yield str(decimals), values, [pd.Series(pd.array(one, dtype=kind)) for one in exact]
        yield f"{decimals} of Python", values, [pd.Series(one, dtype=object) for one in exact]


def sources(name: str, frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    """A frame in all forms."""
    stem = folder / name.replace(" ", "-")
    frame.to_parquet(stem.with_suffix(".parquet"))
    frame.to_csv(stem.with_suffix(".csv"), index=False)
    comma = stem.with_name(f"{stem.name}-comma.csv")
    frame.to_csv(comma, index=False, sep=";", decimal=",")
    tabs = stem.with_name(f"{stem.name}-tabs.CSV")
    frame[frame.columns[::-1]].to_csv(tabs, sep="\t", lineterminator="\r\n")
    files = [stem.with_suffix(".parquet"), stem.with_suffix(".csv"), comma, tabs]
    table = pa.Table.from_pandas(frame, preserve_index=False)
    found: dict[str, Any] = {path.name: path for path in files}
    return found | {f"{name} frame": frame, f"{name} table of Arrow": table}


def cases(folder: Path) -> Iterator[Case]:
    for name, values, series in columns():
        frame = pd.DataFrame({"site": SITES, "first": series[0], "second": series[1], "y": LABELS})
        right = Read(np.array(values, np.float32).T, SITES, LABELS)
        record = record_of(load(frame, features=FEATURES), FEATURES)
        for form, source in sources(name, frame, folder).items():
            yield Case(form, source, right, record)


@ALL_CASES
def test_numbers_of_every_type_are_used_as_they_are(all_cases: bool, tmp_path: Path) -> None:
    found = list(cases(tmp_path))
    assert len(found) >= 200
    files = [one for one in found if one.is_file]
    refuse_any(
        [
            *differing(
                found,
                lambda one: training(load(one.source, features=FEATURES)),
                "train",
                all_cases,
            ),
            *differing_new_rows(found, all_cases, tmp_path),
            *differing(files, lambda one: node(one.source, CLASSES, FEATURES), "node", all_cases),
        ]
    )


@pytest.mark.parametrize("kind", ["decimal", "comma"])
def test_a_missing_number_is_filled_whatever_type_the_column_has(kind: str, tmp_path: Path) -> None:
    values: list[Any] = [None if at % 7 == 2 else value for at, value in enumerate(FRACTIONS[0])]
    frame = pd.DataFrame({"site": SITES, "first": pd.Series(values, dtype="float64")})
    plain = frame.assign(second=FRACTIONS[1], y=LABELS)
    other: Any = tmp_path / "comma.csv"
    if kind == "comma":
        plain.to_csv(other, index=False, sep=";", decimal=",")
    else:
        exact = [None if one is None else decimal.Decimal(one) for one in values]
        other = plain.assign(first=pd.Series(exact, dtype=object))
    expected = load(plain, features=FEATURES)
    found = load(other, features=FEATURES)
    assert record_of(found, FEATURES) == record_of(expected, FEATURES)
    refuse_any(list(training(found).differences(training(expected))))


@pytest.mark.parametrize("kind", ["integers of Python", "decimals", "text"])
def test_whole_numbers_that_no_float_has_are_refused(kind: str, tmp_path: Path) -> None:
    large = [2**64 + at % 2 for at in range(ROWS)]
    values: Any = [decimal.Decimal(one) for one in large] if kind == "decimals" else large
    frame = pd.DataFrame({"site": SITES, "first": pd.Series(values, dtype=object), "y": LABELS})
    source: Any = frame
    if kind == "text":
        source = tmp_path / "rows.csv"
        frame.to_csv(source, index=False)
    with refuses(DataError, "out-of-range", source.name if kind == "text" else "data"):
        load(source, features=["first"])


@pytest.mark.parametrize("sign", [".", ","])
def test_large_numbers_among_fractions_are_measurements(sign: str, tmp_path: Path) -> None:
    values = [1.5 * at if at % 2 else 2.0**60 + at * 2**10 for at in range(ROWS)]
    lines = [
        f"{site};{value:.17g};{label}"
        for site, value, label in zip(SITES, values, LABELS, strict=True)
    ]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["site;first;y", *lines]).replace(".", sign))
    right = Read(np.array(values, np.float32)[:, None], SITES, LABELS)
    refuse_any(list(training(load(path, features=["first"])).differences(right)))
