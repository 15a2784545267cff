"""Troubles with rows, a kind each, and the value that is right: what a file says is what is learned."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coterie as ct
from coterie.cli.main import invoke
from coterie.core.keys import Key
from coterie.data import Population, load_population, load_samples
from coterie.data.rows.reading import read_rows
from coterie.errors import DataError
from coterie.experiment import check
from coterie.export.folder import export_run
from coterie.export.joining import read_joining
from coterie.export.predictions import predict
from coterie.runs.compose import compose
from coterie.runs.data import read_record
from coterie.runs.run import run_config
from tests.data.test_series import table as series_table
from tests.data.test_tables import write
from tests.forks import without_coterie
from tests.refusals import refuses

EACH = 30


def text(folder: Path, content: str | bytes, name: str = "t.csv") -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def population(path: str | list[str], **options: Any) -> Population:
    source = {"source": "file", "path": path, "features": "*", **options}
    return load_population(source, {"kind": "natural", "min_size": 1}, key=Key(0))


def rows_of(sites: list[str], code: list[str] | None = None) -> str:
    """A CSV file in which each site has as many rows, of both classes."""
    lines = ["site,code,age,y"]
    for at, site in enumerate(sites):
        for row in range(EACH):
            one = (code or ["A"])[(row + at) % len(code or ["A"])]
            lines.append(f"{site},{one},{40 + row + at},{row % 2}")
    return "\n".join(lines) + "\n"


def config(path: str | list[str], **data: Any) -> dict[str, Any]:
    options = {"source": "file", "path": path, "features": "*", "client": "site", **data}
    return {
        "data": {**options, "partition": {"kind": "natural"}},
        "model": {"name": "mclr"},
        "local": {"epochs": 1, "lr": 0.1},
        "train": {"rounds": 2, "clients_per_round": 2},
        "algorithm": {"name": "fedavg"},
        "engine": {"name": "serial"},
    }


def exported_predictions(export: Path, data: str, out: Path) -> tuple[int, str]:
    """The exit code of `predict.py` of an export, without Coterie, and its errors."""
    code, _, error = without_coterie(export / "predict.py", data, str(out)).ended()
    return code, error


# --- 1, 2: types are not guessed for each file ----------------------------------------------------


@pytest.mark.parametrize(
    "sites",
    [["01", "1"], ["12345678901234567890", "12345678901234567891", "12345678901234567892"]],
    ids=["leading zeros", "twenty digits"],
)
def test_clients_are_text_from_the_first_byte(tmp_path: Path, sites: list[str]) -> None:
    assert population(text(tmp_path, rows_of(sites)), client="site").names == tuple(sites)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kinds")
    content = rows_of(["007", "A12", "100"], ["01", "1B", "true", "08:30"])
    options = {"encode": {"rare": 1}}
    run_config(check(config(text(folder, content), **options)), folder / "run")
    export_run(folder / "run", folder / "export")
    return folder / "run"


@pytest.mark.parametrize(
    ("content", "client", "category"),
    [
        ("site,code,age\n007,01,50\n", "007", "01"),
        ("site,code,age\n100,true,50\n", "100", "true"),
        ("site,code,age\n100.0,08:30,50\n", "100", "08:30"),
        ("age,code,site\n50,1B,A12\n", "A12", "1B"),
        ("\ufeffsite,code,age\nA12,01,50\n", "A12", "01"),
    ],
)
def test_new_rows_are_read_by_the_kinds_of_the_run(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: str,
    client: str,
    category: str,
) -> None:
    path = text(tmp_path, content, "new.csv")
    found = predict(run, path, None)
    assert found.columns["client"] == [client]
    assert found.columns["placed by"] == ["known client"]
    assert "not known" not in capsys.readouterr().err, category


def test_an_export_reads_rows_by_a_copy_of_the_module(run: Path) -> None:
    import coterie.data.rows as reader

    def content(folder: Path) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in folder.glob("*.py")}

    assert content(run.parent / "export" / "rows") == content(Path(reader.__file__).parent)


def test_labels_with_letters_elsewhere_are_the_same_labels(tmp_path: Path) -> None:
    """Label codes 01, 02 and 1B, in a file that has 01 alone."""
    content = rows_of(["a", "b"]).replace(",0\n", ",01\n").replace(",1\n", ",1B\n")
    run_config(check(config(text(tmp_path, content))), tmp_path / "run")
    new = text(tmp_path, "site,code,age,y\na,A,50,01\n", "new.csv")
    assert predict(tmp_path / "run", new, None).columns["label"] == ["01"]


def test_a_client_that_passed_through_a_fraction_does_not_join_again(tmp_path: Path) -> None:
    run_config(check(config(text(tmp_path, rows_of(["1", "2"])))), tmp_path / "run")
    composed = compose(check(config(str(tmp_path / "t.csv"))))
    record = read_record(tmp_path / "run")
    new = text(tmp_path, "site,code,age,y\n3.0,A,50,0\n3.0,A,60,1\n3,A,60,1\n", "new.csv")
    assert read_joining(new, composed, record).names == ("3",)
    nobody = text(tmp_path, "site,code,age,y\n3,A,50,0\n,A,60,1\n", "new.csv")
    with refuses(DataError, "missing", "--data"):
        read_joining(nobody, composed, record)


# --- 3: an index is no input ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_the_index_of_pandas_is_no_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    frame = pd.DataFrame(
        {"age": np.arange(80.0), "y": np.arange(80) % 2, "client": ["a", "b"] * 40}
    )[lambda one: one.age != 3]
    path = tmp_path / name
    if name.endswith("csv"):
        frame.to_csv(path)
    else:
        frame.to_parquet(path)
    made = population(str(path))
    assert made.table is not None
    assert made.table.encoder.features == ("age",)
    assert "left out (a pandas index, or without a name)" in capsys.readouterr().err
    # An index with a name is a column that somebody named.
    frame.set_index("age").to_parquet(tmp_path / "named.parquet")
    assert "age" in read_rows(tmp_path / "named.parquet").names


def test_the_indices_of_a_file_that_was_written_again_are_no_inputs(tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": np.arange(9.0), "y": [0, 1, 0] * 3})
    path = tmp_path / "t.csv"
    for _ in range(3):
        frame.to_csv(path)
        assert read_rows(path).names == ("age", "y")
        frame = pd.read_csv(path)
    frame.to_parquet(tmp_path / "t.parquet")
    assert read_rows(tmp_path / "t.parquet").names == ("age", "y")


# --- 7: times -------------------------------------------------------------------------------------


def test_numbers_in_a_column_of_times_and_gaps_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = series_table()
    tables = config(write(tmp_path, data), client="client", label="value")
    tables["data"]["window"] = {"past": 4, "horizon": 2, "stride": 50}
    tables["local"] = {"epochs": 1, "lr": 0.001}
    run_config(check(tables), tmp_path / "run")
    new = series_table(stations=1, hours=9)
    predict(tmp_path / "run", write(tmp_path, new, "new.csv"), None)
    assert "gap" not in capsys.readouterr().err
    moments = np.array(new["time"])
    late = moments > np.sort(moments)[6]
    gap = {**new, "time": np.where(late, moments + np.timedelta64(10, "D"), moments)}
    predict(tmp_path / "run", write(tmp_path, gap, "gap.parquet"), None)
    assert "have a gap in time" in capsys.readouterr().err
    whole = {**new, "time": np.arange(9)}
    with refuses(DataError, "wrong-type", "whole.csv") as caught:
        predict(tmp_path / "run", write(tmp_path, whole, "whole.csv"), None)
    assert "\n" not in str(caught.value)


# --- 9: missing values ----------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["None", "n/a", "-", ".", "#N/A", "<NA>", "NaT"])
def test_words_for_missing_values_keep_a_column_of_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    lines = [f"{word if at % 4 == 0 else 0.5 + at},{at % 2},{'ab'[at % 2]}" for at in range(80)]
    made = population(text(tmp_path, "dose,y,client\n" + "\n".join(lines) + "\n"))
    assert made.table is not None
    assert made.table.encoder.features == ("dose",)
    assert f"column dose: '{word}' treated as missing values in 20 rows" in capsys.readouterr().err


def test_bounds_among_numbers_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{'<1.0' if at % 4 == 0 else 0.5 + at},{at % 2},{'ab'[at % 2]}" for at in range(80)]
    population(text(tmp_path, "dose,y,client\n" + "\n".join(lines) + "\n"), encode={"rare": 1})
    assert "20 of 80 are not numbers, such as '<1.0'" in capsys.readouterr().err


# --- 10: memory -----------------------------------------------------------------------------------


def test_long_text_takes_no_more_memory_than_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One note of 100,000 characters in 8,000 rows: as fixed-width text they were 3.2 GB."""
    import tracemalloc

    notes = [f"note {at}" for at in range(8000)]
    notes[17] = "x" * 100_000
    lines = [f"{note},{at % 50},{at % 2},{'ab'[at % 2]}" for at, note in enumerate(notes)]
    path = text(tmp_path, "note,age,y,client\n" + "\n".join(lines) + "\n")
    tracemalloc.start()
    made = population(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6
    assert made.table is not None
    assert made.table.encoder.features == ("age",)
    assert "column note: text with 8,000 different values in 8,000 rows; left out" in (
        capsys.readouterr().err
    )


# --- 11: formats ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["list", "struct", "bytes"])
def test_nested_columns_are_one_line_or_left_out(tmp_path: Path, kind: str) -> None:
    nested = {"list": [[1.0]] * 80, "struct": [{"a": 1}] * 80, "bytes": [b"a"] * 80}[kind]
    columns = {"age": np.arange(80.0), "n": nested, "y": np.arange(80) % 2, "client": ["a"] * 80}
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table(columns), path)
    with refuses(DataError, "wrong-type", "t.parquet") as caught:
        population(path)
    assert "\n" not in str(caught.value)
    assert population(path, encode={"leave_out": ["n"]}).x.shape == (80, 1)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame([[1.0, 2.0, 3.0]], columns=["age", "age", "site"]),
        pd.DataFrame({"age": [[1, 2]], "site": ["007"]}),
        pd.DataFrame({"age": ["old", 3][:1], "site": ["007"]}),
        pd.DataFrame({"age": [object()], "site": [("007",)]}),
        pd.DataFrame({"age": [1 + 2j], "site": ["007"]}),
        pd.DataFrame(),
    ],
    ids=["twice", "list", "text", "objects", "complex", "empty"],
)
def test_frames_that_cannot_be_read_are_one_line(run: Path, frame: pd.DataFrame) -> None:
    with pytest.raises(DataError) as caught:
        predict(run, frame, None)
    assert "\n" not in str(caught.value)


