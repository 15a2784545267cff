"""Data of a node beside parquet: CSV files, databases, images, and labels that are names."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from coterie.data.sources.files import DataForm
from coterie.data.tabular.raw import Encode
from coterie.errors import Code, DataError
from coterie.flower.node.client_data import ClientData
from coterie.flower.node.client_table import read_client_table
from coterie.flower.node.node_source import PASSWORD, has_password, read_node_data, read_query
from tests.refusals import refuses

CLASSES = ("healthy", "ill")
ORDERED = "SELECT age, pulse, state FROM patients ORDER BY id"


def rows(count: int = 10) -> list[tuple[int, float, float, str]]:
    return [(at, 40.0 + at, 60.0 + at, CLASSES[at % 2]) for at in range(count)]


def write_csv(path: Path, count: int = 10) -> Path:
    lines = [f"{age},{pulse},{state}" for _, age, pulse, state in rows(count)]
    path.write_text("\n".join(["age,pulse,state", *lines]) + "\n")
    return path


def write_database(path: Path, count: int = 10) -> str:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE patients (id INTEGER, age REAL, pulse REAL, state TEXT)")
        # In another order than that of the key.
        database.executemany("INSERT INTO patients VALUES (?, ?, ?, ?)", rows(count)[::-1])
    database.close()
    return f"sqlite:///{path}"


def test_a_csv_file_with_names_of_classes(tmp_path: Path) -> None:
    options = {"data": str(write_csv(tmp_path / "p.csv")), "label": "state"}
    (x, y), (tx, ty) = read_node_data(options, CLASSES)
    assert (x.shape, tx.shape) == ((8, 2), (2, 2))
    for inputs, label in zip([*x, *tx], [*y, *ty], strict=True):
        assert label == (inputs[0] - 40) % 2
    data = ClientData.of((x, y), (tx, ty), DataForm((2,), CLASSES))
    assert data.histogram(2).sum() == 8
    with refuses(DataError, "unknown-choice", "node"):
        read_node_data(options, ("well", "healthy"))
    with refuses(DataError, "missing", "p.csv"):
        read_node_data({"data": options["data"]}, CLASSES)


def test_a_folder_of_csv_files_and_a_file_that_changes(tmp_path: Path) -> None:
    write_csv(tmp_path / "train.csv", 10)
    write_csv(tmp_path / "test.csv", 4)
    options = {"data": str(tmp_path), "label": "state"}
    (x, _), (tx, _) = read_node_data(options, CLASSES)
    assert (len(x), len(tx)) == (10, 4)
    write_csv(tmp_path / "train.csv", 12)
    assert len(read_node_data(options, CLASSES)[0][0]) == 12


def test_the_answer_of_a_database(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="the extra 'sql' is not installed")
    url = write_database(tmp_path / "clinic.db")
    options = {"data": url, "query": ORDERED, "label": "state"}
    from_database = read_node_data(options, CLASSES)
    file = {"data": str(write_csv(tmp_path / "p.csv")), "label": "state"}
    # The same rows in the same order: the same samples, the same split.
    for one, other in zip(from_database, read_node_data(file, CLASSES), strict=True):
        assert np.array_equal(one[0], other[0])
        assert np.array_equal(one[1], other[1])


@pytest.mark.parametrize(
    ("query", "refusal"),
    [
        ("", ("missing", "--query")),
        ("SELECT * FROM patients", ("missing", "--query")),
        ("SELECT * FROM patients -- ORDER BY id", ("missing", "--query")),
        ("SELECT *, 'order by' FROM /* ORDER BY */ patients", ("missing", "--query")),
        ('SELECT *, age AS "order by" FROM patients', ("missing", "--query")),
        ("SELECT * FROM (SELECT * FROM patients ORDER BY id)", ("missing", "--query")),
        ("SELECT *, row_number() OVER (ORDER BY id) FROM patients", ("missing", "--query")),
        ("COMMIT; DELETE FROM patients; SELECT 1 ORDER BY 1", ("cannot-be-used", "--query")),
        ("SELECT * FROM visits ORDER BY id", ("cannot-be-read", "clinic.db")),
        ("SELEC ORDER BY id", ("cannot-be-read", "clinic.db")),
    ],
)
def test_a_query_that_cannot_be_used_is_one_line(
    query: str, refusal: tuple[Code, str], tmp_path: Path
) -> None:
    pytest.importorskip("sqlalchemy", reason="the extra 'sql' is not installed")
    url = write_database(tmp_path / "clinic.db")
    with refuses(DataError, *refusal) as found:
        read_node_data({"data": url, "query": query}, CLASSES)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO patients SELECT * FROM patients ORDER BY id",
        "DROP TABLE patients /* */ --\n ORDER BY id",
        "CREATE TABLE copy AS SELECT * FROM patients ORDER BY id",
    ],
)
def test_a_query_writes_nothing(query: str, tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="the extra 'sql' is not installed")
    url = write_database(tmp_path / "clinic.db")
    before = (tmp_path / "clinic.db").read_bytes()
    with refuses(DataError, "cannot-be-read", "clinic.db"):
        read_query({"data": url, "query": query})
    assert (tmp_path / "clinic.db").read_bytes() == before


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="the extra 'sql' is not installed")
    with refuses(DataError, "not-found", "none.db"):
        read_query({"data": f"sqlite:///{tmp_path}/none.db", "query": ORDERED})
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "url",
    [
        "nothing://me:secret@db/clinic",
        "sqlite://me:secret@db/clinic",
        "nothing://db/clinic?user=me&password=secret",
        "nothing://me@db/clinic?sslpassword=sec@ret",
        "nothing:///?odbc_connect=DRIVER=x;PWD=secret",
        "nothing://m/e:secret@db/clinic",
        "nothing://me:se/cr?et@db/clinic",
        "nothing://me:secret@db:port/clinic",
        "postgresql://me:sec@ret@db/clinic",
        "nothing://me:se\ncret@db/clinic",
        "nothing:me:secret@db://",
        "nothing://me:secret",
        "postgresql://me:secret",
        "postgresql://me:secret/clinic",
        "sqlite:////none/none.db?password=secret",
    ],
)
@pytest.mark.filterwarnings("ignore:Query string argument")
def test_a_password_is_in_no_message(url: str) -> None:
    pytest.importorskip("sqlalchemy", reason="the extra 'sql' is not installed")
    with pytest.raises(DataError) as found:
        read_query({"data": url, "query": "SELECT 1 ORDER BY 1"})
    assert "sec" not in str(found.value)
    assert "ret" not in str(found.value)
    assert "\n" not in str(found.value)


def test_a_driver_that_repeats_a_password_is_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy", reason="the extra 'sql' is not installed")

    def refuse(url: object, **_: object) -> None:
        raise ValueError('invalid option "secret" in "dbname=clinic password=hidden"')

    monkeypatch.setattr(sqlalchemy, "create_engine", refuse)
    url = "postgresql://me:secret@db/clinic?sslpassword=hidden"
    with refuses(DataError, "cannot-be-read", "postgresql://db/clinic") as found:
        read_query({"data": url, "query": "SELECT 1 ORDER BY 1"})
    assert '"***"' in str(found.value)
    assert "secret" not in str(found.value)
    assert "hidden" not in str(found.value)


def test_the_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy", reason="the extra 'sql' is not installed")
    asked = []

    def refuse(url: object, **_: object) -> None:
        asked.append(url)
        raise ValueError("no such server")

    monkeypatch.setattr(sqlalchemy, "create_engine", refuse)
    monkeypatch.setenv(PASSWORD, "of the environment")
    for url in ("postgresql://me@db/clinic", "postgresql://me:own@db/clinic"):
        with refuses(DataError, "cannot-be-read", "postgresql://db/clinic"):
            read_query({"data": url, "query": "SELECT 1 ORDER BY 1"})
    assert [url.password for url in asked] == ["of the environment", "own"]


def test_which_urls_have_a_password() -> None:
    for url in (
        "postgresql://me:secret@db/clinic",
        "postgresql://db/clinic?user=me&password=secret",
        "mssql+pyodbc:///?odbc_connect=DRIVER=x;PWD=secret",
        "postgresql://me:secret",
        "postgresql://me:5ecret/clinic",
    ):
        assert has_password(url)
    for url in ("postgresql://me@db:5432/clinic", "sqlite:////srv/clinic.db", "patients.csv"):
        assert not has_password(url)


def test_a_database_of_tables_with_columns(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="the extra 'sql' is not installed")
    form = DataForm((), CLASSES, columns={"age": "number", "pulse": "number"})
    url = write_database(tmp_path / "clinic.db")
    options = {"data": url, "query": ORDERED, "label": "state"}
    table = read_client_table(Path(url), options, form, Encode())
    file = {"data": str(write_csv(tmp_path / "p.csv")), "label": "state"}
    other = read_client_table(Path(file["data"]), file, form, Encode())
    assert np.array_equal(table.train[0].values, other.train[0].values)
    assert np.array_equal(table.test[1], other.test[1])


def write_images(folder: Path, counts: dict[str, int]) -> None:
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for at in range(count):
            pixels = np.full((4, 6), 255 if name == "ill" else at, np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{at}.png")


def test_a_folder_of_images(tmp_path: Path) -> None:
    write_images(tmp_path / "one", {"ill": 5, "healthy": 5})
    (x, y), (tx, ty) = read_node_data({"data": str(tmp_path / "one")}, CLASSES)
    assert (x.shape, tx.shape) == ((8, 1, 4, 6), (2, 1, 4, 6))
    for image, label in zip([*x, *tx], [*y, *ty], strict=True):
        assert (image.max() == 1.0) == (label == 1)
    write_images(tmp_path / "two" / "train", {"healthy": 3})
    write_images(tmp_path / "two" / "test", {"ill": 2})
    (x, y), (tx, ty) = read_node_data({"data": str(tmp_path / "two")}, CLASSES)
    assert (y.tolist(), ty.tolist()) == ([0, 0, 0], [1, 1])
    with refuses(DataError, "unknown-choice", "node"):
        read_node_data({"data": str(tmp_path / "one")}, ("healthy", "sick"))
    (tmp_path / "one" / "ill" / "9.png").write_bytes(b"no image")
    with refuses(DataError, "cannot-be-read", "9.png"):
        read_node_data({"data": str(tmp_path / "one")}, CLASSES)


def test_a_node_asks_its_database_for_every_message(tmp_path: Path) -> None:
    """Files say when they change, a database does not."""
    pytest.importorskip("sqlalchemy", reason="the extra 'sql' is not installed")
    pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
    from coterie.flower.node.app import node_samples

    database = tmp_path / "clinic.db"
    options = {"data": write_database(database), "query": ORDERED, "label": "state"}
    context = SimpleNamespace(node_config=options)
    form = DataForm((2,), CLASSES, features=("age", "pulse"))
    assert len(node_samples(context, None, form)[0][1]) == 8
    database.unlink()
    write_database(database, 20)
    assert len(node_samples(context, None, form)[0][1]) == 16
    images = {"data": str(tmp_path / "images")}
    context = SimpleNamespace(node_config=images)
    write_images(tmp_path / "images", {"ill": 5})
    assert len(node_samples(context, None, form)[0][1]) == 4
    write_images(tmp_path / "images", {"healthy": 5})
    assert len(node_samples(context, None, form)[0][1]) == 8


# --- data without labels --------------------------------------------------------------------------


def test_rows_without_labels_are_all_taken(tmp_path: Path) -> None:
    """A column of labels that is there is not read, and is no input; no row becomes test data."""
    pytest.importorskip("sqlalchemy", reason="the extra 'sql' is not installed")
    folder = tmp_path / "folder"
    folder.mkdir()
    write_csv(folder / "train.csv")
    write_csv(folder / "test.csv")
    sources = (
        {"data": str(write_csv(tmp_path / "p.csv"))},
        {"data": str(folder)},
        {"data": write_database(tmp_path / "p.db"), "query": ORDERED},
    )
    for source in sources:
        options = {**source, "label": "state", "unlabelled": True}
        (x, y), test = read_node_data(options, CLASSES)
        assert (x.shape, y, test) == ((10, 2), None, None)
        assert x[:, 0].tolist() == [40.0 + at for at in range(10)]
        data = ClientData.of((x, y), test, DataForm((2,), CLASSES))
        assert (data.labelled, data.trains, data.tests) == (False, False, False)
        assert len(data.train[0]) == 10


def test_rows_of_a_table_without_labels(tmp_path: Path) -> None:
    form = DataForm((), CLASSES, columns={"age": "number", "pulse": "number"})
    options = {"data": str(write_csv(tmp_path / "p.csv")), "unlabelled": True}
    table = read_client_table(tmp_path / "p.csv", options, form, Encode())
    assert not table.labelled
    assert table.train[0].values[:, 0].tolist() == [40.0 + at for at in range(10)]
    assert not len(table.test[1])


def test_images_without_labels_lie_in_the_folder_itself(tmp_path: Path) -> None:
    for at in range(3):
        Image.new("L", (4, 4), at * 85).save(tmp_path / f"{at}.png")
    (x, y), test = read_node_data({"data": str(tmp_path), "unlabelled": True}, CLASSES)
    assert (x.shape, y, test) == ((3, 1, 4, 4), None, None)
    assert x[:, 0, 0, 0].tolist() == pytest.approx([0.0, 85 / 255, 170 / 255])
