"""The folder of an export: its models load without Coterie and predict the same."""

from __future__ import annotations

import csv
import hashlib
import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from coterie.cli.main import invoke
from coterie.errors import ConfigError
from coterie.experiment import check
from coterie.export import export_run
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config
from tests.export.conftest import CLIENTS, reference, tables
from tests.refusals import refuses

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
    assert "after 1 round: 2 groups" in said
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
    found = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    assert found == {*manifest["files"], "export.json"}
    assert "rows/table.py" in found
    assert all(
        hashlib.sha256((out / n).read_bytes()).hexdigest() == digest
        for n, digest in manifest["files"].items()
    )
    member = RunFolder.open(run).checkpoints.latest().groups.member
    with open(out / "groups.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["client"] for row in rows] == sorted(CLIENTS)
    assert [int(row["group"]) for row in rows] == member.tolist()
    assert {row["model"] for row in rows} <= set(manifest["files"])


def test_an_earlier_export_is_written_over_and_nothing_else(run: Path, tmp_path: Path) -> None:
    out = export_run(run).folder
    assert out == run / "export"
    (out / "notes.txt").write_text("mine")
    manifest = json.loads((out / "export.json").read_text())
    (out / "group-9.safetensors").write_bytes(b"of a larger run")
    (out / "rows" / "earlier.py").write_bytes(b"of another version")
    manifest["files"]["group-9.safetensors"] = "?"
    manifest["files"]["rows/earlier.py"] = "?"
    manifest["files"]["../config.toml"] = "?"
    (out / "export.json").write_text(json.dumps(manifest))
    export_run(run)
    assert (out / "notes.txt").read_text() == "mine"
    assert not (out / "group-9.safetensors").exists()
    assert not (out / "rows" / "earlier.py").exists()
    assert (run / "config.toml").exists()
    (tmp_path / "mine.txt").write_text("mine")
    with refuses(ConfigError, "in-use", "out"):
        export_run(run, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_what_cannot_be_exported_is_one_line(run: Path, table: Path, tmp_path: Path) -> None:
    with refuses(ConfigError, "not-found", "run"):
        export_run(tmp_path)
    begun = RunFolder.create(tmp_path / "begun", check(tables(table)).resolved())
    with refuses(ConfigError, "not-found", "begun"):
        export_run(begun.path)


def test_your_own_network_is_written_and_needs_no_module_of_yours(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tables(table, model={"name": "mynet7:Net"}, algorithm={"name": "fedavg"})
    (tmp_path / "mynet7.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    run_config(check(config), "run")
    assert invoke(["export", "run"]) == 0
    assert "network.pt2" not in capsys.readouterr().out
    (tmp_path / "mynet7.py").unlink()
    command = [
        sys.executable,
        "-c",
        "from load import load; print(load(0)(__import__('torch').ones(1, *__import__('load').SHAPE)).shape)",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd="run/export", check=False)
    assert done.stdout.startswith("torch.Size([1, "), done.stderr


def test_weights_alone_of_a_network_that_torch_cannot_write(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turned = OWN.replace(
        "        return torch", "        x = x if x.sum() > 0 else -x\n        return torch"
    )
    (tmp_path / "mynet8.py").write_text(turned)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    config = tables(table, model={"name": "mynet8:Net"}, algorithm={"name": "fedavg"})
    run_config(check(config), "run")
    assert invoke(["export", "run"]) == 0
    assert (
        "network.pt2: not written, because torch cannot export the network"
        in capsys.readouterr().out
    )
    assert "There is no `network.pt2`" in Path("run/export/README.md").read_text()
    loaded = runpy.run_path("run/export/load.py")
    from mynet8 import Net  # type: ignore[import-not-found]

    network = loaded["load"](0, Net(loaded["SHAPE"], len(loaded["LABELS"])))
    assert torch.isfinite(network(torch.ones(2, *loaded["SHAPE"]))).all()
    with pytest.raises(ValueError, match="torch could not write it"):
        loaded["load"](0)
