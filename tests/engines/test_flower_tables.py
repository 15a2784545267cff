"""Tables over nodes: their columns are described by what the clients report, and the models are those of
the serial engine."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import tomli_w
import torch

from tests.refusals import refuses

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.app import Context, Message, RecordDict

from coterie.data.sources.files import DataForm
from coterie.data.tabular.raw import Column, Encode
from coterie.errors import ConfigError, DataError
from coterie.experiment import check
from coterie.export import export_run
from coterie.flower.federation_spec import FederationSpec
from coterie.flower.node.client_table import loaded_table, read_client_table
from coterie.flower.node.data_sources import trial_share
from coterie.flower.server.agreement import usual_reports
from coterie.flower.settings import DeploymentSettings, form_of
from coterie.runs.data import load_data
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config
from tests.conftest import assert_near
from tests.engines.fake_grid import FakeGrid, as_deployed, parts_of
from tests.engines.test_flower import SETTINGS, deploy, models, note_of

CLIENTS = 4


def write_table(folder: Path) -> pa.Table:
    """Patients of four hospitals, with a missing value, a rare category and a constant column."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    rows = 96
    age = rng.normal(60, 10, rows)
    table = pa.table(
        {
            "age": [None if at == 5 else float(value) for at, value in enumerate(age)],
            "smoker": rng.random(rows) > 0.5,
            "since": np.datetime64("2020-01-01") + rng.integers(0, 900, rows),
            "sex": [None if at == 9 else "fm"[at % 2] for at in range(rows)],
            "drug": ["rare" if at == 40 else "abc"[at % 3] for at in range(rows)],
            "site": ["x"] * rows,
            "ill": ["yes" if value > 60 else "no" for value in age],
            "hospital": [f"h{at % CLIENTS}" for at in range(rows)],
        }
    )
    parquet.write_table(table, folder / "patients.parquet")
    return table


def tables(folder: Path) -> dict[str, Any]:
    return {
        "seed": 3,
        "data": {
            "source": "file",
            "path": str(folder / "patients.parquet"),
            "features": "*",
            "label": "ill",
            "client": "hospital",
            "encode": {"missing_flags": True},
            "partition": {"kind": "natural", "column": "client"},
        },
        "model": {"name": "mclr"},
        "local": {"epochs": 1, "lr": 0.1},
        "engine": {"name": "serial"},
        "train": {"rounds": 2, "clients_per_round": CLIENTS},
        "algorithm": {"name": "fedavg"},
    }


def settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
    form = form_of(check(config))
    return {
        **SETTINGS,
        "clients": CLIENTS,
        "min_clients": CLIENTS,
        "shape": form.shape,
        "classes": form.classes,
        "columns": form.columns,
    }


def hospitals(folder: Path, config: Mapping[str, Any], settings: Mapping[str, Any]) -> FakeGrid:
    """Nodes that have rows of their own, as files."""
    table = write_table(folder)
    _, partition, population = load_data(check(config))
    contexts = {}
    for client in range(CLIENTS):
        own = folder / f"hospital-{client}"
        own.mkdir()
        assert population.table is not None
        for split, rows in (("train", partition.train), ("test", partition.test)):
            first = population.table.first[rows[client]]
            parquet.write_table(table.take(first), own / f"{split}.parquet")
        contexts[100 + client] = Context(
            run_id=1,
            node_id=100 + client,
            node_config={
                "client": f"client-{client:02d}",
                "data": str(own),
                "label": "ill",
                "cache": str(folder / "cache"),
            },
            state=RecordDict(),
            run_config={
                "coterie-config": tomli_w.dumps(config),
                "coterie-settings": json.dumps(settings),
            },
        )
    return FakeGrid(contexts)


@pytest.fixture
def federation(tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any], FakeGrid]:
    write_table(tmp_path)
    config = tables(tmp_path)
    settings = settings_of(config)
    return config, settings, hospitals(tmp_path, config, settings)


Federation = tuple[dict[str, Any], dict[str, Any], FakeGrid]


def test_tables_over_nodes_are_those_of_the_serial_engine(
    federation: Federation, tmp_path: Path
) -> None:
    config, settings, grid = federation
    reported = deploy(tmp_path, config, grid, **settings)
    run_config(check(as_deployed(config)), tmp_path / "here")
    assert not reported.refused
    assert "column site: only the value 'x' in training rows; left out" in reported.lines
    assert torch.equal(models(tmp_path / "run"), models(tmp_path / "here"))
    rows = [RunFolder(tmp_path / run).rows() for run in ("run", "here")]
    for one, other in zip(*rows, strict=True):
        assert one["accuracy"] == other["accuracy"]
        assert one["transfers"] == other["transfers"]
    # No row leaves a client: before training it sends sums of fixed width, once.
    described = [
        message.content.array_records["fields"]
        for message in grid.replied
        if note_of(message).get("purpose", "").endswith("describe")
    ]
    assert len(described) == CLIENTS
    assert {name for fields in described for name in fields} == {"columns", "size"}
    # Three moments of each of three columns of numbers; each category, and none.
    width = 3 * 3 + 3 + 5 + 2
    assert {fields["columns"].numpy().shape for fields in described} == {(width,)}


