"""Files as strangers have them, from spreadsheets and other programs: read right, or one line."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coterie as ct
from coterie.data.rows.reading import read_rows
from coterie.errors import DataError
from tests.refusals import refuses

ROWS = 40
COLUMNS = {
    "age": [f"{20 + at % 17}.5" for at in range(ROWS)],
    "ward": ["ab"[at % 2] for at in range(ROWS)],
    "client": [("north", "south")[at % 2] for at in range(ROWS)],
    "y": [str(at // 2 % 2) for at in range(ROWS)],
}


def text(separator: str = ",", line_end: str = "\n", head: str = "", **columns: list[str]) -> str:
    table = {**COLUMNS, **columns}
    lines = [separator.join(row) for row in zip(*table.values(), strict=True)]
    return line_end.join([head or separator.join(table), *lines]) + line_end


def load(path: Path) -> ct.Population:
    source = {"source": "file", "path": str(path)}
    return ct.load(source, features="*", partition={"kind": "natural"})


PLAIN = {
    "excel": "sep=;\r\n" + text(";", "\r\n"),
    "excel, quoted": '\ufeff"sep=;"\r\n' + text(";", "\r\n"),
    "bars": text("|"),
    "tabs": text("\t"),
    "blank lines first": "\n\n" + text(";"),
    "blank lines between": text().replace("\n", "\n\n"),
    "old Macintosh": text(line_end="\r"),
    "mixed line ends": text().replace("\n", "\r\n", 7),
    "quoted head after a mark": "\ufeff" + text(head='"age","ward","client","y"'),
    "labels with fractions": text(y=[f"{one}.0" for one in COLUMNS["y"]]),
    "decimal commas": text(";", age=[one.replace(".", ",") for one in COLUMNS["age"]]),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("content", PLAIN.values(), ids=PLAIN)
def test_files_of_other_programs_are_read_as_the_plain_one(content: str, tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_text(text())
    (tmp_path / "odd.csv").write_bytes(content.encode())
    expected = load(tmp_path / "plain.csv")
    found = load(tmp_path / "odd.csv")
    assert found.names == expected.names == ("north", "south")
    assert found.x.equal(expected.x)
    assert found.y.equal(expected.y)


OTHER_FORMS = {
    "thousands": [f'"1,{200 + at}.5"' for at in range(ROWS)],
    "percent": [f"{at} %" for at in range(ROWS)],
    "money": [f"${at}.50" for at in range(ROWS)],
    "no-break space": [f"1\u00a0{200 + at}" for at in range(ROWS)],
    "underscores": [f"1_{200 + at}" for at in range(ROWS)],
    "minus sign": [f"\u2212{at}" if at % 2 else str(at) for at in range(ROWS)],
    "day first": [f"{at % 28 + 1:02d}/01/2024" for at in range(ROWS)],
    "dots": [f"{at % 28 + 1}.1.2024" for at in range(ROWS)],
    "afternoon": [f"2024-01-{at % 28 + 1:02d} 05:00 PM" for at in range(ROWS)],
}


@pytest.mark.parametrize("values", OTHER_FORMS.values(), ids=OTHER_FORMS)
def test_numbers_and_dates_in_other_forms_are_said_to_be_categories(
    values: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text(text(age=values), encoding="utf-8")
    load(tmp_path / "t.csv")
    assert "column age: treated as categories" in capsys.readouterr().err


CODES = {
    "leading zeros": [f"{at:03d}" for at in range(ROWS)],
    "letters": [f"A{at}" for at in range(ROWS)],
    "few": [("1.2.3", "4.5.6")[at % 2] for at in range(ROWS)],
    "times of day": [f"08:{at:02d}" for at in range(ROWS)],
    "hexadecimal": [hex(at) for at in range(ROWS)],
}


@pytest.mark.parametrize("values", CODES.values(), ids=CODES)
def test_codes_are_no_numbers_in_another_form(
    values: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text(text(age=values))
    load(tmp_path / "t.csv")
    assert "treated as categories" not in capsys.readouterr().err


REFUSED = {
    "UTF-16 without a mark": text().encode("utf-16-le"),
    "zero bytes": text().encode().replace(b"22.5", b"22\x00.5", 1),
    "a comment first": b"# by a program, on a day\n" + text().encode(),
    "one more separator in each row": text().replace("\n", ",\n").encode().replace(b"y,", b"y", 1),
    "a quote that does not end": text().replace(",a,", ',"a,', 1).encode(),
    "a short last row": text().encode() + b"1\n",
    "no rows": b"age,ward,client,y\n",
    "nothing": b"",
    "a name twice": text(head="age,age,client,y").encode(),
    "infinity": text(age=["inf"] * ROWS).encode(),
    "Latin-1": text(ward=["Zürich"] * ROWS).encode("latin-1"),
}


@pytest.mark.parametrize("content", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError) as caught:
        load(tmp_path / "t.csv")
    assert len(str(caught.value).splitlines()) == 1


def test_names_with_spaces_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text(text(head="age ,ward, client,y"))
    with pytest.raises(DataError):
        load(tmp_path / "t.csv")
    rows = read_rows(tmp_path / "t.csv")
    assert rows.lines == ("t.csv: column 'age ', ' client': the name begins or ends with a space",)


def test_empty_columns_at_the_end_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text(text().replace("\n", ",,\n"))
    assert load(tmp_path / "t.csv").shape == (3,)
    assert (
        "Unnamed: 4, Unnamed: 5: left out (a pandas index, or without a name)"
        in capsys.readouterr().err
    )


def test_a_date_is_one_client_in_files_with_and_without_types(tmp_path: Path) -> None:
    days = [dt.date(2024, 2, 28), dt.date(2024, 2, 29)] * 4
    pq.write_table(pa.table({"day": days}), tmp_path / "dates.parquet")
    times = pd.DataFrame({"day": pd.to_datetime(days)})
    times.to_parquet(tmp_path / "times.parquet")
    times.to_csv(tmp_path / "t.csv", index=False)
    expected: tuple[Any, ...] = ("2024-02-28", "2024-02-29")
    for name in ("dates.parquet", "times.parquet", "t.csv"):
        assert read_rows(tmp_path / name, ["day"]).factor("day")[1] == expected, name


@pytest.mark.parametrize(
    "values",
    [
        pa.array([dt.time(at % 24) for at in range(ROWS)]),
        pa.array([dt.timedelta(hours=at) for at in range(ROWS)]),
        pa.array([[1.0, float(at)] for at in range(ROWS)]),
        pa.array([b"ab"] * ROWS),
        pa.array([{"a": at} for at in range(ROWS)]),
        pa.array([[("a", at)] for at in range(ROWS)], pa.map_(pa.string(), pa.int64())),
        pa.array([2**64 - 1 - at for at in range(ROWS)], pa.uint64()),
    ],
    ids=lambda values: str(values.type),
)
def test_types_without_numbers_are_one_line(values: pa.Array, tmp_path: Path) -> None:
    labels = [int(one) for one in COLUMNS["y"]]
    table = pa.table({"age": values, "client": COLUMNS["client"], "y": labels})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError) as caught:
        load(tmp_path / "t.parquet")
    assert "column age: " in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.string()], ids=str)
def test_whole_numbers_that_would_be_rounded_are_one_line(
    kind: pa.DataType, tmp_path: Path
) -> None:
    numbers = pa.array([2**62 + at for at in range(ROWS)]).cast(kind)
    csv = kind == pa.string()
    table = pa.table({**COLUMNS, "age": numbers})
    path = tmp_path / ("t.csv" if csv else "t.parquet")
    if csv:
        table.to_pandas().to_csv(path, index=False)
    else:
        pq.write_table(table, path)
    with pytest.raises(DataError) as caught:
        load(path)
    assert "column age" in str(caught.value)
    assert str(2**62) in str(caught.value)


def test_the_largest_whole_number_that_is_exact_is_read(tmp_path: Path) -> None:
    numbers = [2**53 - at for at in range(ROWS)]
    pq.write_table(pa.table({"age": pa.array(numbers)}), tmp_path / "t.parquet")
    assert read_rows(tmp_path / "t.parquet").numbers("age").tolist() == numbers


@pytest.mark.parametrize("note", ["[" * 100_000 + "]" * 100_000, "3", '{"columns": null}'])
def test_a_note_of_pandas_that_it_does_not_write_is_refused(note: str, tmp_path: Path) -> None:
    table = pa.table(COLUMNS).replace_schema_metadata({b"pandas": note.encode()})
    pq.write_table(table, tmp_path / "t.parquet")
    with refuses(DataError, "cannot-be-read", "t.parquet"):
        load(tmp_path / "t.parquet")


STRANGE = (10**400, 16**6000, Fraction(10**400), Decimal("sNaN"), "\ud800")


@pytest.mark.parametrize("value", STRANGE, ids=[type(one).__name__ for one in STRANGE])
@pytest.mark.parametrize("column", COLUMNS)
def test_objects_that_no_file_can_hold_are_refused(column: str, value: object) -> None:
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
    rows[3] = {**rows[3], column: value}
    with refuses(DataError, "cannot-be-read", "data"):
        ct.load(pd.DataFrame(rows, dtype=object), features="*")


# --- what is left out, or read otherwise than it may have been meant, is said -----------------------


def test_clients_with_few_rows_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clients = ["alone", *COLUMNS["client"][1:]]
    (tmp_path / "t.csv").write_text(text(client=clients))
    assert load(tmp_path / "t.csv").names == ("north", "south")
    (line,) = capsys.readouterr().err.splitlines()
    assert "1 client (alone)" in line


def test_a_split_by_clients_is_not_kept_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    split = ["train" if one == "north" else "test" for one in COLUMNS["client"]]
    (tmp_path / "t.csv").write_text(text(split=split))
    assert all(map(len, load(tmp_path / "t.csv").train))
    (line,) = capsys.readouterr().err.splitlines()
    assert "partition.split" in line


def test_other_files_of_a_folder_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.csv", "b.tsv", "c.csv.gz"):
        (tmp_path / name).write_text(text())
    (tmp_path / "more").mkdir()
    assert len(load(tmp_path).y) == ROWS
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("b.tsv, c.csv.gz, more")


@pytest.mark.parametrize(
    ("column", "values", "kinds"),
    [
        ("ward", ["yes", "no"], "number in a.csv, category in b.csv"),
        ("ward", ["2020-01-01", "2020-01-02"], "number in a.csv, time in b.csv"),
        ("y", ["true", "false"], "number in a.csv, boolean in b.csv"),
        ("y", ["yes", "no"], "number in a.csv, category in b.csv"),
    ],
)
def test_kinds_that_differ_between_files_are_named(
    column: str, values: list[str], kinds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text(text(**{column: ["0", "1"] * (ROWS // 2)}))
    (tmp_path / "b.csv").write_text(text(**{column: values * (ROWS // 2)}))
    data = load(tmp_path)
    assert len(data.y) == 2 * ROWS
    lines = capsys.readouterr().err.splitlines()
    assert sum(f"column {column}: {kinds}" in line for line in lines) == 1


def test_a_single_column_of_codes_is_a_category(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text(age=["007", "7"] * (ROWS // 2)))
    source = {"source": "file", "path": str(tmp_path / "t.csv"), "features": "age"}
    data = ct.load(source, partition={"kind": "natural"})
    assert data.x[:2].tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_text_that_says_nan_is_named_in_a_file_with_types(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # As `.map(str)` leaves it of missing values.
    wards = ["nan", *COLUMNS["ward"][1:]]
    pd.DataFrame({**COLUMNS, "ward": wards}).to_parquet(tmp_path / "t.parquet")
    load(tmp_path / "t.parquet")
    lines = capsys.readouterr().err.splitlines()
    assert any("column ward: 'nan' as text" in line for line in lines)


def test_points_before_thousands_in_a_file_of_decimal_commas_are_one_line(tmp_path: Path) -> None:
    ages = [one.replace(".", ",") for one in COLUMNS["age"]]
    incomes = ["1.234", "987", "12.500", "5.870"] * (ROWS // 4)
    (tmp_path / "t.csv").write_text(text(";", age=ages, income=incomes))
    with pytest.raises(DataError) as caught:
        load(tmp_path / "t.csv")
    assert "column income: in conflict ('1.234'" in str(caught.value)
    # Without a comma elsewhere, or with a zero in front, a point is a decimal point.
    (tmp_path / "t.csv").write_text(text(";", income=incomes))
    plain = read_rows(tmp_path / "t.csv")
    (tmp_path / "labels.csv").write_text(text(";", age=ages, y=incomes))
    with pytest.raises(DataError) as caught:
        load(tmp_path / "labels.csv")
    assert "column y: in conflict ('1.234'" in str(caught.value)
    assert plain.numbers("income")[:2].tolist() == [1.234, 987.0]
    rates = ["0.125", "1.250"] * (ROWS // 2)
    (tmp_path / "t.csv").write_text(text(";", age=ages, income=rates))
    assert read_rows(tmp_path / "t.csv").numbers("income")[:2].tolist() == [0.125, 1.25]


def test_a_frame_whose_index_became_a_column_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    frame = pd.DataFrame({**COLUMNS, "age": list(map(float, COLUMNS["age"]))})
    shuffled = frame.sample(frac=1, random_state=0).reset_index()
    for index in (frame.reset_index(), frame.rename_axis("row").reset_index(), shuffled):
        ct.load(index, features="*", partition={"kind": "natural"})
        (line,) = capsys.readouterr().err.splitlines()
        assert f"column {index.columns[0]}: contains row numbers" in line
    ct.load(frame, features="*", partition={"kind": "natural"})
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["2020-01-01", "2020-01-02", "unknown"], ["its times", "not times, such as 'unknown'"]),
        (["45%", "50%", "12%"], ["numbers with other characters"]),
        (["01/02/2013", "02/02/2013", "13/02/2013"], ["dates in a different format"]),
    ],
)
def test_a_few_texts_that_a_person_reads_are_one_line(
    values: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Most are dates: one in 13 is not.
    column = [values[0 if at % 13 else 2] if at % 2 else values[1] for at in range(ROWS)]
    if values[2] == "unknown":
        column = [f"2020-01-{at % 13 + 1:02}" for at in range(ROWS - 1)] + ["unknown"]
    (tmp_path / "t.csv").write_text(text(ward=column))
    load(tmp_path / "t.csv")
    (line,) = capsys.readouterr().err.splitlines()
    assert all(one in line for one in ["column ward", *words])


def test_times_stored_as_text_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    days = [f"2020-01-0{at % 3 + 1}" for at in range(ROWS)]
    frame = pd.DataFrame({**COLUMNS, "age": list(map(float, COLUMNS["age"])), "ward": days})
    frame.to_parquet(tmp_path / "t.parquet")
    load(tmp_path / "t.parquet")
    (line,) = capsys.readouterr().err.splitlines()
    assert "its times are treated as categories, because they are stored as text" in line


@pytest.mark.parametrize("name", ["(missing)", "(other)"])
def test_a_category_with_the_name_of_a_feature_is_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text(ward=["a", name] * (ROWS // 2)))
    with refuses(DataError, "in-conflict", "t.csv"):
        load(tmp_path / "t.csv")
