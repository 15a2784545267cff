"""CSV files as spreadsheet programs write them: what cannot be read is said in their words."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from coterie.data.rows.reading import read_rows
from coterie.data.tabular.training_rows import read_training_rows
from coterie.errors import Code, DataError
from tests.data.test_tables import columns, population, write
from tests.refusals import refuses


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        (b"age,y\n63,1\n64\n", ("cannot-be-read", "t.csv")),
        (b"age,y\n63,1,2\n", ("cannot-be-read", "t.csv")),
        ("cp,y\nd\u00e4mlich,1\n".encode("latin-1"), ("cannot-be-read", "t.csv")),
    ],
    ids=["short", "long", "latin-1"],
)
def test_what_a_spreadsheet_program_wrote_otherwise(
    tmp_path: Path, content: bytes, refusal: tuple[Code, str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with refuses(DataError, *refusal) as caught:
        read_rows(path)
    assert "\n" not in str(caught.value)


def test_commas_and_one_column_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("note,y\na;b,1\n")
    assert read_rows(path).names == ("note", "y")
    path.write_text("y\n1\n")
    assert read_rows(path).names == ("y",)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["age, years", "age; years", "age\n(years)", 'a "b", c', "age"])
def test_a_quoted_name_may_have_other_separators(name: str, separator: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=separator, quoting=csv.QUOTE_ALL)
        writer.writerows([[name, "y"], [1, 0]])
    rows = read_rows(path)
    assert rows.names == (name, "y")
    assert rows.numbers(name).tolist() == [1.0]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("begin", ["\ufeff\n", "\ufeff\r\n\r\n", "\n", ""])
def test_what_separates_most_names_is_the_separator(
    separator: str, begin: str, tmp_path: Path
) -> None:
    other = ";" if separator == "," else ","
    names = ("age", f"height{other} width", "y")
    lines = [separator.join(line) for line in (names, ("1", "2", "3"))]
    path = tmp_path / "t.csv"
    path.write_text(begin + "\n".join(lines), encoding="utf-8", newline="")
    rows = read_rows(path)
    assert rows.names == names
    assert [rows.numbers(name).tolist() for name in names] == [[1], [2], [3]]


def test_a_word_in_a_column_of_numbers_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = columns()
    ages = [str(one) if one is not None else None for one in table["age"]]
    known = sum(one is not None for one in ages)
    first = next(at for at, one in enumerate(ages) if one is not None)
    table["age"] = [*ages[:first], "unknown", *ages[first + 1 :]]
    path = write(tmp_path, table, "t.csv")
    population(path)
    printed = capsys.readouterr().err
    assert "column age: its numbers are treated as categories" in printed
    assert f"1 of {known} are not numbers, such as 'unknown'" in printed
    # Where the user says that they are codes, and where words are no exception, nothing is said.
    population(path, encode={"categories": ["age"]})
    population(
        write(tmp_path, {**table, "age": ["old", *ages[1:]]}, "t.parquet"), features=["ward"]
    )
    assert "treated as categories" not in capsys.readouterr().err


def test_numbers_that_are_stored_as_text_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = columns()
    table["age"] = [None if one is None else str(one) for one in table["age"]]
    table["code"] = [str(one % 5) for one in range(len(table["y"]))]
    population(write(tmp_path, table))
    printed = capsys.readouterr().err
    assert (
        "column age: its numbers are treated as categories, because they are stored as text"
        in printed
    )
    assert "column code" not in printed


# pandas reads a file of this size in parts, by several threads.
LARGE = 60_000
LINE = "{row},Zürich,2024-01-31 08:{minute:02d}:00,{row}.5,a note that is longer than most of them, {row}\n"
HEAD = "row,city,seen,weight,note,last\n"


def large_lines() -> list[str]:
    return [LINE.format(row=row, minute=row % 60) for row in range(LARGE)]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_a_large_file_is_read_as_a_small_one(tmp_path: Path, mark: bytes, end: str) -> None:
    text = (HEAD + "".join(large_lines())).replace("\n", end)
    path = tmp_path / "t.csv"
    path.write_bytes(mark + text.encode())
    rows = read_rows(path)
    assert rows.names == ("row", "city", "seen", "weight", "note", "last")
    assert len(rows) == LARGE
    assert [rows.kind(name) for name in rows.names] == [
        "number",
        "category",
        "time",
        "number",
        "category",
        "number",
    ]
    assert rows.numbers("last").tolist() == list(range(LARGE))
    assert rows.factor("city")[1] == ("Zürich",)


@pytest.mark.parametrize(
    ("line", "refusal"),
    [
        (b"1,2\n", ("cannot-be-read", "t.csv")),
        (b"1,2,3,4,5,6,7\n", ("cannot-be-read", "t.csv")),
        ("1,Zürich,2024-01-31,1,n,2\n".encode("latin-1"), ("cannot-be-read", "t.csv")),
    ],
    ids=["short", "long", "latin-1"],
)
def test_trouble_at_the_end_of_a_large_file(
    tmp_path: Path, line: bytes, refusal: tuple[Code, str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes((HEAD + "".join(large_lines())).encode() + line)
    with refuses(DataError, *refusal) as caught:
        read_rows(path)
    assert "\n" not in str(caught.value)


def test_line_breaks_in_quotes_of_a_large_file(tmp_path: Path) -> None:
    """Wherever a part of the file begins, a line break within quotes ends no row."""
    lines = [f'{row},"a\n,b""\n{row}",2024-01-31,1.5,n,2\n' for row in range(4 * LARGE)]
    path = tmp_path / "t.csv"
    path.write_text(HEAD + "".join(lines))
    rows = read_rows(path)
    assert rows.numbers("row").tolist() == list(range(4 * LARGE))
    assert rows.texts("city")[-1] == f'a\n,b"\n{4 * LARGE - 1}'


def test_a_word_at_the_end_of_a_large_file_makes_its_column_text(tmp_path: Path) -> None:
    """Numbers in all parts of the file but the last stay as they are written."""
    lines = [line.replace(f"{row},", f"{row:07d},", 1) for row, line in enumerate(large_lines())]
    path = tmp_path / "t.csv"
    path.write_text(HEAD + "".join(lines) + "1B,Bern,2024-01-31,1.5,n,2\n")
    assert read_rows(path).texts("row")[[7, -1]].tolist() == ["0000007", "1B"]


@pytest.mark.parametrize(
    "text",
    [
        "ward,code\n{a},{b}\n",
        "code,ward\n{b},{a}\n",
        'ward,code\n"{a}",{b}\n',
        "ward;code\n{a};{b}\n",
    ],
    ids=["last", "first", "quoted", "semicolons"],
)
def test_zeros_before_whole_numbers_make_codes(tmp_path: Path, text: str) -> None:
    head, line = text.splitlines()
    path = tmp_path / "t.csv"
    rows = [line.format(a=f"w{row:02d}", b=row) for row in range(100, 300)]
    known = {"client": "identifier"}

    def said(last: str) -> str:
        path.write_text("\n".join([head, *rows, line.format(a="01", b=last)]))
        return " ".join(read_training_rows([path], known)[0].lines)

    # Zeros of another column, which is text, say nothing of this one.
    assert "column code: treated as codes, because values such as '007' begin" in said("007")
    assert said("7") == ""
    assert said("0") == ""


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_spellings_of_labels_and_clients_are_said_where_inputs_are_plain_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    names = ["Bern", "BERN"] * 20
    table = {"age": list(range(40)), "y": ["yes", "yes "] * 20, "client": names}
    population(write(tmp_path, table, f"t.{suffix}"), features=["age"])
    printed = capsys.readouterr().err
    assert "column y: 'yes' and 'yes ' differ only in spelling" in printed
    assert "column client: 'BERN' and 'Bern' differ only in spelling" in printed
