"""Some 300 files that say the same, each written by two libraries: every reader reads the same.

They are read as training files, as new rows of `coterie predict`, by the files of an export, and by a
node. What is right is computed here, without any reader.
"""

from __future__ import annotations

import csv
import datetime as dt
import decimal
import io
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coterie.data.sources.files import DataForm
from coterie.data.tabular.encoder import Encoder
from coterie.data.tabular.new_rows import read_new_rows
from coterie.data.tabular.raw import Encode
from coterie.data.tabular.roles import Roles, read_targets
from coterie.data.tabular.tables import read_columns
from coterie.data.tabular.training_rows import read_training_rows
from coterie.flower.node.client_table import read_client_table
from coterie.flower.node.data_sources import rows_to_test
from tests.data import all_readers

ZONE = dt.timezone(dt.timedelta(hours=2))
MOMENTS = [dt.datetime(2024, 2, 28 + at % 2, 5 * at % 24, 30) for at in range(8)]
TABLE: dict[str, list[Any]] = {
    "site": ["007", "7", "12345678901234567890", "007", "1B", "7", "12345678901234567891", "é"],
    "code": ["01", "1B", "01", "08:30", "true", "1B", "01", "true"],
    "age": [63.5, None, 70.0, -0.125, 1e-3, 12345.678, None, 0.1],
    "count": [1, 2, None, 4, 900719925474099, 0, 7, 8],
    "smokes": [True, False, None, True, True, False, False, True],
    "seen": [*MOMENTS[:7], None],
    "town": ["Zürich", 'the "old" one', "a, b; c", "two\nlines", "Zürich", "Bern", "Bern", None],
    "y": ["yes", "no", "no", "yes", "no", "yes", "no", "yes"],
}
ROWS = len(TABLE["y"])
TOWNS = sorted({town for town in TABLE["town"] if town})
RULES: list[dict[str, Any]] = [
    {"name": "code", "common": ["01", "08:30", "1B", "true"], "rare": []},
    {"name": "age", "kind": "number", "fill": 3.0, "center": 1.0, "scale": 7.0, "flag": True},
    {"name": "count", "kind": "number", "fill": 5.0, "center": 2.0, "scale": 3.0, "flag": True},
    {"name": "smokes", "kind": "boolean", "fill": 0.5, "center": 0.0, "scale": 1.0, "flag": True},
    {"name": "seen", "kind": "time", "fill": 2e4, "center": 19781.0, "scale": 0.5, "flag": True},
    {"name": "town", "common": TOWNS, "rare": ["(missing)"]},
]
RECORD = {
    "rules": RULES,
    "features": None,
    "window": None,
    "step": 0.0,
    "client": "site",
    "labels": ["y"],
    "classes": ["no", "yes"],
    "kinds": {"site": "identifier", "y": "category", "code": "category", "town": "category"},
}
RECORD["kinds"] |= {rule["name"]: rule["kind"] for rule in RULES if "kind" in rule}  # type: ignore[operator]
FORM = DataForm(
    (),
    ("no", "yes"),
    columns={rule["name"]: rule.get("kind", list(rule.get("common", ()))) for rule in RULES},
)


def expected_inputs() -> np.ndarray:
    """What every reader has to find."""
    features: list[list[float]] = []
    for rule in RULES:
        values = TABLE[rule["name"]]
        if "common" in rule:
            features += [[float(value == name) for value in values] for name in rule["common"]]
            if rule["rare"]:
                features.append([float(value not in rule["common"]) for value in values])
            continue
        numbers = [rule["fill"] if value is None else _number(value) for value in values]
        features.append([(one - rule["center"]) / rule["scale"] for one in numbers])
        features.append([float(value is None) for value in values])
    return np.array(features, np.float64).T.astype(np.float32)


def _number(value: Any) -> float:
    if isinstance(value, dt.datetime):
        return (value - dt.datetime(1970, 1, 1)).total_seconds() / 86_400
    return float(value)


# --- the files ------------------------------------------------------------------------------------


