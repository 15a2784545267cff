"""Numbers as text: zeros before them, decimal signs, and words in their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import coterie as ct
from coterie.data.rows.reading import read_rows
from coterie.data.sources.files import DataForm
from coterie.data.tabular.new_rows import read_new_rows
from coterie.errors import DataError
from coterie.flower.node.data_sources import pair_of_rows
from coterie.flower.node.site_checks import check_data
from tests.data import all_readers
from tests.refusals import refuses

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


# --- decimal commas in files whose fields are separated by commas -----------------------------------

# More different values than codes have, of which some have three places and some none.
NUMBERS = [at / 8 - 2 for at in range(40)]


def _numbers(folder: Path, fields: list[str], name: str = "rows") -> Path:
    lines = ["site,v,w,y"]
    for at, field in enumerate(fields):
        lines.append(f's{at % 2},"{field}",{at % 9},{"yes" if at % 3 else "no"}')
    path = folder / f"{name}.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def _with_commas(values: list[float]) -> list[str]:
    return [f"{value:g}".replace(".", ",") for value in values]


def _with_points(values: list[float]) -> list[str]:
    return [f"{value:g}" for value in values]


def test_every_reader_reads_quoted_decimal_commas(tmp_path: Path) -> None:
    points = _numbers(tmp_path, _with_points(NUMBERS), "points")
    commas = _numbers(tmp_path, _with_commas(NUMBERS), "commas")
    expected = all_readers.load(points, features="*")
    found = all_readers.load(commas, features="*")
    training = all_readers.training
    all_readers.refuse_any(list(training(found).differences(training(expected))))
    record = all_readers.record_of(expected, "*")
    form = DataForm((), ("no", "yes"), columns={"v": "number", "w": "number"})
    with all_readers.exported(tmp_path) as of_export:
        for read in (all_readers.prediction, of_export):
            right = read(points, record)
            all_readers.refuse_any(list(read(commas, record).differences(right)))
        # A single row, and a dictionary, have to say by themselves what the comma is.
        row = {"site": "s0", "v": "6,5", "w": 2}
        right = of_export([{**row, "v": 6.5}], record)
        all_readers.refuse_any(list(of_export([row], record).differences(right)))
    node = all_readers.node_of_table
    all_readers.refuse_any(list(node(commas, form).differences(node(points, form))))


def test_decimal_commas_in_one_of_several_files_are_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where they are so few that they could be codes in a file of its own."""
    values = [0.5, 1.5, 2.0, 6.5] * 10
    files = [_numbers(tmp_path, _with_points(NUMBERS), name) for name in ("north", "south")]
    files.append(_numbers(tmp_path, [*_with_commas(values)[:-1], "n/a"], "west"))
    found = all_readers.load(files, features="*")
    assert found.table is not None
    assert [column.kind for column in found.table.raw.columns] == ["number", "number"]
    read = found.table.raw.values[80:, 0]
    assert read[:-1].tolist() == values[:-1]
    assert read[-1] != read[-1]
    assert "west.csv: commas are read as decimal points in column v ('0,5')" in (
        capsys.readouterr().err
    )


def test_numeric_labels_of_several_files_may_have_quoted_decimal_commas(tmp_path: Path) -> None:
    points = _labelled(tmp_path, ["0.5", "-1.5"], name="north")
    commas = _labelled(tmp_path, ['"0,5"', '"-1,5"'], name="south")
    assert _load(points, commas).y.tolist() == [0.5, -1.5] * 40


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        (["1,234", "2,500", "987"], "'1,234'"),
        (["1,234.5", "2,500.5"], "'1,234.5'"),
        (["6.5", "6,25", "-1,75"], "'6,25'"),
    ],
    ids=["thousands", "both", "points"],
)
def test_unclear_commas_are_refused_in_one_line(
    fields: list[str], value: str, tmp_path: Path
) -> None:
    clear = _numbers(tmp_path, _with_points(NUMBERS), "north")
    unclear = _numbers(tmp_path, [fields[at % len(fields)] for at in range(40)], "west")
    with refuses(DataError, "in-conflict", str(unclear)) as training:
        all_readers.load([clear, unclear], features="*")
    record = all_readers.record_of(all_readers.load(clear, features="*"), "*")
    with refuses(DataError, "in-conflict", str(unclear)) as prediction:
        all_readers.prediction(unclear, record)
    for caught in (training, prediction):
        shown = str(caught.value)
        assert "column v" in shown
        assert value in shown
        assert "\n" not in shown


def test_points_that_may_separate_thousands_are_refused_beside_quoted_decimal_commas(
    tmp_path: Path,
) -> None:
    lines = [f's{at % 2},"{at},5",{at + 1}.250,{at % 2}' for at in range(40)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["site,v,w,y", *lines]), encoding="utf-8")
    with refuses(DataError, "in-conflict", str(path)):
        all_readers.load(path, features="*")