def test_an_export_of_real_clients_makes_inputs_of_rows(
    federation: Federation, tmp_path: Path
) -> None:
    config, settings, grid = federation
    deploy(tmp_path, config, grid, **settings)
    run_config(check(as_deployed(config)), tmp_path / "here")
    exported = [export_run(tmp_path / run).folder for run in ("run", "here")]
    models_of = [(folder / "group-0.safetensors").read_bytes() for folder in exported]
    assert models_of[0] == models_of[1]
    patients = write_table(tmp_path / "again").drop_columns(["ill", "hospital"]).to_pylist()
    made = []
    for folder in exported:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(folder)
            patch.delitem(sys.modules, "rows", raising=False)
            made.append(runpy.run_path(str(folder / "inputs.py"))["inputs"](patients))
    # Statistics of columns are summed in another order, so their last digits differ.
    assert_near(made[0], made[1], within=1e-6)


def test_a_run_that_goes_on_asks_nobody_again(federation: Federation, tmp_path: Path) -> None:
    config, settings, grid = federation
    deploy(tmp_path, config, grid, **settings)
    record = (tmp_path / "run" / "columns.json").read_bytes()
    sent = len(grid.sent)
    longer = config | {"train": {**config["train"], "rounds": 2}}
    deploy(tmp_path, longer, grid, resume=True, **settings)
    asked = [
        note_of(message)["purpose"] for message in grid.sent[sent:] if "purpose" in note_of(message)
    ]
    assert not [purpose for purpose in asked if purpose.endswith("describe")]
    assert (tmp_path / "run" / "columns.json").read_bytes() == record


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda report: -report, "columns"),
        (lambda report: report * np.nan, "not finite"),
        # Nobody's age is that far from the others', and all inputs would become one number by it.
        (lambda report: np.r_[report[:1], 1e14, report[2:]], "columns"),
        (lambda report: np.r_[report[:2], 1e14, report[3:]], "columns"),
    ],
)
def test_an_impossible_report_is_counted_and_not_used(
    change: Any, reason: str, federation: Federation, tmp_path: Path
) -> None:
    config, settings, grid = federation

    def meddle(node: int, request: Message, replies: list[Message]) -> list[Message]:
        if node == 103 and note_of(request).get("purpose", "").endswith("describe"):
            (reply,) = replies
            fields = reply.content.array_records["fields"]
            fields["columns"] = type(fields["columns"])(change(fields["columns"].numpy()))
        return replies

    grid.meddle = meddle
    reported = deploy(tmp_path, config, grid, **settings)
    assert reported.refused == {reason: 1}
    assert len(reported.rows) == 2


def test_reports_of_hospitals_that_differ_are_all_used() -> None:
    columns = [
        Column("age", "number"),
        Column("sex", "category", ("f", "m")),
        Column("rare", "number"),
    ]
    rng = np.random.default_rng(0)
    count = rng.integers(5, 500, 40).astype(np.float64)
    mean = rng.lognormal(3, 1, 40)
    sex = np.stack([count, 0 * count, 0 * count], axis=1)
    # What most hospitals never saw, and one has no value of.
    rare = np.where(np.arange(40) < 3, 1.0, 0.0)
    known = np.where(np.arange(40) == 9, 0.0, count)
    number = [count, mean, count * mean**2]
    reports = np.column_stack([*number, sex, known, rare * (known > 0), 0.1 * rare * known])
    assert usual_reports(columns, reports).all()
    for at in (1, 2):
        wrong = reports.copy()
        wrong[7, at] = 1e15
        assert np.flatnonzero(~usual_reports(columns, wrong)).tolist() == [7]
    # Of three nobody can say which is wrong.
    assert usual_reports(columns, wrong[6:9]).all()


