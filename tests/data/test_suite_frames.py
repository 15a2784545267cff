"""Frames of pandas with every type of column and every index: what training, predictions and nodes
find in one, and in the files that pandas writes of it.

What is right is computed here, without any reader.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from coterie.data.sources.files import DataForm
from tests.data.all_readers import (
    ALL_CASES,
    Case,
    Read,
    Record,
    differing,
    differing_new_rows,
    load,
    node_of_table,
    record_of,
    refuse_any,
    training,
)

ROWS = 40
START = dt.datetime(2024, 2, 28)


def gaps(values: list[Any], first: int) -> list[Any]:
    return [None if at % 7 == first else one for at, one in enumerate(values)]


TABLE: dict[str, list[Any]] = {
    "site": [["007", "7", "é x"][at % 3] for at in range(ROWS)],
    "town": gaps([["Zürich", "Bern", "01", "1"][at % 4] for at in range(ROWS)], 1),
    "age": gaps([20 + at / 8 for at in range(ROWS)], 2),
    "count": gaps([3 * at - 5 for at in range(ROWS)], 3),
    "smokes": gaps([at // 2 % 2 == 0 for at in range(ROWS)], 4),
    "seen": gaps([START + dt.timedelta(days=at, hours=at % 24) for at in range(ROWS)], 5),
    "day": gaps([START.date() + dt.timedelta(days=at) for at in range(ROWS)], 6),
    "y": [["yes", "no", "no"][at // 2 % 3] for at in range(ROWS)],
}
KINDS = {"age": "number", "count": "number", "smokes": "boolean", "seen": "time", "day": "time"}
FEATURES = ["town", *KINDS]
TOWNS = sorted({town for town in TABLE["town"] if town})
FORM = DataForm((), ("no", "yes"), columns={"town": TOWNS, **KINDS})


def number_of(value: Any) -> float:
    if value is None:
        return np.nan
    if isinstance(value, dt.datetime):
        return (value - dt.datetime(1970, 1, 1)).total_seconds() / 86_400
    if isinstance(value, dt.date):
        return float((value - dt.date(1970, 1, 1)).days)
    return float(value)


def right_values() -> NDArray[np.float64]:
    columns = [[np.nan if town is None else TOWNS.index(town) for town in TABLE["town"]]]
    columns += [[number_of(value) for value in TABLE[name]] for name in KINDS]
    return np.array(columns, np.float64).T


# --- types ----------------------------------------------------------------------------------------

Values = list[Any]
Type = Callable[[Values], pd.Series]


def of(kind: Any, change: Callable[[Any], Any] = lambda one: one) -> Type:
    return lambda values: pd.Series(
        [None if one is None else change(one) for one in values], dtype=kind
    )


def of_arrow(kind: pa.DataType, change: Callable[[Any], Any] = lambda one: one) -> Type:
    def made(values: Values) -> pd.Series:
        array = pa.array([None if one is None else change(one) for one in values], kind)
        return pd.Series(pd.array(array, dtype=pd.ArrowDtype(kind)))

    return made


def categories(kind: str) -> Type:
    return lambda values: of(kind)(values).astype("category")


TEXT = {
    "object": of("object"),
    "str": of("str"),
    "string": of("string"),
    "categories": of("category"),
    "large": of_arrow(pa.large_string()),
    "views": of_arrow(pa.string_view()),
    "dictionary": of_arrow(pa.dictionary(pa.int32(), pa.string())),
}
TIMES = {
    **{unit: of(f"datetime64[{unit}]") for unit in ("us", "s", "ms", "ns")},
    "object": of("object"),
    "UTC": of(pd.DatetimeTZDtype("us", "UTC"), lambda one: one.replace(tzinfo=dt.UTC)),
    "Kolkata": of(pd.DatetimeTZDtype("ns", "Asia/Kolkata"), lambda one: one.replace(tzinfo=dt.UTC)),
    "zones": of("object", lambda one: one.replace(tzinfo=dt.UTC).astimezone(ZONE)),
    "NumPy": of("object", np.datetime64),
    "categories": categories("datetime64[us]"),
    "Arrow": of_arrow(pa.timestamp("ms")),
    "Arrow with a zone": of_arrow(
        pa.timestamp("us", "Europe/Zurich"), lambda one: one.replace(tzinfo=dt.UTC)
    ),
}
ZONE = dt.timezone(dt.timedelta(hours=2))
TYPES: dict[str, dict[str, Type]] = {
    "site": TEXT,
    "town": TEXT,
    "y": TEXT,
    "age": {
        **{kind: of(kind) for kind in ("float64", "Float64", "float32", "object")},
        "NumPy": of("object", np.float32),
        "decimals": of("object", Decimal),
        "categories": categories("float64"),
        "Arrow": of_arrow(pa.float64()),
        "Arrow decimals": of_arrow(pa.decimal128(12, 3), Decimal),
        "Arrow large decimals": of_arrow(pa.decimal256(40, 3), Decimal),
    },
    "count": {
        **{kind: of(kind) for kind in ("float64", "Int64", "Int16", "object")},
        "NumPy": of("object", np.int16),
        "decimals": of("object", Decimal),
        "Arrow": of_arrow(pa.int32()),
    },
    "smokes": {
        **{kind: of(kind) for kind in ("boolean", "object")},
        "NumPy": of("object", np.bool_),
        "categories": categories("boolean"),
        "Arrow": of_arrow(pa.bool_()),
    },
    "seen": TIMES,
    "day": {
        "object": of("object"),
        "datetime64": of("datetime64[s]"),
        "categories": of("category"),
        "Arrow": of_arrow(pa.date32()),
        "Arrow milliseconds": of_arrow(pa.date64()),
    },
}


def frame(types: dict[str, str] | None = None) -> pd.DataFrame:
    """The table with some types, or the first of each column."""
    columns = {}
    for name, values in TABLE.items():
        kind = (types or {}).get(name) or next(iter(TYPES[name]))
        columns[name] = TYPES[name][kind](values)
    return pd.DataFrame(columns)


# --- indices --------------------------------------------------------------------------------------

Indexed = Callable[[pd.DataFrame], Any]
INDICES: dict[str, Indexed] = {
    "shifted": lambda one: one.set_axis(range(5, 5 + ROWS)),
    "same": lambda one: one.set_axis([0] * ROWS),
    "texts": lambda one: one.set_axis([f"row {at}" for at in range(ROWS)]),
    "dates": lambda one: one.set_axis(pd.date_range("2020", periods=ROWS)),
    "two levels": lambda one: one.set_axis(pd.MultiIndex.from_arrays([range(ROWS), ["q"] * ROWS])),
    "site": lambda one: one.set_index("site"),
    "site and age": lambda one: one.set_index(["site", "age"]),
    "site and none": lambda one: one.set_index(["site", pd.RangeIndex(ROWS)]),
    "categories": lambda one: one.astype({"site": "category"}).set_index("site"),
    "town": lambda one: one.set_index("town"),
    "smokes": lambda one: one.set_index("smokes"),
    "seen": lambda one: one.set_index("seen"),
    "named columns": lambda one: one.rename_axis(columns="what"),
    "columns as categories": lambda one: one.set_axis(pd.CategoricalIndex(one.columns), axis=1),
    "columns of Arrow": lambda one: one.set_axis(
        pd.Index(list(one.columns), dtype=pd.ArrowDtype(pa.string())), axis=1
    ),
    "another order": lambda one: one[one.columns[::-1]],
    "parts": lambda one: pd.concat([one.iloc[:9], one.iloc[9:]]).iloc[:ROWS],
    "backwards": lambda one: one[::-1].iloc[::-1],
    "records": lambda one: pd.DataFrame.from_records(one.to_dict("records")),
    "objects": lambda one: one.astype(object),
    "converted": lambda one: one.convert_dtypes(),
    "table of Arrow": lambda one: pa.Table.from_pandas(one.set_index("site")),
}
OF_ARROW = dict.fromkeys(("age", "count", "smokes", "seen", "day"), "Arrow")
OF_ARROW |= {"site": "large", "town": "large", "y": "large"}


def frames() -> Iterator[tuple[str, Any]]:
    """Each type of each column, types at random, and each index."""
    for name, types in TYPES.items():
        for kind in types:
            yield f"{name} {kind}", frame({name: kind})
    rng = np.random.default_rng(0)
    for at in range(12):
        chosen = {name: str(rng.choice(list(types))) for name, types in TYPES.items()}
        yield f"random {at} {chosen}", frame(chosen)
    for name, index in INDICES.items():
        yield f"index {name}", index(frame())
        with suppress(KeyError):  # pandas cannot convert all types of Arrow
            yield f"index {name}, of Arrow", index(frame(OF_ARROW))


def cases(folder: Path, record: Record, inputs: NDArray[np.float32]) -> Iterator[Case]:
    """The frames, and the files that pandas writes of them."""
    right = Read(inputs, TABLE["site"], TABLE["y"])
    for at, (name, one) in enumerate(frames()):
        yield Case(name, one, right, record)
        if not isinstance(one, pd.DataFrame):
            continue
        path = folder / f"{at}.{'parquet' if at % 2 else 'csv'}"
        # Of some types pandas, or Arrow, writes no such file.
        with suppress(ValueError, TypeError, NotImplementedError):
            if at % 2:
                one.to_parquet(path)
            else:
                one.to_csv(path, date_format="%Y-%m-%dT%H:%M:%S%z" if at % 4 else None)
            yield Case(f"{name}, as {path.name}", path, right, record)


@ALL_CASES
def test_frames_of_every_type_and_index(all_cases: bool, tmp_path: Path) -> None:
    options: dict[str, Any] = {"features": FEATURES, "encode": {"rare": 1}}
    made = load(frame(), **options)
    record = record_of(made, FEATURES)
    right = Read(right_values(), TABLE["site"], TABLE["y"])
    refuse_any(list(training(made).differences(right)))
    found = list(cases(tmp_path, record, made.x.numpy()))
    assert len(found) >= 180

    def train(case: Case) -> Read:
        made = load(case.source, **options)
        assert record_of(made, FEATURES) == record
        return training(made)

    def train_on_all(case: Case) -> Read:
        table = load(case.source, features="*").table
        assert table is not None
        names = [column.name for column in table.raw.columns]
        assert sorted(names) == sorted(FEATURES)
        order = [names.index(name) for name in FEATURES]
        return Read(table.raw.values[:, order], None, TABLE["y"])

    def at_node(case: Case) -> Read:
        if case.is_file:
            return node_of_table(case.source, FORM)
        return node_of_table(case.source, FORM, TABLE["y"])

    of_values = [Case(one.name, one.source, right, record) for one in found]
    refuse_any(
        [
            *differing(of_values, train, "train", all_cases),
            *differing(of_values, train_on_all, "train on *", all_cases),
            *differing(of_values, at_node, "node", all_cases),
            *differing_new_rows(found, all_cases, tmp_path),
        ]
    )
