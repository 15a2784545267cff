"""Troubles with rows that others reported, each with the thread: right here, or one line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coterie.data import rows
from coterie.data.rows.kinds import CATEGORY, IDENTIFIER, NUMBER, TIME
from coterie.data.rows.reading import read_rows
from coterie.data.tabular.new_rows import read_new_rows
from coterie.data.tabular.training_rows import read_training_rows
from coterie.errors import DataError
from tests.data.test_rows_kinds import population, text
from tests.refusals import refuses


@pytest.mark.parametrize(
    "content",
    [
        "A,B,C\n1,4,7,\n2,5,8,\n3,6,9,\n",  # github.com/pandas-dev/pandas/issues/14124
        "A,B,C,D\n0, 5, 9, 20, \n0, 6, 21,33\n",  # github.com/pandas-dev/pandas/issues/9295
        'A,B,C\n100636,"R",0,\n',  # github.com/pandas-dev/pandas/issues/15203
        'A;B;C\n"04.05.2021";"9.8";"759";\n',  # github.com/pandas-dev/pandas/issues/41304
        "A,B,C\n1,2,3\n4,5\n",  # the reverse: pandas fills short rows
    ],
)
def test_rows_that_are_longer_or_shorter_than_the_head_line(tmp_path: Path, content: str) -> None:
    """They would move every value by a column."""
    with refuses(DataError, "cannot-be-read", "t.csv") as caught:
        read_rows(text(tmp_path, content))
    assert "\n" not in str(caught.value)


def test_a_blank_line_after_the_head_line(tmp_path: Path) -> None:
    """github.com/apache/arrow/issues/2883"""
    for separator in ",;":
        rows = read_rows(text(tmp_path, f"a{separator}b\n\n1{separator}2\n"))
        assert (len(rows), rows.numbers("b").tolist()) == (1, [2.0])


@pytest.mark.parametrize(
    "values",
    [["ab\r\ncd", "e\nf"] * 60_000, ["ab\ncd " * 8_000] * 100, ["ab\ncd " * 500_000, "e\nf"]],
    ids=["short", "each of 48 kB", "one of 3 MB"],
)
def test_line_breaks_in_quotes_in_a_large_file(tmp_path: Path, values: list[str]) -> None:
    """github.com/pandas-dev/pandas/issues/59009 and github.com/apache/arrow/issues/51368"""
    lines = [f'"{value}",{at}' for at, value in enumerate(values)]
    rows = read_rows(text(tmp_path, "text,i\n" + "\n".join(lines) + "\n"))
    assert rows.texts("text").tolist() == values
    assert rows.numbers("i")[-1] == len(values) - 1


@pytest.mark.parametrize(
    "codes",
    [
        ["001", "1"],  # github.com/wireservice/csvkit/issues/977
        ["02116", "2116"],  # github.com/sdv-dev/SDV/issues/2780
        ["093418", "00798360000180"],  # github.com/turicas/rows/issues/302
    ],
)
def test_zeros_before_identifiers_and_codes(tmp_path: Path, codes: list[str]) -> None:
    path = text(tmp_path, "id,v\n" + "".join(f"{code},1\n" for code in codes))
    rows, _ = read_training_rows([path], {"id": IDENTIFIER})
    assert rows.texts("id").tolist() == codes


def test_large_identifiers_beside_missing_ones(tmp_path: Path) -> None:
    """github.com/pandas-dev/pandas/issues/56678 and github.com/aws/aws-sdk-pandas/issues/1115"""
    large = [4873214862074861312, None, 4873214862074861313, 1378260489959724228]
    expected = [None if one is None else str(one) for one in large]
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": large}), path)
    assert read_rows(path).texts("id").tolist() == expected
    lines = "".join(f"{'' if one is None else one},1\n" for one in large)
    rows = read_rows(text(tmp_path, f"id,v\n{lines}"), ["id"])
    assert rows.texts("id").tolist() == expected
    # Where they passed through a fraction, nobody knows what they were.
    frame = pd.DataFrame({"id": np.array([4873214862074861312, 4873214862074861313], float)})
    with refuses(DataError, "out-of-range", "data"):
        read_rows(frame).texts("id")


def test_numbers_and_words_in_one_column_of_categories() -> None:
    """github.com/scikit-learn/scikit-learn/issues/11379 and 18073"""
    frame = pd.DataFrame({"c": [1001, 1002, "guitar", 1001.0, "1002", np.nan]})
    rows = read_rows(frame)
    assert rows.kind("c") == CATEGORY
    assert rows.texts("c").tolist() == ["1001", "1002", "guitar", "1001", "1002", None]


RECORD = {
    "rules": [
        {"name": "c", "common": ["A", "B"], "rare": []},
        {"name": "age", "kind": NUMBER, "fill": 0.0, "center": 0.0, "scale": 1.0, "flag": False},
    ],
    "features": None,
    "window": None,
    "step": 0.0,
    "client": "client",
    "labels": ["y"],
    "classes": ["no", "yes"],
    "kinds": {"c": CATEGORY, "age": NUMBER, "client": IDENTIFIER, "y": CATEGORY},
}


def test_a_longer_unknown_category_is_not_cut_to_a_known_one() -> None:
    """github.com/scikit-learn/scikit-learn/pull/12471: "Aunknown" became "A"."""
    new = read_new_rows([{"c": "Aunknown", "age": 1}, {"c": "A", "age": 2}], RECORD)
    assert new.x.tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 2.0]]
    assert any("got Aunknown; known: A, B" in line for line in new.lines)


def test_columns_in_another_order() -> None:
    """github.com/scikit-learn/scikit-learn/issues/7242 and github.com/dmlc/xgboost/issues/8357"""
    frame = pd.DataFrame({"c": ["A", "B"], "age": [1.0, 2.0], "more": [0, 0]})
    one = read_new_rows(frame, RECORD)
    other = read_new_rows(frame[["more", "age", "c"]], RECORD)
    assert one.x.tolist() == other.x.tolist()


def test_times_with_the_offsets_of_summer_and_winter(tmp_path: Path) -> None:
    """github.com/pandas-dev/pandas/issues/42229 and 50887"""
    path = text(tmp_path, "t,v\n2020-10-25T01:30:00+02:00,1\n2020-10-25T02:00:00+01:00,2\n")
    rows = read_rows(path)
    assert rows.kind("t") == TIME
    # From 23:30 to 01:00 in Greenwich.
    assert np.diff(rows.times("t")) * 24 * 60 == pytest.approx([90.0])


def test_days_before_months_are_no_times_in_silence(tmp_path: Path) -> None:
    """github.com/pandas-dev/pandas/issues/12585: one format for half of the rows, another for the rest."""
    days = [f"{day:02d}/03/2024" for day in range(1, 32)]
    path = text(tmp_path, "t,v\n" + "".join(f"{day},1\n" for day in days))
    rows = read_rows(path)
    assert rows.kind("t") == CATEGORY
    with refuses(DataError, "wrong-type", "t.csv"):
        rows.times("t")


def test_words_of_brain_imaging_for_missing_values(tmp_path: Path) -> None:
    """github.com/pandas-dev/pandas/issues/16078: `n/a` in tables of BIDS."""
    rows, kinds = read_training_rows([text(tmp_path, "age\tsex\n34\tn/a\nn/a\tF\n")], {})
    assert kinds == {"age": NUMBER, "sex": CATEGORY}
    assert np.isnan(rows.numbers("age")).tolist() == [False, True]


def test_namibia_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """github.com/OasisLMF/OasisLMF/issues/307 and github.com/wireservice/csvkit/issues/968: the code
    NA is a missing value of a CSV file, as tables.md says, and never without a word where it is a
    client; a file with types has the code."""
    content = "client,age,y\n" + "".join(
        f"{('NA', 'NC')[at % 2]},{at},{at // 2 % 2}\n" for at in range(60)
    )
    assert population(text(tmp_path, content)).names == ("NC",)
    assert "left out 30 rows without client" in capsys.readouterr().err
    table = pa.table({"client": ["NA", "NC"] * 30, "age": range(60), "y": [0, 0, 1, 1] * 15})
    pq.write_table(table, tmp_path / "t.parquet")
    assert population(str(tmp_path / "t.parquet")).names == ("NA", "NC")


READ_ALONE = """
import sys
sys.modules["coterie"] = None  # any import of it fails
from rows.errors import DataError
from rows.reading import read_rows
for path in sys.argv[1:]:
    try:
        found = read_rows(path)
        found.numbers("age")
        found.column("wards")
    except DataError as error:
        print(error)
"""


def test_an_export_refuses_files_in_the_same_lines(tmp_path: Path) -> None:
    shutil.copytree(Path(rows.__file__).parent, tmp_path / "rows")
    texts = {
        "word": "age,ward\nold,1\n",
        "large": "age,ward\n1e300,1\n",
        "twice": "age,age\n1,2\n",
        "ragged": "age,ward\n1,2\n1,2,3\n",
        "no column": "age,ward\n1,2\n",
    }
    paths = [str(tmp_path / "none.csv")]
    for name, content in texts.items():
        paths.append(str(tmp_path / f"{name}.csv"))
        Path(paths[-1]).write_text(content)

    paths.append(str(tmp_path / "long.parquet"))
    pd.DataFrame({"age": [2**53 + 1]}).to_parquet(paths[-1])

    def line(path: str) -> str:
        try:
            found = read_rows(path)
            found.numbers("age")
            found.column("wards")
        except DataError as error:
            return str(error)
        return "none"

    command = [sys.executable, "-c", READ_ALONE, *paths]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == list(map(line, paths)), done.stderr
