"""Exports: models that load without Coterie and predict the same, a card that says what they
are."""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from coterie.cli.main import invoke
from coterie.config import check
from coterie.core.keys import Key
from coterie.core.vectors import Layout, state_dict
from coterie.errors import ConfigError, DataError
from coterie.export import export_run
from coterie.export.network import Unspellable, source_of
from coterie.methods.serving import served_by
from coterie.models import MODELS, build
from coterie.objectives.fusion import fuse
from coterie.runs.run import prepare, run_config
from coterie.runs.store import RunFolder

CLIENTS = ["ann", 'b"|<script>alert(1)</script>', "c\u202ed", "dan", "eve", "fay"]
LABELS = ["cat", "<b>|dog`"]
OWN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.line, self.norm = nn.Linear(shape[0], classes), nn.BatchNorm1d(classes)

    def forward(self, x):
        return torch.tanh(self.norm(self.line(x)))
"""


def tables(path: Path, **changes: object) -> dict[str, object]:
    return {
        "data": {
            "source": "file",
            "path": str(path),
            "partition": {"kind": "natural", "column": "client"},
        },
        "model": {"name": "mlp", "hidden": 5},
        "local": {"epochs": 2, "lr": 0.1},
        "train": {"rounds": 3, "clients_per_round": 3},
        "algorithm": {"name": "fedgroup", "groups": 2, "alpha": 2, "pretrain_steps": 5},
        "engine": {"name": "serial"},
        **changes,
    }


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six clients in two populations that mean different things by the same inputs."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "table.parquet"
    owner = np.repeat(np.arange(6), 30)
    x = rng.normal(size=(180, 4)).astype(np.float32)
    y = (x[:, 0] > 0) ^ (owner % 2 == 1)
    columns = {
        "x": list(x),
        "y": [LABELS[int(label)] for label in y],
        "client": [CLIENTS[i] for i in owner],
    }
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture(scope="module")
def run(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that has met five of the six clients at most: somebody may have no group."""
    path = tmp_path_factory.mktemp("runs") / "run"
    run_config(check(tables(table, train={"rounds": 1, "clients_per_round": 2})), path)
    return path


def reference(run: Path) -> tuple[list[nn.Module], np.ndarray, torch.Tensor]:
    """The run's own networks, auxiliary one last, who has which, and all inputs."""
    folder = RunFolder.open(run)
    prepared = prepare(check(folder.resolved), run / "partition.npz")
    checkpoint = folder.latest_checkpoint()
    models, which = served_by(checkpoint.groups)
    networks = []
    for vector in models:
        network = build_as(prepared.module)
        network.load_state_dict(state_dict(Layout.of(network), vector), strict=False)
        networks.append(network.eval())
    return networks, which, prepared.population.x


def build_as(module: nn.Module) -> nn.Module:
    import copy

    return copy.deepcopy(module)


TRY = """
import json, sys
sys.modules["coterie"] = None  # any import of it fails
sys.path[:0] = sys.argv[1:]
import load, torch
from safetensors.torch import load_file
x = torch.load("x.pt", weights_only=True)
json.dump({name: load.load(group)(x).tolist() for name, group in load.groups().items()}, sys.stdout)
"""


