"""Values that a program reads otherwise than a person: the right value, or a line that names it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import coterie as ct
from coterie.data.rows.reading import read_rows
from coterie.data.sources.files import DataForm, read_file
from coterie.data.tabular.new_rows import read_new_rows
from coterie.data.tabular.raw import Encode
from coterie.errors import DataError
from coterie.flower.node.client_table import read_client_table
from coterie.flower.node.data_sources import labels_of, with_labels
from coterie.flower.node.node_source import places
from tests.refusals import refuses

OPTIONS: dict[str, Any] = {"features": "*", "client": "site", "label": "y"}
READING = dict.fromkeys(("columns", "missing", "encode", "window")) | {"split": "split"}
ROWS = 40


def frame(values: Sequence[Any] | np.ndarray, name: str = "f", dtype: Any = object) -> pd.DataFrame:
    """Two sites, two classes, a number, and a column whose values repeat."""
    table = pd.DataFrame(
        {"site": ["a", "b"] * 20, "y": [0, 0, 1, 1] * 10, "v": np.arange(float(ROWS))}
    )
    return table.assign(**{name: pd.Series([*values] * (ROWS // len(values)), dtype=dtype)})


def written(path: Path, values: Sequence[str], separator: str = ",") -> str:
    lines = [["site", "y", "f"]]
    lines += [["ab"[at % 2], str(at // 2 % 2), values[at % len(values)]] for at in range(ROWS)]
    path.write_text("\n".join(separator.join(line) for line in lines) + "\n", encoding="utf-8")
    return str(path)


def column(source: Any, name: str = "f", **options: Any) -> tuple[str, tuple[str, ...], Any]:
    """The kind of a column as a run has it, its categories, and its values."""
    options = OPTIONS | options
    if isinstance(source, str):
        made = ct.load("file", path=source, **options)
    else:
        made = ct.load(source, **options)
    assert made.table is not None
    raw = made.table.raw
    place = [one.name for one in raw.columns].index(name)
    return raw.columns[place].kind, raw.columns[place].categories, raw.values[:, place]


# --- values of Python in a column ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["site", "y", "f"])
@pytest.mark.parametrize("values", [[1, True, 0, False], [np.True_, 2.0, "x", None]])
def test_true_among_numbers_is_refused(name: str, values: list[Any]) -> None:
    options = {"columns": {"f": "category"}} if name == "f" else {}
    with refuses(DataError, "in-conflict", "data") as caught:
        ct.load(frame(values, name), **OPTIONS, **options)
    assert f"column {name}: in conflict (True and" in str(caught.value)


def test_a_number_and_the_same_text_are_one_client_and_a_line_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = ct.load(frame([1, "1", 2.0, "2"], "site"), **OPTIONS)
    assert made.names == ("1", "2")
    assert "column site: 1 and '1'; 2.0 and '2' " in capsys.readouterr().err
    assert ct.load(frame(["1", "2"], "site"), **OPTIONS).names == ("1", "2")
    assert "column site" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "kind", "numbers"),
    [
        ([True, False, "n/a", None], "boolean", [1.0, 0.0, np.nan, np.nan]),
        ([1, 2.5, " - ", None], "number", [1.0, 2.5, np.nan, np.nan]),
        ([Decimal("1.5"), 2, "n/a", 3.5], "number", [1.5, 2.0, np.nan, 3.5]),
    ],
)
def test_words_for_missing_values_among_values_of_python(
    values: list[Any], kind: str, numbers: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    found, _, read = column(frame(values))
    assert found == kind
    assert np.array_equal(read[:4], numbers, equal_nan=True)
    shown = capsys.readouterr().err
    assert f"column f: {values[2].strip()!r}" in shown
    assert "10 rows" in shown


def test_words_for_missing_values_in_a_column_of_yes_and_no(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "rows.csv", ["true", "False", "n/a", "None"])
    kind, _, read = column(path)
    assert kind == "boolean"
    assert np.array_equal(read[:4], [1.0, 0.0, np.nan, np.nan], equal_nan=True)
    assert "column f: 'n/a', 'None'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "values",
    [
        pd.to_timedelta([1, 2], unit="h"),
        [timedelta(hours=1), timedelta(hours=2)],
        [time(8, 30), time(9)],
        [np.timedelta64(1, "ms"), None],
    ],
)
def test_durations_and_times_of_day_are_refused_in_frames_and_parquet_alike(
    values: Any, tmp_path: Path
) -> None:
    table = frame(list(values), dtype=None if isinstance(values, pd.Index) else object)
    table.to_parquet(tmp_path / "rows.parquet")
    for source, place in ((table, "data"), (str(tmp_path / "rows.parquet"), "rows.parquet")):
        with refuses(DataError, "wrong-type", place) as caught:
            column(source)
        assert "column f" in str(caught.value)
        column(source, "v", encode={"leave_out": ["f"]})


@pytest.mark.parametrize("kind", ["float16", "float32", "Float32", "float64", "Float64"])
def test_short_floats_are_named_by_their_own_digits(kind: str, tmp_path: Path) -> None:
    table = frame([0.1, 2.0], "site", kind)
    table.to_parquet(tmp_path / "rows.parquet")
    table.astype({"site": "float64" if kind == "float16" else kind}).round(1).to_csv(
        tmp_path / "rows.csv", index=False
    )
    for source in (table, str(tmp_path / "rows.parquet"), str(tmp_path / "rows.csv")):
        rows = read_rows(source, ["site"])
        assert rows.factor("site")[1] == ("0.1", "2"), source
    assert ct.load(table, **OPTIONS).names == ("0.1", "2")


# --- whole numbers that float64 rounds -------------------------------------------------------------

LONG = "9007199254740993"


@pytest.mark.parametrize(
    "values",
    [
        [LONG, "1", "", "9007199254740995"],
        [LONG, "n/a"],
        ["123456789012345678901", "1"],
        [f"{LONG}.0", "15"],
        [f"-000{LONG}", ""],
        ["9" * 5000, "1"],
    ],
)
@pytest.mark.parametrize("separator", [",", ";"])
def test_long_whole_numbers_of_a_file_are_refused_as_numbers_and_kept_as_text(
    values: list[str], separator: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "rows.csv", values, separator)
    with pytest.raises(DataError) as caught:
        column(path)
    problem = caught.value.problems[0]
    assert (problem.code, Path(problem.path).name) == ("out-of-range", "rows.csv")
    assert "column f" in str(caught.value)
    kind, categories, _ = column(path, columns={"f": "category"})  # as codes
    assert kind == "category"
    assert set(categories) == {value.removesuffix(".0") for value in values if value}


@pytest.mark.parametrize("value", [2**53 + 1, np.uint64(2**63), Decimal(2**53 + 1), LONG])
def test_long_whole_numbers_of_python_are_refused(value: Any) -> None:
    for values in ([value, 1, None, 2], [1, 2, "n/a", value]):
        with pytest.raises(DataError) as caught:
            column(frame(values), columns={"f": "number"})
        assert caught.value.problems[0].code == "out-of-range"


@pytest.mark.parametrize(
    "values",
    [["9007199254740992", "1", ""], ["1e17", "3", ""], ["12345678901234567.5", "1"], [LONG, "1.5"]],
)
def test_other_large_numbers_are_numbers(values: list[str], tmp_path: Path) -> None:
    kind, _, read = column(written(tmp_path / "rows.csv", values))
    assert kind == "number"
    assert read[0] == float(values[0])


# --- numbers that are none here --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "separator", "shown"),
    [
        (["2.5", "<1.0", "3.5", "4.5"], ",", "10 of 40 "),
        (["2", ">= 10"], ",", "20 of 40 "),
        (["1.234,5", "2.000,5", "3,5"], ";", "'1.234,5'"),
        (['"1,234.5"', '"2,000.5"', "3.5"], ",", "'1,234.5'"),
        (["-1\u202f234,5", "7"], ";", "234,5"),
    ],
)
def test_a_line_names_few_numbers_that_were_taken_for_categories(
    values: list[str],
    separator: str,
    shown: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = written(tmp_path / "rows.csv", values, separator)
    assert column(path)[0] == "category"
    printed = capsys.readouterr().err
    assert "column f: " in printed
    assert shown in printed
    column(path, encode={"categories": ["f"]})
    assert "column f: " not in capsys.readouterr().err


@pytest.mark.parametrize("values", [["<18", ">=18"], ["1.2.3", "1.10.0"], ["0-9", "10-19", "20"]])
def test_groups_and_versions_are_categories_without_a_line(
    values: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert column(written(tmp_path / "rows.csv", values))[0] == "category"
    assert "column f: " not in capsys.readouterr().err


def test_fractions_that_differ_by_zeros_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "rows.csv", ["1.5", "1.50", "10", "x"])
    assert column(path)[1] == ("1.5", "1.50", "10", "x")
    assert "column f: '1.5' and '1.50'" in capsys.readouterr().err
    made = ct.load("file", path=path, features=["y"], label="site", client="f")
    assert made.names == ("1.5", "1.50", "10", "x")
    assert "column f: '1.5' and '1.50'" in capsys.readouterr().err


# --- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "separator", "names"),
    [
        ('h;"d, in m";y', ";", ("h", "d, in m", "y")),
        ('"d, in m";h;y', ";", ("d, in m", "h", "y")),
        ('\ufeff"d, in m"|"h;i"|y', "|", ("d, in m", "h;i", "y")),
        ('"d,\nin m";h;y', ";", ("d,\nin m", "h", "y")),
        ('"a ""b"", c"\th\ty', "\t", ('a "b", c', "h", "y")),
        ('"h;i","d",y', ",", ("h;i", "d", "y")),
        ('5" pipe;h;y', ";", ('5" pipe', "h", "y")),
        ('"d, in m"', ",", ("d, in m",)),
    ],
)
def test_a_quoted_name_does_not_decide_the_separator(
    head: str, separator: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    rows = [separator.join(["1", "2", "3"][: len(names)])] * 3
    (tmp_path / "rows.csv").write_bytes("\n".join([head, *rows, ""]).encode())
    rows = read_rows(tmp_path / "rows.csv")
    assert rows.names == names
    assert rows.frame.to_numpy().tolist() == [[1, 2, 3][: len(names)]] * 3


@pytest.mark.parametrize("value", [b"\x001", b"w\x00", b"\x00"])
def test_zero_bytes_anywhere_in_a_file_are_refused(value: bytes, tmp_path: Path) -> None:
    line = b"a,1,12345\n"
    for before in (1, 2**20 // len(line) + 10):
        content = b"site,y,f\n" + line * before + b"b,0," + value + b"\n" + line * 3
        (tmp_path / "rows.csv").write_bytes(content)
        with refuses(DataError, "cannot-be-read", "rows.csv"):
            read_rows(tmp_path / "rows.csv")


# --- several files, labels and nodes ---------------------------------------------------------------


def sites(path: Path, names: list[Any], kind: Any) -> str:
    table = frame([0.5, 1.5]).assign(site=pd.Series(names * (ROWS // len(names)), dtype=kind))
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path)
    return str(path)


@pytest.mark.parametrize("kind", [int, float, str, object])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_clients_that_are_numbers_have_one_order(suffix: str, kind: Any, tmp_path: Path) -> None:
    values = [kind(2), kind(10), kind(9), kind(100)] if kind is not object else [2, 10, 9, 100]
    path = sites(tmp_path / f"north.{suffix}", values, kind)
    more = sites(tmp_path / f"south.{suffix}", values[:2], kind)
    for files in ([path], [path, more], [more, path]):
        made = ct.load("file", path=files, **OPTIONS)
        assert made.names == ("2", "9", "10", "100"), files


def test_files_that_are_numbers_have_the_order_of_numbers(tmp_path: Path) -> None:
    files = [sites(tmp_path / f"{name}.csv", ["a"], str) for name in (10, 9, 2)]
    made = ct.load("file", path=files, features=["v"], label="y", client="(file)")
    assert made.names == ("2", "9", "10")


@pytest.mark.parametrize(
    "options", [{"features": ["v"]}, {"features": "v"}, {"encode": {"leave_out": ["f"]}}]
)
@pytest.mark.parametrize("values", [["1.234", "987,5"], [LONG, "1"]])
def test_a_column_without_a_use_is_not_refused(
    values: list[str], options: dict[str, Any], tmp_path: Path
) -> None:
    paths = []
    for name in ("north", "south"):
        paths.append(written(tmp_path / f"{name}.csv", values, ";"))
        text = Path(paths[-1]).read_text(encoding="utf-8").splitlines()
        lines = [f"{line};{at}" for at, line in enumerate(text)]
        Path(paths[-1]).write_text("\n".join([f"{text[0]};v", *lines[1:]]), encoding="utf-8")
    for path in (paths[:1], paths):
        made = ct.load("file", path=path, **OPTIONS | options)
        assert len(made.y) == ROWS * len(path)
        with pytest.raises(DataError) as caught:
            ct.load("file", path=path, **OPTIONS)
        assert "column f" in str(caught.value)
        assert "{" not in str(caught.value)
        encode = Encode.model_validate(options.get("encode", {}))
        read = {**READING, **OPTIONS, **options, "path": path, "encode": encode}
        found = read_file(None, read, "classes").described("classes")
        why = {name: (kind, line) for name, kind, line in found}
        assert why["f"][0] == "number"
        assert "not readable" in why["f"][1]
        assert why["v"] == ("number", "40 different numbers")


def test_an_inspection_counts_words_for_missing_values(tmp_path: Path) -> None:
    for values, kind in ((["true", "False", "n/a"], "boolean"), (["2024-01-02", "-"], "time")):
        path = written(tmp_path / "rows.csv", values)
        found = read_file(None, {**READING, **OPTIONS, "path": path}, "classes").described(
            "classes"
        )
        lacking = [values[at % len(values)] for at in range(ROWS)].count(values[-1])
        assert found[-1][:2] == ("f", kind)
        assert f"{lacking} of 40 missing" in found[-1][2]


LABELS = {
    "codes": ["01", "02", "10"],
    "numbers": ["1", "2", "3"],
    "truths": ["true", "False"],
}


@pytest.mark.parametrize("word", ["n/a", "-", "None"])
@pytest.mark.parametrize("form", LABELS)
def test_a_word_among_codes_and_truths_is_a_missing_label_to_every_reader(
    form: str, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = LABELS[form]
    kept = sum(at % (len(known) + 1) < len(known) for at in range(ROWS))
    path = written(tmp_path / "rows.csv", [*known, word])
    options = {"features": ["y"], "client": "site", "label": "f"}
    for files in ([path], [path, written(tmp_path / "more.csv", [*known, word])]):
        made = ct.load("file", path=files, **options)
        assert made.classes == len(known)
        assert len(made.y) == kept * len(files)
        assert f"column f: {word!r}" in capsys.readouterr().err
    record = {"rules": None, "features": ["y"], "window": None, "client": "site", "shape": [1]}
    kinds = {"site": "identifier", "f": "category"}
    record |= {"labels": ["f"], "classes": sorted(known), "kinds": kinds}
    assert list(read_new_rows(path, record).label[: len(known) + 1]) == [*known, ""]
    rows = with_labels(read_rows(path, ["f"]), "f", sorted(known))
    assert rows.texts("f").tolist() == (known * ROWS)[:kept]


@pytest.mark.parametrize("form", ["csv", "parquet", "frame"])
def test_words_of_the_user_are_missing_values_to_every_reader(form: str, tmp_path: Path) -> None:
    """In numbers, categories, labels and clients; of training, of new rows and of a node."""
    words = ["unknown", "-999"]
    rows = {
        "site": ["a", "b", "a", "b"] * 10,
        "y": ["no", "yes", "unknown", "no"] * 10,
        "n": ["1", "-999", "2.5", " unknown "] * 10,
        "w": [1, -999, 3, 4] * 10,
        "f": ["red", "unknown", "red", "blue"] * 10,
    }
    table = pd.DataFrame(rows)
    source: Any = str(tmp_path / f"rows.{form}")
    if form == "csv":
        table.to_csv(source, index=False)
    elif form == "parquet":
        table.to_parquet(source)
    else:
        source = table
    options = OPTIONS | {"missing": words, "columns": {"n": "number"}}
    assert column(source, "f", **options)[:2] == ("category", ("blue", "red"))
    assert column(source, "f", missing=["blue"])[1] == ("red", "unknown")
    found = [column(source, name, **options)[2] for name in ("n", "w")]
    # Rows without a label are left out.
    np.testing.assert_array_equal(found[0], [1, np.nan, np.nan] * 10)
    np.testing.assert_array_equal(found[1], [1, np.nan, 4] * 10)

    numbers = dict.fromkeys("nw", "number")
    kinds = {"site": "identifier", "y": "category", "f": "category", **numbers}
    rules: list[dict[str, Any]] = [
        {"name": name, "kind": "number", "fill": 9.0, "center": 0.0, "scale": 1.0, "flag": False}
        for name in "nw"
    ]
    record = {"rules": rules, "features": None, "window": None, "client": "site", "shape": [2]}
    record |= {"labels": ["y"], "classes": ["no", "yes"], "kinds": kinds, "missing": words}
    new = read_new_rows(source, record)
    assert new.label[:4].tolist() == ["no", "yes", "", "no"]
    assert new.x[:4].tolist() == [[1, 1], [9, 9], [2.5, 3], [9, 4]]

    if form == "frame":
        return
    columns = {**numbers, "f": ["blue", "red"]}
    form_of_nodes = DataForm((), ("no", "yes"), columns=columns, missing=tuple(words))
    node = read_client_table(Path(source), {"label": "y"}, form_of_nodes, Encode())
    values = np.concatenate([node.train[0].values, node.test[0].values])
    assert len(values) == 30
    assert set(values[~np.isnan(values[:, 0])][:, 1]) == {1.0}


def test_a_value_of_another_kind_is_named_with_its_row(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", ["1", "2", "3", "some", "5"])
    with refuses(DataError, "wrong-type", path) as caught:
        ct.load("file", path=path, columns={"f": "number"}, **OPTIONS)
    assert "column f: wrong type ('some' in row 3," in str(caught.value)
    path = written(tmp_path / "times.csv", ["2024-01-02", "2024-02-03", "soon"])
    with refuses(DataError, "wrong-type", path) as caught:
        ct.load("file", path=path, columns={"f": "time"}, **OPTIONS)
    assert "column f: wrong type ('soon' in row 2," in str(caught.value)


def test_a_word_among_values_of_python_is_a_missing_label(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for values in ([1, 2, "n/a", None], [True, False, "n/a", None], ["1", "2", "n/a", None]):
        made = ct.load(frame(values), features=["v"], client="site", label="f")
        assert made.classes == 2
        assert len(made.y) == 20
        assert "column f: 'n/a'" in capsys.readouterr().err


def test_a_word_among_other_labels_is_a_class_and_a_line_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"features": ["y"], "client": "site", "label": "f"}
    for values, word in (
        (["01", "02", "1B", "n/a"], "n/a"),
        (["well", "sick", "-", "none"], "-"),
    ):
        made = ct.load("file", path=written(tmp_path / "rows.csv", values), **options)
        assert made.classes == 4
        assert f"column f: {word!r} treated as a class" in capsys.readouterr().err
    values = ["well", "sick", "none"]
    assert ct.load("file", path=written(tmp_path / "rows.csv", values), **options).classes == 3
    assert "treated as a class" not in capsys.readouterr().err


@pytest.mark.parametrize("classes", [["False", "True"], ["false", "true"]])
@pytest.mark.parametrize("words", [["true", "false"], ["True", "False"], ["TRUE", "FALSE"]])
def test_truth_values_of_a_node_are_the_classes_however_they_are_written(
    classes: list[str], words: list[str], tmp_path: Path
) -> None:
    path = written(tmp_path / "rows.csv", words)
    rows = read_rows(path, ["f"])
    assert labels_of(rows, "f", classes).tolist() == [1, 0] * 20
    form = DataForm((), tuple(classes), columns={"y": "number", "f": classes})
    table = read_client_table(Path(path), {"data": path, "label": "f"}, form, Encode())
    for part, labels in (table.train, table.test):
        assert part.values[:, 1].tolist() == labels.tolist()
        assert set(labels.tolist()) == {0, 1}
    assert places([True, False, "true"], classes).tolist() == [1, 0, 1]
