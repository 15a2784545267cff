"""CSV files as spreadsheet programs write them: what cannot be read is said in their words."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.data.rows import read_rows
from coterie.errors import DataError
from tests.data.test_tables import columns, population, write


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"age,y\n63,1\n64\n", "line 3 has 1 of 2 fields"),
        (b"age,y\n63,1,2\n", "more fields than names in the head line"),
        ("cp,y\nd\u00e4mlich,1\n".encode("latin-1"), "column cp, got text that is not UTF-8"),
    ],
    ids=["short", "long", "latin-1"],
)
def test_what_a_spreadsheet_program_wrote_otherwise(
    tmp_path: Path, content: bytes, line: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=line) as caught:
        read_rows(path)
    assert "\n" not in str(caught.value)


def test_commas_and_one_column_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("note,y\na;b,1\n")
    assert read_rows(path).names == ("note", "y")
    path.write_text("y\n1\n")
    assert read_rows(path).names == ("y",)


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
    assert "column age: its numbers are taken for categories" in printed
    assert f"1 of {known} are none, such as 'unknown'" in printed
    # Where the user says that they are codes, and where words are no exception, nothing is said.
    population(path, encode={"categories": ["age"]})
    population(
        write(tmp_path, {**table, "age": ["old", *ages[1:]]}, "t.parquet"), features=["ward"]
    )
    assert "taken for categories" not in capsys.readouterr().err


def test_numbers_that_are_stored_as_text_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = columns()
    table["age"] = [None if one is None else str(one) for one in table["age"]]
    table["code"] = [str(one % 5) for one in range(len(table["y"]))]
    population(write(tmp_path, table))
    printed = capsys.readouterr().err
    assert (
        "column age: its numbers are taken for categories, since they are stored as text" in printed
    )
    assert "column code" not in printed
