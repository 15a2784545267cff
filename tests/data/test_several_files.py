"""Several files of one federation: dates of any year, and columns that not all of them have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import coterie as ct

OPTIONS: dict[str, Any] = {"client": "site", "label": "y"}


def frame(site: str, **columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"site": [site] * 20, "y": [0, 1] * 10, **columns})


def write(table: pd.DataFrame, path: Path) -> str:
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path)
    return str(path)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("far", ["9999-12-31", "1600-01-01", "2024-02-28 05:00:00.123457"])
def test_dates_of_any_year_are_those_of_one_file(far: str, suffix: str, tmp_path: Path) -> None:
    moments = np.array([far, "2020-01-02"] * 10, "datetime64[us]")
    seen: Any = moments
    if suffix == "csv":
        seen = [far, "2020-01-02"] * 10
    paths = [
        write(frame(site, seen=seen), tmp_path / f"{site}.{suffix}") for site in ("north", "south")
    ]
    days = moments.astype(np.int64) / 1e6 / 86_400
    for path, files in ((paths[0], 1), (paths, 2)):
        table = ct.load("file", path=path, features="*", **OPTIONS).table
        assert table is not None
        assert np.array_equal(table.raw.values[:, 0], np.tile(days, files))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_column_that_one_file_lacks_is_missing_in_its_rows(
    suffix: str, turned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {
        "e": np.arange(20) % 3,
        "smokes": [True, False] * 10,
        "seen": pd.date_range("2020-01-01", periods=20),
        "town": ["Bern", "Chur"] * 10,
    }
    whole = write(frame("north", d=np.arange(20), **more), tmp_path / f"north.{suffix}")
    part = write(frame("south", d=np.arange(20)), tmp_path / f"south.{suffix}")
    paths = [part, whole] if turned else [whole, part]
    found = ct.load("file", path=paths, features="*", **OPTIONS).table
    assert found is not None
    kinds = {column.name: column.kind for column in found.raw.columns}
    expected = {"d": "number", "e": "number", "smokes": "boolean", "seen": "time"}
    assert kinds == {**expected, "town": "category"}
    lacking = slice(0, 20) if turned else slice(20, 40)
    missing = np.isnan(found.raw.values)
    names = list(kinds)
    for name in more:
        column = missing[:, names.index(name)]
        assert column[lacking].all()
        assert column.sum() == 20
    assert not missing[:, names.index("d")].any()
    assert f"south.{suffix}: no column e, smokes, seen, town" in capsys.readouterr().err


def test_a_column_that_is_not_used_may_be_in_one_file_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [
        write(frame("north", d=np.arange(20), e=np.arange(20)), tmp_path / "north.csv"),
        write(frame("south", d=np.arange(20)), tmp_path / "south.csv"),
    ]
    found = ct.load("file", path=paths, features=["d"], **OPTIONS)
    assert found.x[:, 0].tolist() == [*range(20), *range(20)]
    assert "no column" not in capsys.readouterr().err
    both = ct.load("file", path=paths, features=["d", "e"], **OPTIONS).table
    assert both is not None
    assert np.isnan(both.raw.values[:, 1]).tolist() == [False] * 20 + [True] * 20
    assert "south.csv: no column e: missing in every row" in capsys.readouterr().err


def test_words_for_missing_numbers_are_said_of_all_files_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    north = frame("north", dose=["n/a", "1.5"] * 10)
    south = frame("south", dose=[0.5] * 20)
    west = frame("west", dose=["2.5", "1.5", "n/a", "0.5"] * 5)
    tables = {"north": north, "south": south, "west": west}
    paths = [write(table, tmp_path / f"{name}.csv") for name, table in tables.items()]
    ct.load("file", path=paths, features="*", **OPTIONS)
    assert "column dose: 'n/a' treated as missing values in 15 rows" in capsys.readouterr().err