def cell(value: Any, missing: str, comma: bool, zone: str) -> str:
    """A value as the field of a CSV file."""
    if value is None:
        return missing
    if isinstance(value, float):
        return repr(value).replace(".", ",") if comma else repr(value)
    if isinstance(value, dt.datetime):
        if zone == "zone":
            return value.replace(tzinfo=dt.UTC).astimezone(ZONE).isoformat()
        return value.isoformat(" " if zone == "space" else "T")
    return str(value)


def texts(missing: str, comma: bool, zone: str) -> dict[str, list[str]]:
    """All columns as fields; words for missing values stand in columns of numbers and times alone."""
    found = {}
    for name, values in TABLE.items():
        word = missing if name in ("age", "count", "seen") else ""
        found[name] = [cell(value, word, comma, zone) for value in values]
    return found


def by_csv(columns: dict[str, list[str]], separator: str, encoding: str) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=separator)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode(encoding)


def by_pandas(columns: dict[str, list[str]], separator: str, encoding: str) -> bytes:
    text = pd.DataFrame(columns).to_csv(sep=separator, index=False, lineterminator="\n")
    return text.encode(encoding)


def csv_files() -> Iterator[tuple[str, bytes]]:
    encodings = ("utf-8", "utf-8-sig", "utf-16")
    forms = ((",", False), (";", False), (";", True), ("\t", False), ("\t", True))
    words = ("", "None", "n/a", "-", ".", "#N/A", "<NA>", "NaT")
    zones = itertools.cycle(("space", "T", "zone"))
    orders = np.random.default_rng(0)
    for (separator, comma), word, encoding in itertools.product(forms, words, encodings):
        columns = texts(word, comma, next(zones))
        names = orders.permutation(list(columns))
        shuffled = {str(name): columns[str(name)] for name in names}
        suffix = "CSV" if encoding == "utf-16" else "csv"
        kind = f"{ord(separator)}-{comma}-{words.index(word)}-{encoding}"
        for writer in (by_csv, by_pandas):
            yield f"{kind}-{writer.__name__}.{suffix}", writer(shuffled, separator, encoding)
    # Forms that a program writes once in a while.
    plain = by_csv(texts("", False, "T"), ";", "utf-8")
    yield "big-endian.csv", "\ufeff".encode("utf-16-be") + plain.decode().encode("utf-16-be")
    yield "bars.csv", by_csv(texts("", False, "T"), "|", "utf-8")
    yield "for-excel.csv", b"sep=;\r\n" + plain
    yield "blank-lines.csv", b"\r\n\r\n" + plain


TYPES: dict[str, dict[str, pa.DataType]] = {
    "plain": {},
    "large": {"town": pa.large_string(), "code": pa.large_string(), "site": pa.large_string()},
    "views": {"town": pa.string_view(), "code": pa.string_view(), "site": pa.string_view()},
    "codes": {
        "town": pa.dictionary(pa.int8(), pa.string()),
        "y": pa.dictionary(pa.int32(), pa.string()),
    },
    "decimals": {"age": pa.decimal128(12, 4), "count": pa.decimal128(20, 0)},
    "fractions": {"count": pa.float64(), "smokes": pa.float64()},
    "seconds": {"seen": pa.timestamp("s")},
    "nanoseconds": {"seen": pa.timestamp("ns")},
    "zones": {"seen": pa.timestamp("us", "Asia/Kolkata")},
    "utc": {"seen": pa.timestamp("ms", "UTC")},
}


def typed_table(types: dict[str, pa.DataType], order: int) -> pa.Table:
    names = np.random.default_rng(order).permutation(list(TABLE))
    columns = {}
    for name in map(str, names):
        values = TABLE[name]
        kind = types.get(name)
        if kind is not None and pa.types.is_decimal(kind):
            values = [None if one is None else decimal.Decimal(repr(one)) for one in values]
        if kind is not None and pa.types.is_floating(kind):
            values = [None if one is None else float(one) for one in values]
        if kind is not None and pa.types.is_timestamp(kind) and kind.tz:
            values = [None if one is None else one.replace(tzinfo=dt.UTC) for one in values]
        columns[name] = pa.array(values, kind)
    return pa.table(columns)