def test_a_node_with_other_columns_is_refused(
    federation: Federation, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config, settings, grid = federation
    own = tmp_path / "hospital-3" / "train.parquet"
    parquet.write_table(parquet.read_table(own).drop_columns(["age"]), own)
    settings["columns"]["drug"].remove("rare")
    settings |= {"min_clients": 1, "longest_wait": 0.2}
    for context in grid.contexts.values():
        context.run_config["coterie-settings"] = json.dumps(settings)
    reported = deploy(tmp_path, config, grid, **settings)
    assert [line for line in reported.lines if "cannot take part, got 'data'" in line]
    lines = " ".join(record.getMessage() for record in caplog.records if record.name == "flwr")
    assert "node: no column age (only smoker, since, sex, drug, site, ill, hospital)" in lines
    assert "column drug: a category that the server does not list, got 'rare'" in lines


def test_what_nodes_cannot_do_with_tables(tmp_path: Path) -> None:
    write_table(tmp_path)
    config = tables(tmp_path)
    config["data"]["encode"] = {"noise": 1.0}
    private = {"epsilon": 1.0, "clip": 1.0}
    sampler = {"train": {**config["train"], "sampler": "poisson"}}
    form = form_of(check(tables(tmp_path)))
    with refuses(ConfigError, "in-conflict", "data.encode.noise"):
        FederationSpec.of(check(config | {"privacy": private} | sampler), form, 4)
    window = {"time": "since", "past": 2, "stride": 1}
    config["data"] |= {"window": window, "label": "age", "encode": {}}
    with refuses(ConfigError, "in-conflict", "data.window"):
        FederationSpec.of(check(config | {"task": {"kind": "regression"}}), form, 4)
    both = {**SETTINGS, "columns": {"age": "number"}}
    with refuses(ConfigError, "in-conflict", "shape") as caught:
        DeploymentSettings.of({name: value for name, value in both.items() if name != "reply"})
    assert caught.value.problems[0].file == "deploy.toml"


def test_a_share_for_a_trial_has_rows_as_they_were_read(tmp_path: Path) -> None:
    write_table(tmp_path)
    config = tables(tmp_path)
    (rows, labels), _ = trial_share(config, 2)
    assert [column.name for column in rows.columns][:3] == ["age", "smoker", "since"]
    assert len(rows.values) == len(labels)
    assert rows.values[:, 0].mean() > 30


def test_rows_of_a_csv_file_and_of_pandas(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"age": [50.0, None, 70.0, 40.0, 55.0], "sex": list("mffmf"), "ill": [1, 0, None, 1, 0]}
    )
    frame.to_csv(tmp_path / "own.csv", index=False)
    form = DataForm((), ("0", "1"), columns={"age": "number", "sex": ["f", "m"]})
    found = read_client_table(tmp_path / "own.csv", {"label": "ill"}, form, Encode())
    assert [len(rows[1]) for rows in (found.train, found.test)] == [4, 0]
    assert found.train[1].tolist() == [1, 0, 1, 0]
    assert found.train[0].values[:, 1].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert np.isnan(found.train[0].values[1, 0])
    own = loaded_table((frame[:2], [1, 0]), None, form, Encode())
    assert own.train[0].values.tolist()[0] == [50.0, 1.0]
    assert not len(own.test[1])
    with refuses(DataError, "unknown-choice", "node"):
        loaded_table((frame[:2], [1, 2]), None, form, Encode())
    with refuses(DataError, "missing", tmp_path.name):
        read_client_table(tmp_path, {"label": "ill"}, form, Encode())


def test_rows_without_labels_are_placed_when_the_columns_are_described(tmp_path: Path) -> None:
    """A hospital without the column of labels reports nothing of its columns, and is encoded by what
    the others reported."""
    write_table(tmp_path)
    config = {**tables(tmp_path), "algorithm": {"name": "k_fed", "groups": 2}}
    config["train"] = {"rounds": 2, "clients_per_round": CLIENTS - 1}
    settings = {**settings_of(config), "min_clients": CLIENTS - 1}
    grid = hospitals(tmp_path, config, settings)
    node = grid.contexts[103].node_config
    own = Path(node["data"])
    parquet.write_table(
        parquet.read_table(own / "train.parquet").drop(["ill"]), own / "train.parquet"
    )
    form = form_of(check(config))
    # Said by the site: a column that is only named wrongly is no reason to join without labels.
    with refuses(DataError, "missing", "train.parquet"):
        read_client_table(own, node, form, Encode())
    node["unlabelled"] = True
    reported = deploy(tmp_path, config, grid, **settings)
    described: dict[str, set[int]] = {"columns": set(), "centres": set()}
    for request, reply in zip(grid.sent, grid.replied, strict=True):
        for _, fields in parts_of(reply):
            for field in fields.keys() & described.keys():
                described[field].add(request.metadata.dst_node_id)
    assert described == {"columns": {100, 101, 102}, "centres": {100, 101, 102, 103}}
    assert "(its inputs)" in reported.lines[-1]
    last = (tmp_path / "run" / "groups.csv").read_text().splitlines()[-1]
    assert last.split(",")[1] in ("0", "1")
