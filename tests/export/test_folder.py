"""The folder of an export: its models load without Coterie and predict the same."""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from coterie.cli.main import invoke
from coterie.errors import ConfigError, DataError
from coterie.experiment import check
from coterie.export import export_run
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config
from tests.export.conftest import CLIENTS, reference, tables

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