def parquet_files(folder: Path) -> Iterator[Path]:
    for at, ((name, types), compression) in enumerate(
        itertools.product(TYPES.items(), ("snappy", "zstd", "none", "gzip"))
    ):
        table = typed_table(types, at)
        path = folder / f"{name}-{compression}-pyarrow.parquet"
        pq.write_table(table, path, compression=compression)
        yield path
        if name in ("views", "decimals"):  # types that pandas does not have
            continue
        frame = table.to_pandas(types_mapper=None if at % 2 else pd.ArrowDtype)
        path = folder / f"{name}-{compression}-pandas.parquet"
        # Every third with the index that a filter leaves.
        if at % 3 == 0:
            frame.index = frame.index + 5
        frame.to_parquet(path, compression=None if compression == "none" else compression)
        yield path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("suite")
    found = []
    for name, content in csv_files():
        (folder / name).write_bytes(content)
        found.append(folder / name)
    return [*found, *parquet_files(folder)]


# --- the readers ----------------------------------------------------------------------------------

Found = tuple[np.ndarray, list[str], list[str]]  # inputs, clients, labels


def training(path: Path) -> Found:
    roles = Roles("*", "y", "site")
    rows, kinds = read_training_rows([path], roles.kinds("classes"))
    if path.name.startswith("fractions"):  # yes and no as numbers
        kinds["smokes"] = "boolean"
    raw = read_columns(rows, {rule["name"]: kinds[rule["name"]] for rule in RULES}, Encode())
    y, names = read_targets(rows, "y", "classes")
    labels = [names[one] for one in y]
    return Encoder.read(RULES).encode(raw), list(map(str, roles.owners(rows)["client"])), labels


def prediction(path: Path) -> Found:
    new = read_new_rows(path, RECORD)
    return new.x, new.client.tolist(), new.label.tolist()


def node(path: Path) -> Found:
    table = read_client_table(path, {"label": "y"}, FORM, Encode())
    is_test = rows_to_test(ROWS)
    x = np.empty_like(expected_inputs())
    labels = np.empty(ROWS, dtype=object)
    # A fifth of a file's rows is test data; a node has a single client.
    for where, (raw, y) in ((~is_test, table.train), (is_test, table.test)):
        assert [column.name for column in raw.columns] == [rule["name"] for rule in RULES]
        x[where] = Encoder.read(RULES).encode(raw)
        labels[where] = np.array(FORM.classes)[y]
    return x, TABLE["site"], labels.tolist()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], Found]]:
    """The reader of an export, from its own files."""
    with all_readers.exported(tmp_path_factory.mktemp("export")) as of_export:

        def read(path: Path) -> Found:
            new = of_export(path, RECORD)
            assert new.clients is not None
            return new.values, list(new.clients), list(new.labels)

        yield read


READERS = ["training", "prediction", "node", "exported"]


@pytest.mark.parametrize("all_files", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("reader", READERS)
def test_all_files_say_the_same_to_every_reader(
    reader: str, all_files: bool, files: list[Path], exported: Callable[[Path], Found]
) -> None:
    """All files by every reader in the slow tests; in the others each reader takes a quarter of them."""
    assert len(files) >= 300
    if not all_files:
        first = READERS.index(reader)
        # The encodings of a word come one after another, so a quarter by number would miss some.
        order = np.random.default_rng(0).permutation(len(files))
        files = [files[at] for at in order[first :: len(READERS)]]
    read = {"training": training, "prediction": prediction, "node": node, "exported": exported}
    expected = expected_inputs()
    differences = []
    for path in files:
        try:
            x, clients, labels = read[reader](path)
        except Exception as error:  # noqa: BLE001 - a traceback is a difference
            differences.append(f"{path.name}: {type(error).__name__}: {error}")
            continue
        if not np.array_equal(x, expected):
            places = (
                np.argwhere(x != expected)[:3].tolist() if x.shape == expected.shape else x.shape
            )
            differences.append(f"{path.name}: inputs at {places}")
        if clients != TABLE["site"]:
            differences.append(f"{path.name}: clients {clients}")
        if labels != TABLE["y"]:
            differences.append(f"{path.name}: labels {labels}")
    assert not differences, "\n".join(differences[:20]) + f"\n{len(differences)} differences"