def test_a_mixed_column_of_a_frame_is_read_value_by_value(run: Path) -> None:
    frame = pd.DataFrame({"age": [50, "60.5", None], "site": [100, "007", "A12"], "code": "01"})
    assert predict(run, frame, None).columns["client"] == ["100", "007", "A12"]


# --- 12: spellings --------------------------------------------------------------------------------


def test_spellings_that_are_nearly_equal_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    towns = ["Bern", "BERN", "Zu\u0308rich", "Z\u00fcrich"]
    lines = [f"{towns[at % 4]},{at % 9},{'yes' if at % 2 else 'yes '},a " for at in range(80)]
    lines.append("Bern,3,no,a")
    population(text(tmp_path, "town,age,y,client\n" + "\n".join(lines) + "\n"))
    said = capsys.readouterr().err
    assert "column town: 'BERN' and 'Bern'" in said
    assert "'Zu\u0308rich' and 'Z\u00fcrich'" in said
    assert "column y: 'yes' and 'yes '" in said
    assert "column client: 'a' and 'a '" in said


def test_a_later_spelling_of_a_client_is_said_by_every_reader(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_config(check(config(text(tmp_path, rows_of(["Bern", "bern", "Wil"])))), tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "export")
    line = "column site: 'BERN' and 'Bern' and 'bern' differ only in spelling"
    new = text(tmp_path, "site,code,age,y\nBERN,A,50,0\nBERN,A,60,1\n", "new.csv")
    capsys.readouterr()
    predict(tmp_path / "run", new, None)
    assert line in capsys.readouterr().err
    assert line in exported_predictions(tmp_path / "export", new, tmp_path / "out.csv")[1]
    read_joining(
        new, compose(check(config(str(tmp_path / "t.csv")))), read_record(tmp_path / "run")
    )
    assert line in capsys.readouterr().err
    # Of those that were in training a user has been told.
    old = text(tmp_path, "site,code,age\nBern,A,50\nbern,A,50\nGenf,A,50\n", "old.csv")
    predict(tmp_path / "run", old, None)
    assert "spelling" not in capsys.readouterr().err


# --- 13: rows without a label or a client ---------------------------------------------------------


def test_new_rows_without_a_client_are_of_one_new_client(run: Path, tmp_path: Path) -> None:
    new = text(tmp_path, "site,code,age\n007,01,50\n,01,60\n,1B,70\n", "new.csv")
    assert predict(run, new, None).columns["client"] == ["007", "new", "new"]


# --- several files --------------------------------------------------------------------------------


def test_files_of_one_federation_each_in_its_own_form(tmp_path: Path) -> None:
    text(tmp_path, "code,age,y\n01,50.5,0\n02,60,1\n01,,0\n", "north.csv")
    text(tmp_path, "y;age;code\n1;70,25;1B\n0;80;01\n", "south.CSV")
    options = {"client": "(file)", "encode": {"rare": 1}}
    for path in ([str(tmp_path / "north.csv"), str(tmp_path / "south.CSV")], str(tmp_path)):
        made = population(path, **options)
        assert made.names == ("north", "south")
        assert made.table is not None
        code, age = made.table.raw.columns
        assert (code.categories, age.kind) == (("01", "02", "1B"), "number")
        assert np.allclose(
            made.table.raw.values[:, 1], [50.5, 60, np.nan, 70.25, 80], equal_nan=True
        )
    with refuses(DataError, "not-found", "data.path"):
        population([str(tmp_path / "north.csv"), "none.csv"])


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (["01", "02", "10"], ["01", "02", "10"]),
        (["01", "", "10"], ["(missing)", "01", "10"]),
        (["01", "None", "10"], ["01", "10", "None"]),
        (["10", "11", "01"], ["01", "10", "11"]),
    ],
    ids=["whole", "missing", "a word for missing", "one of many"],
)
def test_columns_with_zeros_before_numbers_are_categories(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], codes: list[str], expected: list[str]
) -> None:
    path = text(tmp_path, rows_of(["a", "b"], codes))
    made = population(path, client="site")
    assert made.table is not None
    features = [f"code = {code}" for code in expected]
    assert made.table.encoder.features == (*features, "age")
    # The same in one of two files, and where the user says that they are numbers.
    other = text(tmp_path, rows_of(["c"], ["1", "2"]), "other.csv")
    assert "code = 01" in population([path, other], client="site").table.encoder.features  # type: ignore[union-attr]
    capsys.readouterr()
    made = population(path, client="site", columns={"code": "number"})
    assert made.table.encoder.features == ("code", "age")  # type: ignore[union-attr]
    assert "treated as codes" not in capsys.readouterr().err


