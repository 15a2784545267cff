"""Tables as they are: every kind of column, statistics of clients alone, and every complaint."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from coterie.clients.clients import Clients
from coterie.core.describe import Describe
from coterie.core.keys import Key
from coterie.core.vectors import flatten
from coterie.data import Population, load_population, load_samples
from coterie.data.tabular.encoder import MISSING, Encoder
from coterie.data.tabular.reports import add_reports, report_width
from coterie.engines import SerialEngine
from coterie.errors import Code, DataError
from coterie.local import LocalRunner
from tests.conftest import small_net
from tests.refusals import refuses

ROWS = 240


def columns(seed: int = 0) -> dict[str, Any]:
    """Columns of every kind with missing values, of six clients."""
    rng = np.random.default_rng(seed)
    age = rng.normal(60, 12, ROWS).round(1)
    ward = rng.choice(["a", "b", "c   "], ROWS, p=[0.5, 0.3, 0.2])
    ward[:4] = "rare"
    days = rng.integers(0, 20_000, ROWS)
    start = datetime.date(1970, 1, 1)
    return {
        "age": [None if rng.random() < 0.2 else float(one) for one in age],
        "ward": [None if rng.random() < 0.1 else str(one) for one in ward],
        "smokes": [None if rng.random() < 0.1 else bool(rng.random() < 0.3) for _ in range(ROWS)],
        "seen": [start + datetime.timedelta(days=int(one)) for one in days],
        "y": (rng.random(ROWS) < 0.4).astype(int),
        "client": np.repeat([f"h{i}" for i in range(6)], ROWS // 6),
    }


def write(folder: Path, table: dict[str, Any], name: str = "t.parquet") -> str:
    path = folder / name
    if name.endswith(".csv"):
        pyarrow.csv.write_csv(pa.table(table), path)
    else:
        pq.write_table(pa.table(table), path)
    return str(path)


def population(path: str, **options: Any) -> Population:
    source = {"source": "file", "path": path, "features": "*", **options}
    return load_population(source, {"kind": "natural"}, key=Key(0))


def pooled_transform(table: dict[str, Any], train: Any) -> np.ndarray:
    """What scikit-learn gives when it is fitted on all training rows in one place."""
    day = np.array([(one - datetime.date(1970, 1, 1)).days for one in table["seen"]], float)
    numbers = np.array([table["age"], table["smokes"], day], float).T
    pipeline = make_pipeline(StandardScaler(), SimpleImputer()).fit(numbers[train])
    age, smokes, seen = pipeline.transform(numbers).T
    ward = np.array([MISSING if one is None else one for one in table["ward"]], object)[:, None]
    encoder = OneHotEncoder(
        min_frequency=5, handle_unknown="infrequent_if_exist", sparse_output=False
    ).fit(ward[train])
    return np.column_stack([age, encoder.transform(ward), smokes, seen])


@pytest.mark.parametrize("seed", range(3))
def test_statistics_of_clients_are_those_of_all_training_rows(tmp_path: Path, seed: int) -> None:
    table = columns(seed)
    made = population(write(tmp_path, table))
    train = np.concatenate(made.train)
    expected = pooled_transform(table, train)
    assert made.x.shape == expected.shape
    assert np.allclose(made.x.numpy(), expected, rtol=0, atol=1e-6)
    assert made.table is not None
    assert made.table.encoder.features[1] == f"ward = {MISSING}"
    rules = {rule.name: rule for rule in made.table.encoder.rules}
    ages = np.array(table["age"], float)[train]
    assert rules["age"].fill == pytest.approx(np.nanmean(ages), rel=1e-12)
    assert rules["age"].scale == pytest.approx(np.nanstd(ages), rel=1e-12)
    assert "rare" in rules["ward"].rare


def test_the_message_of_a_client_is_what_the_inputs_were_made_of(tmp_path: Path) -> None:
    """Asked over an engine, clients report what the run was composed with, to the bit."""
    made = population(write(tmp_path, columns()))
    assert made.table is not None
    raw = made.table.raw
    net = small_net()
    work = Describe("columns", features=report_width(raw.columns))
    runner = LocalRunner(made, torch.nn.Linear(made.shape[0], 2), _solver())
    with Clients(SerialEngine(runner)) as clients:
        ids = np.arange(made.clients)
        models = flatten(net)[None]
        reply = clients.run(work, ids, models, np.empty((len(ids), 0), np.int64), key=Key(0))
        sent = [block for block in clients.ledger.read().blocks if block.up]
    reports = reply.fields["columns"]
    rows = int(made.sizes("train").sum())
    assert Encoder.of(add_reports(raw.columns, reports), raw.encode, rows) == made.table.encoder
    assert sent[0].fields == ("columns", "size")


def _solver() -> Any:
    import coterie as ct

    return ct.Solver(epochs=1)


def test_csv_is_read_as_parquet_is(tmp_path: Path) -> None:
    table = columns()
    a = population(write(tmp_path, table))
    b = population(write(tmp_path, table, "t.csv"))
    assert torch.equal(a.x, b.x)
    assert torch.equal(a.y, b.y)
    assert a.names == b.names


def test_the_record_of_an_encoder_makes_the_same_inputs(tmp_path: Path) -> None:
    made = population(write(tmp_path, columns()), encode={"missing_flags": True, "rare": 3})
    assert made.table is not None
    again = Encoder.read(made.table.encoder.record())
    assert np.array_equal(again.encode(made.table.raw), made.x.numpy()[np.argsort(_order(made))])
    assert f"age {MISSING}" in again.features


def _order(made: Population) -> Any:
    assert made.table is not None
    return made.table.first


def test_unknown_categories_are_with_the_rare_ones(tmp_path: Path) -> None:
    made = population(write(tmp_path, columns()))
    assert made.table is not None
    encoder = made.table.encoder
    new = columns()
    new["ward"] = ["never seen"] * ROWS
    other = load_samples(
        {"source": "file", "path": write(tmp_path, new, "n.parquet"), "features": "*"}
    )
    assert other.table is not None
    x = encoder.encode(other.table)
    names = list(encoder.features)
    assert (x[:, names.index("ward = (other)")] == 1).all()
    assert (x[:, names.index("ward = a")] == 0).all()


def test_complete_numbers_stay_as_they_are(tmp_path: Path) -> None:
    table = {"a": [1.0, 2.0, 3.0], "b": [10, 20, 30], "y": [0, 1, 0]}
    path = write(tmp_path, table)
    plain = load_samples({"source": "file", "path": path, "features": ["a", "b"]})
    assert plain.table is None
    assert plain.x.tolist() == [[1, 10], [2, 20], [3, 30]]


def test_columns_without_information_are_left_out_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = columns()
    table["empty"] = pa.nulls(ROWS, pa.float64())
    table["same"] = [7.5] * ROWS
    table["id"] = [f"p{i}" for i in range(ROWS)]
    table["word"] = ["x"] * ROWS
    made = population(write(tmp_path, table))
    assert "column id: text with 240 different values in 240 rows; left out" in (
        capsys.readouterr().err
    )
    assert made.table is not None
    assert made.table.encoder.notes == (
        "column empty: no value in any training row; left out",
        "column same: only the value 7.5 in training rows; left out",
        "column word: only the value 'x' in training rows; left out",
    )
    assert not any(name.startswith(("empty", "same", "id", "word")) for name in _features(made))


def _features(made: Population) -> tuple[str, ...]:
    assert made.table is not None
    return made.table.encoder.features


def test_rows_without_a_label_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = columns()
    table["y"] = [None, None, *table["y"][2:].tolist()]
    made = population(write(tmp_path, table))
    assert len(made.y) == ROWS - 2
    assert "t.parquet: left out 2 rows without y" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"features": ["age", "age"]}, ("in-conflict", "data.features")),
        ({"features": ["age", "y"]}, ("in-conflict", "data.features")),
        ({"features": ["age", "wards"]}, ("not-found", "data.features")),
        ({"encode": {"leave_out": ["no"]}}, ("not-found", "data.encode")),
        (
            {"features": ["same", "age"], "encode": {"leave_out": ["age"]}},
            ("does-not-fit", "data.features"),
        ),
        (
            {"encode": {"leave_out": ["age", "ward", "smokes", "seen", "same", "l"]}},
            ("missing", "t.parquet"),
        ),
        ({"features": ["age", "l"]}, ("wrong-type", "t.parquet")),
        ({"label": "nothing"}, ("not-found", "data.label")),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, options: dict[str, Any], refusal: tuple[Code, str]
) -> None:
    table = columns()
    table["same"] = [1.0] * ROWS
    table["l"] = [[1.0, 2.0]] * ROWS
    with refuses(DataError, *refusal) as caught:
        population(write(tmp_path, table), **options)
    assert "\n" not in str(caught.value)


def test_codes_of_categories_and_scaling_off(tmp_path: Path) -> None:
    table = columns()
    table["code"] = np.arange(ROWS) % 3
    made = population(write(tmp_path, table), encode={"categories": ["code"], "scaling": "none"})
    assert _features(made)[-3:] == ("code = 0", "code = 1", "code = 2")
    ages = np.array(table["age"], float)
    x = made.x.numpy()[:, 0]
    assert np.allclose(x[~np.isnan(ages)], ages[~np.isnan(ages)])