@pytest.mark.parametrize("said", [False, True])
def test_lists_of_codes_stay_categories(said: bool, tmp_path: Path) -> None:
    """A few different ones by themselves, and many if the configuration says so."""
    fields = ["1", "2", "1,2", "2,3"] * 10
    options = {}
    if said:
        fields = [f"{at % 7},{at % 6}" for at in range(40)]
        options = {"columns": {"v": "category"}}
    found = all_readers.load(_numbers(tmp_path, fields), features="*", **options)
    assert found.table is not None
    assert found.table.raw.columns[0].kind == "category"
    assert found.table.raw.columns[0].categories == tuple(sorted(set(fields)))


# --- labels ---------------------------------------------------------------------------------------


def _labelled(folder: Path, labels: list[str], separator: str = ",", name: str = "rows") -> Path:
    lines = [["site", "v", "y"]]
    lines += [[f"s{at % 2}", str(at), labels[at % len(labels)]] for at in range(40)]
    path = folder / f"{name}.csv"
    path.write_text("\n".join(separator.join(line) for line in lines), encoding="utf-8")
    return path


def _load(*paths: Path, **options: Any) -> ct.Population:
    chosen = {"features": ["v"], **OPTIONS, **options}
    return ct.load("file", path=list(map(str, paths)), targets="auto", **chosen)


@pytest.mark.parametrize("files", [1, 2])
def test_labels_with_a_decimal_comma_are_numbers(files: int, tmp_path: Path) -> None:
    paths = [
        _labelled(tmp_path, ["0,5", "1,5", "2", "n/a"], ";", f"rows{at}") for at in range(files)
    ]
    found = _load(*paths)
    assert found.classes == 0
    assert found.y.tolist() == [0.5, 1.5, 2.0] * 10 * files


def test_files_with_other_decimal_signs_agree_on_labels(tmp_path: Path) -> None:
    paths = [
        _labelled(tmp_path, ["0,5", "-1,5"], ";", "north"),
        _labelled(tmp_path, ["0.5", "-1.5"], ",", "south"),
    ]
    found = _load(*paths)
    assert (found.classes, found.y.tolist()) == (0, [0.5, -1.5] * 40)


@pytest.mark.parametrize("word", ["n/a", "-", "None", "?", ""])
def test_a_word_among_numeric_labels_is_a_missing_label(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _labelled(tmp_path, ["0", "1", "2", word])
    for paths in ([path], [path, _labelled(tmp_path, ["0", "1", "2", word], ";", "more")]):
        found = _load(*paths)
        assert found.classes == 3
        assert found.y.tolist() == [0, 1, 2] * 10 * len(paths)
        assert " rows without y\n" in capsys.readouterr().err


def test_a_word_among_text_labels_is_a_class(tmp_path: Path) -> None:
    assert _load(_labelled(tmp_path, ["sick", "well", "none"])).classes == 3


def _predicted(path: Path, classes: list[str] | None) -> list[str]:
    kinds = {"site": "identifier", "y": "number" if classes is None else "category"}
    record = {"rules": None, "features": ["v"], "window": None, "client": "site", "shape": [1]}
    record |= {"labels": ["y"], "classes": classes, "kinds": kinds}
    return list(read_new_rows(path, record).label[:4])


def test_new_rows_and_nodes_read_labels_alike(tmp_path: Path) -> None:
    classes = _labelled(tmp_path, ["0", "1", "n/a", "2"], ";", "classes")
    numbers = _labelled(tmp_path, ["0,5", "1", "-", "2,25"], ";", "numbers")
    assert _predicted(classes, ["0", "1", "2"]) == ["0", "1", "", "2"]
    assert _predicted(numbers, None) == ["0.5", "1", "", "2.25"]
    names = ["v"]
    _, y = pair_of_rows(read_rows(classes, ["y"]), {"label": "y"}, ["0", "1", "2"], names)
    assert y.tolist() == [0, 1, 2] * 10
    for known in (None, ()):
        _, y = pair_of_rows(read_rows(numbers), {"label": "y"}, known, names)
        assert y.tolist() == [0.5, 1.0, 2.25] * 10


@pytest.mark.parametrize("table", [False, True])
def test_a_node_checks_that_targets_are_numbers(table: bool, tmp_path: Path) -> None:
    form = DataForm((1,), (), features=("v",))
    if table:
        form = DataForm((), (), columns={"v": "number"})
    good = _labelled(tmp_path, ["0,5", "n/a", "1,5"], ";", "good")
    assert "22 rows to train on" in check_data({"data": str(good), "label": "y"}, form)
    bad = _labelled(tmp_path, ["0.5", "hello", "1.5"], ",", "bad")
    with pytest.raises(DataError, match="hello"):
        check_data({"data": str(bad), "label": "y"}, form)