def test_zeros_before_times_that_are_numbers_and_before_fractions_are_numbers(
    tmp_path: Path,
) -> None:
    lines = [f"{at:03d},0{at}.5,{at},{'ab'[at % 2]}" for at in range(80)]
    path = text(tmp_path, "time,dose,y,client\n" + "\n".join(lines) + "\n")
    window = {"past": 4, "horizon": 1, "stride": 3}
    source = {"source": "file", "path": path, "features": "*", "window": window}
    table = load_samples(source, targets="numbers").table
    assert table is not None
    assert table.origin.moments == "number"
    assert [(one.name, one.kind) for one in table.columns] == [("dose", "number"), ("y", "number")]


def test_inspect_says_each_columns_kind_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [",site,code,dose,town,when,same,hint,y"]
    for at in range(120):
        site = "" if at == 5 else f"0{at % 2}"
        dose = "n/a" if at % 9 == 0 else f"{at / 7:.2f}"
        town = ("None", "Bern", "BERN", "Wil")[at % 4]
        y = at % 3 // 2
        lines.append(f"{at},{site},{at % 3},{dose},{town},2024-01-{at % 28 + 1:02d},1,{y * 7},{y}")
    path = text(tmp_path, "\n".join(lines) + "\n")
    file = tmp_path / "c.toml"
    file.write_text(
        f'[data]\nsource = "file"\npath = "{path}"\nfeatures = "*"\nclient = "site"\n'
        '[data.columns]\ncode = "category"\n[data.partition]\nkind = "natural"\n'
        '[model]\nname = "mclr"\n[train]\nrounds = 1\n[algorithm]\nname = "fedavg"\n'
    )
    assert invoke(["data", "inspect", str(file)]) == 0
    printed = capsys.readouterr()
    for line in (
        "column site: identifier (the client; 2 different values; 1 of 120 missing)",
        "column code: category (set in the configuration; 3 different values, which look like number)",
        "column dose: number (",
        "column town: category (4 different values; 'None' look like missing values)",
        "column when: time (28 different times)",
        "column y: category (the label; 2 different values)",
        "column same: number (1 different number)",
        "column same: only the value 1 in training rows; left out",
    ):
        assert line in printed.out.replace("\n ", " "), line
    for line in (
        "column Unnamed: 0: left out (a pandas index, or without a name)",
        "left out 1 row without site",
        "column dose: 'n/a' treated as missing values",
        "column town: 'BERN' and 'Bern' differ only in spelling",
        "column hint: determines y in",
    ):
        assert line in printed.err.replace("\n", " ").replace("  ", " "), line


