"""Numbers as text: zeros before them, decimal signs, and words in their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import coterie as ct
from coterie.data.rows import read_rows
from coterie.errors import DataError

OPTIONS: dict[str, Any] = {"client": "site", "label": "y"}
CODES = ["000", "001", "002", "003"]
LINES = [f"s{at % 2},{CODES[at % 4]},{at},{at % 2}" for at in range(40)]
HEAD = "site,code,value,y"
WAYS = {
    "plain": "\n".join([HEAD, *LINES]),
    "CR": "\r".join([HEAD, *LINES]),
    "CR and LF": "\r\n".join([HEAD, *LINES]),
    "CR after the first lines": "\n".join([HEAD, *LINES[:3], ""]) + "\r".join(LINES[3:]),
    "a space": "\n".join([HEAD, *LINES]).replace(",00", ", 00"),
    "a tab": "\n".join([HEAD, *LINES]).replace(",00", ",\t00"),
    "tabs": "\n".join([HEAD, *LINES]).replace(",00", ", 00").replace(",", "\t"),
    "quotes elsewhere": "\n".join([HEAD, *LINES]).replace("s1", '"s1"'),
    "quotes, and a space": "\n".join([HEAD, *LINES]).replace("s1", '"s1"').replace(",00", ", 00"),
    "an empty line": "\n".join([HEAD, *LINES[:9], "", *LINES[9:]]),
    "a quoted head": "\n".join(['"site","code","value","y"', *LINES]),
}


@pytest.mark.parametrize("way", WAYS)
def test_zeros_before_a_number_make_codes_however_a_file_is_written(
    way: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_bytes(WAYS[way].encode())
    table = ct.load("file", path=str(tmp_path / "rows.csv"), features="*", **OPTIONS).table
    assert table is not None
    code = table.raw.columns[0]
    assert (code.name, code.kind) == ("code", "category")
    assert [one.strip() for one in code.categories] == CODES


@pytest.mark.parametrize(
    ("separator", "values"),
    [
        (";", ["1.234", "987,5", "2.500", "12,25"]),
        ("\t", ["1,234", "987", "2,500", "12.5"]),
        ("|", ["0,5", "1", "-3", "2.5e3"]),
    ],
)
def test_both_decimal_signs_in_a_column_are_refused(
    separator: str, values: list[str], tmp_path: Path
) -> None:
    lines = [["site", "price", "y"]]
    lines += [[f"s{at % 2}", values[at % 4], str(at % 2)] for at in range(40)]
    text = "\n".join(separator.join(line) for line in lines)
    (tmp_path / "rows.csv").write_text(text, encoding="utf-8")
    path = str(tmp_path / "rows.csv")
    with pytest.raises(DataError) as caught:
        ct.load("file", path=path, features="*", **OPTIONS)
    problem = caught.value.problems[0]
    assert problem.code == "in-conflict"
    shown = str(caught.value)
    assert "price" in shown
    assert sum(repr(value) in shown for value in values) == 2
    with pytest.raises(DataError):
        read_rows(path).numbers("price")
    codes = ct.load("file", path=path, features="*", columns={"price": "category"}, **OPTIONS)
    assert codes.table is not None
    assert codes.table.raw.columns[0].categories == tuple(sorted(values))


@pytest.mark.parametrize("values", [["1,5", "2", "-3,25"], ["1.5", "2", "-3.25"]])
def test_one_decimal_sign_is_read(values: list[str], tmp_path: Path) -> None:
    text = "site;price\n" + "\n".join(f"a;{value}" for value in values)
    (tmp_path / "rows.csv").write_text(text, encoding="utf-8")
    assert read_rows(tmp_path / "rows.csv").numbers("price").tolist() == [1.5, 2.0, -3.25]
