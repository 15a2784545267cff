"""Training on a frame from Python: the same population as from a file of it, and all that follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import coterie as ct
from coterie.errors import Code, ConfigError, DataError
from tests.refusals import refuses

ROWS = 120
LOCAL = {"epochs": 2, "lr": 0.2}


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    ward = rng.choice(["01", "1B", "a"], ROWS)
    age = rng.normal(60, 9, ROWS)
    return pd.DataFrame(
        {
            "age": np.where(rng.random(ROWS) < 0.1, np.nan, age),
            "ward": ward,
            "smokes": rng.random(ROWS) < 0.5,
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, ROWS), "D"),
            "ill": np.where(age > 60, "yes", "no"),
            "site": np.repeat(["007", "7", "x"], ROWS // 3),
        }
    )


def load(source: Any, **options: Any) -> ct.Population:
    table = {"features": "*", "label": "ill", "client": "site", **options}
    return ct.load(source, partition={"kind": "natural"}, **table)


def run(data: ct.Population, **options: Any) -> ct.Result:
    return ct.run(
        ct.fedgroup(groups=2, alpha=1), data=data, model="mclr", local=LOCAL, rounds=3, engine="serial",
        clients_per_round=3, **options,
    )  # fmt: skip


def polars(table: pa.Table) -> Any:
    return pytest.importorskip("polars").from_arrow(table)


@pytest.mark.parametrize("kind", ["pandas", "arrow", "arrow types", "index", "polars"])
def test_a_frame_is_the_file_of_it(kind: str, tmp_path: Path) -> None:
    data = frame()
    data.to_parquet(tmp_path / "t.parquet")
    table = pa.Table.from_pandas(data, preserve_index=False)
    sources: dict[str, Any] = {
        "pandas": lambda: data,
        "arrow": lambda: table,
        "arrow types": lambda: table.to_pandas(types_mapper=pd.ArrowDtype),
        "index": lambda: data.set_index(np.arange(ROWS) + 5),
        "polars": lambda: polars(table),
    }
    made = load(sources[kind]())
    read = load("file", path=str(tmp_path / "t.parquet"))
    assert made.names == read.names == ("007", "7", "x")
    assert torch.equal(made.x, read.x)
    assert torch.equal(made.y, read.y)
    for one, other in zip(made.train, read.train, strict=True):
        assert (one == other).all()


class Lazy:
    """What is no frame yet, as a LazyFrame of Polars."""

    columns = ("age", "y")


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (Lazy, "wrong-type"),
        (lambda: pytest.importorskip("polars").LazyFrame({"y": [0]}), "wrong-type"),
        # Arrow has no whole numbers of 128 bits.
        (
            lambda: pytest.importorskip("polars").from_dict(
                {"y": [0, 1]}, schema={"y": pytest.importorskip("polars").Int128}
            ),
            "cannot-be-read",
        ),
    ],
    ids=["lazy", "lazy of Polars", "128 bits"],
)
@pytest.mark.filterwarnings("ignore:Determining the column names of a LazyFrame")
def test_what_is_no_frame_is_one_line(make: Any, code: Code) -> None:
    for call in (ct.load, lambda data: ct.run("fedavg", data=data, model="mclr", rounds=1)):
        with refuses(DataError, code, "data") as caught:
            call(make())
        assert "\n" not in str(caught.value)


def test_a_run_on_a_frame_predicts_exports_and_goes_on(tmp_path: Path) -> None:
    data = frame()
    data.to_parquet(tmp_path / "t.parquet")
    results = [
        run(load(data), out=tmp_path / "frame"),
        run(load("file", path=str(tmp_path / "t.parquet")), out=tmp_path / "file"),
    ]
    assert torch.equal(results[0].state.models, results[1].state.models)
    new = pd.DataFrame(
        {"age": [70, 50], "ward": ["01", "new"], "site": ["7", "z"], "ill": ["yes", "no"]}
    )
    found = [result.predict(new).frame() for result in results]
    assert found[0].equals(found[1])
    assert found[0]["placed by"].tolist() == ["known client", "its labels in 1 row"]
    exported = results[0].export(tmp_path / "models").folder
    assert (exported / "columns.json").read_bytes() == (
        results[1].export(tmp_path / "others").folder / "columns.json"
    ).read_bytes()
    assert (exported / "predict.py").is_file()
    longer = ct.resume(tmp_path / "frame", rounds=5)
    joined = data.head(30).assign(site="new one")
    assert len(ct.resume(tmp_path / "frame", data=joined, rounds=6).groups) == 4
    assert len(longer.rows) == 5
    # In memory, with what the run held out: the labels have their names.
    memory = run(load(data), train={"hold_out": 0.5})
    assert set(memory.predict(new).frame()["prediction"]) <= {"yes", "no"}


def test_a_frame_of_plain_numbers_is_taken_as_it_is(tmp_path: Path) -> None:
    data = frame().fillna(0.0)
    data["ward"] = np.arange(ROWS)
    made = load(data, features=["age", "ward"])
    assert torch.equal(made.x, torch.tensor(data[["age", "ward"]].to_numpy(), dtype=torch.float32))
    result = run(made, out=tmp_path / "run")
    assert len(result.predict(data.head(3)).frame()) == 3
    target = load(data, features=["age"], label="ward", targets="numbers")
    assert target.y.tolist() == list(range(ROWS))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: pd.concat([data, data[["age"]]], axis=1),
        lambda data: data.assign(age=[[1]] * ROWS),
        lambda data: data.assign(age=1 + 2j),
        lambda data: data.drop(columns="ill"),
        lambda data: data.head(0),
    ],
    ids=["twice", "lists", "complex", "no label", "no rows"],
)
def test_frames_that_cannot_be_read_are_one_line(change: Any) -> None:
    with pytest.raises((DataError, ConfigError)) as caught:
        load(change(frame()))
    assert "\n" not in str(caught.value)


def test_what_is_no_frame_and_series_of_a_frame_are_refused() -> None:
    with refuses(ConfigError, "wrong-type", "source"):
        load(3)
    with refuses(DataError, "in-conflict", "data"):
        load(frame(), window={"time": "seen"}, targets="numbers")


def test_mixed_values_of_a_column_are_read_value_by_value() -> None:
    data = frame()
    data["age"] = [str(one) if at % 2 else one for at, one in enumerate(data["age"].fillna(3.5))]
    made = load(data, columns={"age": "number"})
    assert made.table is not None
    assert made.table.raw.values[:, 0].tolist() == [float(one) for one in data["age"]]


OPTIONS = {"features": "*", "label": "ill", "client": "site"}
CALL: dict[str, Any] = {"model": "mclr", "local": LOCAL, "rounds": 2, "engine": "serial", "seed": 3}


def as_arrow(data: pd.DataFrame) -> Any:
    return pa.Table.from_pandas(data, preserve_index=False)


def as_polars(data: pd.DataFrame) -> Any:
    return polars(as_arrow(data))


@pytest.mark.parametrize("make", [lambda data: data, as_arrow, as_polars])
def test_run_takes_a_frame_as_load_does(make: Any, tmp_path: Path) -> None:
    source = make(frame())
    loaded = ct.load(source, seed=3, **OPTIONS)
    expected = ct.run("fedavg", data=loaded, clients_per_round=3, **CALL)
    found = ct.run("fedavg", data={"source": source, **OPTIONS}, clients_per_round=3, **CALL)
    assert torch.equal(found.state.models, expected.state.models)
    saved = ct.run("fedavg", data={"source": source, **OPTIONS}, out=tmp_path / "run", **CALL)
    assert saved.predict(frame()).frame()["client"].tolist() == frame()["site"].tolist()


def test_a_frame_alone_has_its_clients_and_labels_in_the_columns_of_these_names() -> None:
    data = frame().rename(columns={"ill": "y", "site": "client"})
    alone = ct.run("fedavg", data=data, clients_per_round=3, **CALL)
    loaded = ct.load(frame(), seed=3, **OPTIONS)
    named = ct.run("fedavg", data=loaded, clients_per_round=3, **CALL)
    assert torch.equal(alone.state.models, named.state.models)
    lists = pd.DataFrame({"x": [[0.0, 1.0]] * 40, "y": [0, 1] * 20, "z": 1})
    lists["client"] = ["a", "b"] * 20
    assert ct.load(lists).shape == (2,)


def test_the_labels_of_a_frame_are_read_for_the_task() -> None:
    data = {"source": frame().assign(ill=np.arange(ROWS) % 2), **OPTIONS}
    call = {**CALL, "clients_per_round": 3}
    assert ct.run("fedavg", data=data, **call).headline.name == "accuracy"
    assert ct.run("fedavg", data=data, task="regression", **call).headline.name == "mae"


@pytest.mark.parametrize(
    ("columns", "path"),
    [({"ill": "y"}, "data.partition.column"), ({"site": "client"}, "data.label")],
)
def test_a_frame_without_the_column_of_clients_or_of_labels_is_one_line(
    columns: dict[str, str], path: str
) -> None:
    with pytest.raises(DataError) as caught:
        ct.run("fedavg", data=frame().rename(columns=columns), **CALL)
    assert [problem.path for problem in caught.value.problems] == [path]


def test_other_data_than_a_frame_need_a_partition() -> None:
    with pytest.raises(ConfigError) as caught:
        ct.load("digits")
    assert caught.value.problems[0].path == "partition"


# --- whose rows they are -----------------------------------------------------------------------------


def test_a_column_of_clients_says_who_they_are_without_a_partition(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    frame().to_csv(path, index=False)
    table = {"path": str(path), "features": "*", "label": "ill", "client": "site"}
    expected = load("file", path=str(path))
    made = ct.load("file", **table)
    assert made.names == expected.names == ("007", "7", "x")
    assert torch.equal(made.x, expected.x)
    data = {"source": "file", **table}
    settings = {"model": "mclr", "local": LOCAL, "rounds": 1, "engine": "serial"}
    by_table = ct.run("fedavg", data=data, **settings)
    by_file = ct.run("fedavg", data={**data, "partition": {"kind": "natural"}}, **settings)
    assert torch.equal(by_table.state.models, by_file.state.models)
    config = tmp_path / "run.toml"
    lines = [f'{name} = "{value}"' for name, value in data.items()]
    config.write_text(
        "\n".join(["[data]", *lines, '[model]\nname = "mclr"\n[algorithm]\nname = "fedavg"'])
        + "\n[train]\nrounds = 1\n"
    )
    assert ct.Experiment.from_toml(config).options("partition")["test_fraction"] == 0.1
    config.write_text(config.read_text().replace('client = "site"\n', ""))
    with refuses(ConfigError, "missing", "data.partition"):
        ct.Experiment.from_toml(config)
    with refuses(ConfigError, "missing", "partition"):
        ct.load("file", path=str(path))