def test_kinds_that_the_user_sets(tmp_path: Path) -> None:
    path = text(tmp_path, rows_of(["a", "b"], ["1", "2"]))
    kinds = {"code": "category", "age": "identifier"}
    made = population(path, client="site", columns=kinds)
    assert made.table is not None
    assert made.table.encoder.features == ("code = 1", "code = 2")
    with refuses(DataError, "not-found", "data.columns"):
        population(path, client="site", columns={"cod": "category"})


def test_predictions_of_the_command_and_of_the_export_are_one_file(
    run: Path, tmp_path: Path
) -> None:
    new = text(
        tmp_path,
        "\ufeffage;code;site;y\n50,5;01;007;0\n;true;100.0;\n60;08:30;;1\n-;x;12345678901234567890;\n",
        "new.csv",
    )
    one = tmp_path / "one.csv"
    other = tmp_path / "other.csv"
    assert invoke(["predict", str(run), "--data", new, "--out", str(one)]) == 0
    code, error = exported_predictions(run.parent / "export", new, other)
    assert code == 0, error
    assert one.read_bytes() == other.read_bytes()
    with one.open(newline="") as file:
        clients = [row["client"] for row in csv.DictReader(file)]
    assert clients == ["007", "100", "new", "12345678901234567890"]


@pytest.mark.parametrize("kind", ["int64", "uint8", "Int16"])
def test_whole_numbers_that_a_frame_calls_categories_are_categories(
    kind: str, tmp_path: Path
) -> None:
    ward = pd.Series([1, 2, 10] * EACH, dtype=kind).astype("category")
    frame = pd.DataFrame(
        {"site": ["a", "b"] * (3 * EACH // 2), "ward": ward, "y": [0, 1, 1] * EACH}
    )
    frame.to_parquet(tmp_path / "t.parquet")
    options: dict[str, Any] = {"label": "y", "client": "site", "partition": {"kind": "natural"}}
    for data in (
        ct.load(frame, **options),
        ct.load("file", path=str(tmp_path / "t.parquet"), features="*", **options),
    ):
        # Three categories, in the order of text, and no number.
        assert data.x[:3].tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