def test_an_export_predicts_the_same_without_coterie(run: Path, tmp_path: Path, capsys) -> None:
    assert invoke(["export", str(run), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "after 1 round: 2 found" in said
    assert "in none" in said
    networks, which, x = reference(run)
    torch.save(x, tmp_path / "x.pt")
    command = [sys.executable, "-W", "error", "-c", TRY, str(tmp_path / "out")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outputs = json.loads(done.stdout)
    assert set(which) > {2}  # somebody in a group, somebody in none
    with torch.no_grad():
        for row, name in enumerate(sorted(outputs)):
            assert name == sorted(CLIENTS)[row]
            expected = networks[which[row]](x)
            assert torch.allclose(torch.tensor(outputs[name]), expected, atol=1e-6)
            assert not torch.allclose(networks[0](x), networks[1](x), atol=1e-3)


def test_the_files_are_those_of_the_manifest_and_say_who_is_where(
    run: Path, tmp_path: Path
) -> None:
    out = export_run(run, tmp_path / "out").folder
    manifest = json.loads((out / "export.json").read_text())
    assert {p.name for p in out.iterdir()} == {*manifest["files"], "export.json"}
    assert all(
        hashlib.sha256((out / n).read_bytes()).hexdigest() == digest
        for n, digest in manifest["files"].items()
    )
    member = RunFolder.open(run).latest_checkpoint().groups.member
    with open(out / "groups.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["client"] for row in rows] == sorted(CLIENTS)
    assert [int(row["group"]) for row in rows] == member.tolist()
    assert {row["model"] for row in rows} <= set(manifest["files"])


def test_the_card(run: Path, tmp_path: Path) -> None:
    done = export_run(run, tmp_path / "out")
    text = (done.folder / "README.md").read_text(encoding="utf-8")
    front, body = text.removeprefix("---\n").split("---\n", 1)
    meta = {
        key: json.loads(value)
        for key, _, value in (line.partition(": ") for line in front.splitlines())
    }
    assert meta["pipeline_tag"] == "tabular-classification"
    assert "fedgroup" in meta["tags"]
    assert "<script>" not in body
    assert "<b>" not in body
    assert "&lt;b&gt;&#124;dog&#96;" in body
    assert str(tmp_path) not in body
    assert ".parquet" not in body  # where the data lie is nobody else's business
    networks, which, _ = reference(run)
    prepared = prepare(check(RunFolder.open(run).resolved), run / "partition.npz")
    population = prepared.population
    right = 0
    for i in range(population.clients):
        rows = torch.from_numpy(population.test[i])
        with torch.no_grad():
            right += int(
                (networks[which[i]](population.x[rows]).argmax(1) == population.y[rows]).sum()
            )
    assert done.card.figures.accuracy == right / population.sizes("test").sum()
    assert f"{100 * done.card.figures.accuracy:.1f} % of all" in body
    for group in done.card.figures.groups:
        assert (
            f"| {group['name']} | {group['clients']} | {group['train']} | {group['test']} |" in body
        )
        assert sum(group["mix"]) == group["train"]


def test_an_earlier_export_is_written_over_and_nothing_else(run: Path, tmp_path: Path) -> None:
    out = export_run(run).folder
    assert out == run / "export"
    (out / "notes.txt").write_text("mine")
    manifest = json.loads((out / "export.json").read_text())
    (out / "group-9.safetensors").write_bytes(b"of a larger run")
    manifest["files"]["group-9.safetensors"] = "?"
    manifest["files"]["../config.toml"] = "?"
    (out / "export.json").write_text(json.dumps(manifest))
    export_run(run)
    assert (out / "notes.txt").read_text() == "mine"
    assert not (out / "group-9.safetensors").exists()
    assert (run / "config.toml").exists()
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds something else"):
        export_run(run, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_what_cannot_be_exported_is_one_line(run: Path, table: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run"):
        export_run(tmp_path)
    begun = RunFolder.create(tmp_path / "begun", check(tables(table)).resolved())
    with pytest.raises(ConfigError, match="no model yet"):
        export_run(begun.path)
    table.rename(tmp_path / "elsewhere")
    try:
        with pytest.raises(DataError, match="no such file"):
            export_run(run, tmp_path / "out")
    finally:
        (tmp_path / "elsewhere").rename(table)
    assert not (tmp_path / "out").exists()


def test_your_own_network_is_named_and_not_copied(
    table: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    (tmp_path / "mynet7.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    run_config(
        check(tables(table, model={"name": "mynet7:Net"}, algorithm={"name": "fedavg"})), "run"
    )
    assert invoke(["export", "run"]) == 0
    assert "load.py imports mynet7:Net, which is yours" in capsys.readouterr().out
    text = Path("run/export/load.py").read_text()
    assert "from mynet7 import Net" in text
    assert "Net(shape=SHAPE, classes=len(LABELS))" in text
    assert "`mynet7:Net`, a network of the authors' own" in Path("run/export/README.md").read_text()
    assert not Path("run/export/mynet7.py").exists()


SHAPES = {
    "bigru": (4, 3),
    "bilstm": (4, 3),
    "stacked_lstm": (4, 3),
    "vgg16": (3, 32, 32),
    "mclr": (7,),
}


def remade(module: nn.Module) -> nn.Module:
    source = source_of(module)
    code = "\n".join(
        ("from torch import nn", *source.imports, *source.classes, f"made = {source.expression}")
    )
    space: dict[str, object] = {}
    exec(compile(f"from __future__ import annotations\n{code}", "load.py", "exec"), space)
    assert isinstance(space["made"], nn.Module)
    return space["made"]


@pytest.mark.parametrize("name", MODELS)
def test_every_network_is_written_as_source(name: str) -> None:
    shape = SHAPES.get(name, (1, 28, 28))
    network = build(name, shape, 2, Key(0)).eval()
    again = remade(network).eval()
    again.load_state_dict(network.state_dict())
    x = torch.randn(3, *shape, generator=Key(1).torch())
    with torch.no_grad():
        assert torch.equal(again(x), network(x))


@pytest.mark.parametrize("operator", ["conv", "multi", "single"])
@pytest.mark.parametrize(("name", "shape"), [("mlp", (6,)), ("cnn_small", (1, 28, 28))])
def test_a_fused_network_is_written_as_source(operator, name, shape) -> None:
    network = fuse(build(name, shape, 3, Key(0)), operator, Key(1)).eval()
    again = remade(network).eval()
    again.load_state_dict(network.state_dict())
    x = torch.randn(3, *shape, generator=Key(1).torch())
    with torch.no_grad():
        assert torch.equal(again(x), network(x))


def test_an_unknown_layer_is_named() -> None:
    class Mine(nn.Module):
        pass

    for layer in (Mine(), nn.TransformerEncoderLayer(4, 2)):
        with pytest.raises(Unspellable, match=type(layer).__name__):
            source_of(nn.Sequential(nn.Linear(2, 2), layer))


# --- ONNX -----------------------------------------------------------------------------------------


def test_onnx_gives_what_torch_gives(run: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    done = export_run(run, tmp_path / "out", onnx=True)
    assert done.onnx is not None
    assert 0 <= done.onnx <= 1e-5
    networks, _, x = reference(run)
    for name, network in zip(("group-0", "group-1", "no-group"), networks, strict=True):
        session = onnxruntime.InferenceSession(
            str(done.folder / f"{name}.onnx"), providers=["CPUExecutionProvider"]
        )
        for part in (x, x[:1]):
            (got,) = session.run(None, {"x": part.numpy()})
            with torch.no_grad():
                np.testing.assert_allclose(got, network(part).numpy(), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_network_is_written_as_onnx(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from coterie.export.onnx import write_onnx

    shape = SHAPES.get(name, (1, 28, 28))
    network = build(name, shape, 2, Key(0)).eval()
    assert (
        write_onnx(network, torch.randn(8, *shape, generator=Key(1).torch()), tmp_path / "x.onnx")
        <= 1e-5
    )


def test_onnx_needs_its_extra(run: Path, tmp_path: Path, monkeypatch) -> None:
    from coterie.export import onnx

    monkeypatch.setattr(onnx, "find_spec", lambda name: None if name == "onnxscript" else object())
    with pytest.raises(
        ConfigError, match=r"onnxscript is not installed; expected pip install '\.\[onnx\]'"
    ):
        export_run(run, tmp_path / "out", onnx=True)
    assert not (tmp_path / "out").exists()
