"""The study of layers: which weights tell the clients' data apart."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from coterie.cli.main import invoke
from coterie.core.keys import Key
from coterie.core.training import Epochs
from coterie.core.vectors import flatten
from coterie.core.work import Train
from coterie.errors import QuorumError
from coterie.experiment import check, load_config
from coterie.runs.compose import Composed, compose
from coterie.studies.layers import (
    compare_layer,
    layer_rows,
    layer_spans,
    study_headline,
    study_layers,
    write_study,
)
from tests.refusals import refuses
from tests.report.pages import parse

EXAMPLES = Path(__file__).parents[2] / "examples"
CONFIG = """
[data]
source = "digits"
[data.partition]
kind = "planted"
clients = 6
groups = 2
size = 40
[model]
name = "mlp"
[local]
lr = 0.1
[train]
rounds = 1
clients_per_round = 6
[algorithm]
name = "fedavg"
[engine]
name = "serial"
"""


def composed(**partition: object) -> Composed:
    table = {"kind": "planted", "clients": 6, "groups": 2, "size": 40} | partition
    return ready(
        {
            "data": {"source": "digits", "partition": table},
            "model": {"name": "mlp"},
            "local": {"lr": 0.1},
        }
    )


def ready(tables: dict[str, object]) -> Composed:
    rest = {"train": {"rounds": 1, "clients_per_round": 2}, "algorithm": {"name": "fedavg"}}
    return compose(check({**tables, **rest, "engine": {"name": "serial"}}))


def test_distances_are_those_of_the_weights_of_a_layer() -> None:
    made = composed()
    study = study_layers(made, epochs=2)
    key = Key(0).of("study").at(0)
    ids = np.arange(6)
    with made.clients() as clients:
        w0 = flatten(made.module)
        reply = clients.run(Train(how=Epochs(2)), ids, w0[None], 0 * ids, key=key)
    weights = w0 + torch.from_numpy(reply.fields["delta"])
    planted = study.planted
    assert planted is not None
    ends = [8320, 8320 + 1290]
    for layer, start, stop in zip(study.layers, (0, ends[0]), ends, strict=True):
        assert layer.parameters == stop - start
        expected = torch.cdist(
            weights[:, start:stop].double(), weights[:, start:stop].double()
        ).numpy()
        np.testing.assert_allclose(layer.distance, expected, rtol=1e-4, atol=1e-5)
        apart = planted[:, None] != planted
        alike = ~apart & ~np.eye(6, dtype=bool)
        assert layer.separation == pytest.approx(
            expected[apart].mean() / expected[alike].mean(), rel=1e-3
        )
    assert study.layers[-1].ari == 1
    assert study.layers[-1].separation is not None
    assert study.layers[-1].separation > 2


def test_nothing_planted_gives_no_agreement() -> None:
    tables = {
        "data": {"source": "digits", "partition": {"kind": "iid", "clients": 5}},
        "model": {"name": "mlp"},
    }
    study = study_layers(ready(tables), epochs=1)
    assert all(
        (layer.ari, layer.separation, layer.ari_gap) == (None, None, None) for layer in study.layers
    )
    assert study_headline(study) == "2 layers of 5 clients"
    assert layer_rows(study)[0][2:6] == ["-"] * 4


def test_two_clients_are_too_few() -> None:
    with refuses(QuorumError, "too-few", "study"):
        study_layers(composed(clients=2, groups=1), epochs=1)


def test_a_layer_that_did_not_move_is_no_error() -> None:
    view = compare_layer("still", torch.zeros(4, 3), np.array([0, 0, 1, 1]))
    assert (view.within, view.between, view.separation) == (0, 0, None)


def test_weights_of_one_layer_stay_together() -> None:
    module = nn.Sequential(nn.GRU(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1, bias=False))
    found = layer_spans(module)
    assert [name for name, _ in found] == ["1 gru 6x3", "2 batchnorm1d 2", "3 linear 1x2"]
    assert [(span.start, span.stop) for _, span in found] == [(0, 42), (42, 46), (46, 48)]


def test_what_is_written_agrees(tmp_path: Path) -> None:
    study = study_layers(composed(), epochs=1)
    page, data, table = write_study(study, tmp_path / "out", "<b>", "intro")
    parsed = parse(page)
    assert list(json.loads(parsed.scripts[0][1])) == ["layer-0", "layer-1"]
    assert "<b>" in parsed.text
    content = json.loads(data.read_text())
    assert content["planted"] == [0, 1] * 3
    np.testing.assert_allclose(content["layers"][1]["distance"], study.layers[1].distance)
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [float(row["separation"]) for row in rows] == [
        layer.separation for layer in study.layers
    ]


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text(CONFIG)
    assert invoke(["study", "layers", "c.toml", "--epochs", "1", "--out", "s"]) == 0
    text = capsys.readouterr().out
    assert "mlp on digits, planted: 6 clients, 1 local epoch each." in text
    assert "2 linear 10x128" in text
    assert sorted(path.name for path in Path("s").iterdir()) == [
        "layers.csv",
        "layers.html",
        "layers.json",
    ]
    assert invoke(["study", "layers", "c.toml", "--epochs", "0"]) == 2


@pytest.mark.parametrize(("name", "layers"), [("lenet5", 5), ("vgg16", 16)])
def test_the_examples_are_accepted(name: str, layers: int) -> None:
    from coterie.models import build_model

    config = load_config(EXAMPLES / f"layers-{name}.toml")
    assert config.model.name == name
    assert len(layer_spans(build_model(name, (3, 32, 32), 10, Key(0)))) == layers
