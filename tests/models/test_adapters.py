"""The examples of frozen networks and adapters: what they train, and what of them is sent."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import coterie as ct
from coterie.cli.main import invoke
from coterie.core.keys import Key
from coterie.core.vectors import Layout, flatten
from coterie.models import build_model, spec
from tests.docs.pages import ROOT

MOST = 0.02  # of what the full model moves
PAGE = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ coterie (.*)$", PAGE.replace("\\\n", ""), re.MULTILINE)
OF_BACKBONE = [line for line in COMMANDS if "backbone" in line]
OF_TWEETS = [line for line in COMMANDS if "lora" in line]
HAS_TWEETS = Path(os.environ.get("COTERIE_DATA", ""), "sent140", "users.parquet").is_file()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("adapters.py", "sent140-lora.toml", "digits-backbone.toml"):
        shutil.copy(ROOT / "examples" / "adapters" / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "adapters", raising=False)
    return tmp_path


def on_the_wire(values: torch.Tensor) -> int:
    """Bytes of a serialised message of Flower with an update."""
    pytest.importorskip("flwr")
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
    from flwr.common.serde import recorddict_to_proto

    fields = {"delta": Array(values.numpy()), "loss": Array(np.zeros(1)), "size": Array(np.ones(1))}
    note = ConfigRecord({"round": 0, "purpose": "train", "client": 0, "assignment_version": 0})
    content = RecordDict({"coterie": note, "fields": ArrayRecord(fields)})
    return len(recorddict_to_proto(content).SerializeToString())


def texts(places: int = 6) -> ct.Population:
    """Tweets of twelve clients, of whom half call good what the others call bad."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.integers(2, 30, size=(12 * 12, places)))
    y = (x > 15).sum(1) * 2 > places
    y[torch.arange(len(y)) // 12 % 2 == 1] ^= True
    parts = np.arange(144).reshape(12, 12)
    return ct.Population(x, y.long(), tuple(parts[:, :8]), tuple(parts[:, 8:]), 2)


@pytest.mark.usefixtures("folder")
def test_adapters_move_two_hundredths_at_most() -> None:
    pytest.importorskip("peft")
    data = texts()
    small = build_model("adapters:lora", data.shape, 2, Key(0))
    full = build_model("transformer", data.shape, 2, Key(0), vocabulary=2000)
    assert isinstance(small, nn.Module)
    # Two blocks; of query and value a matrix of rank 4 each way; and the head with its norm.
    assert Layout.of(small).d == 2 * 2 * 2 * 4 * 64 + 2 * 64 + 2 * 64 + 2
    given: dict[str, Any] = {"rounds": 1, "engine": "serial", "clients_per_round": 6}
    local = ct.Solver(epochs=1, batch_size=8, lr=0.02, optimizer="adamw")
    rows = {
        name: ct.run(ct.fedgroup(groups=2, alpha=3), data=data, model=net, local=local, **given)
        for name, net in (("small", small), ("full", full))
    }
    for way in ("up_bytes", "down_bytes"):
        moved = {n: sum(row["transfers"][way] for row in r.rows) for n, r in rows.items()}
        assert moved["small"] <= MOST * moved["full"], way
    assert on_the_wire(flatten(small)) <= MOST * on_the_wire(flatten(full))
    # Only what is trained differs from the network that was made.
    served = rows["small"].model_for(0).state_dict()
    changed = {n for n, values in small.state_dict().items() if not torch.equal(served[n], values)}
    assert changed
    assert all("lora_" in name or "modules_to_save" in name for name in changed)


def run_commands(lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Commands of the page, in the current folder."""
    assert lines
    for line in lines:
        assert invoke(shlex.split(line)) == 0, (line, capsys.readouterr().err)


@pytest.mark.slow
def test_a_frozen_backbone_with_a_trained_head(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_commands(OF_BACKBONE, capsys)
    network = build_model("adapters:frozen_backbone", (1, 8, 8), 10, Key(0))
    assert Layout.of(network).names == (f"{len(network) - 1}.weight", f"{len(network) - 1}.bias")  # type: ignore[arg-type]
    assert Layout.of(network).d <= MOST * spec("resnet8").count((1, 8, 8), 10)
    text = (folder / "runs" / "backbone" / "summary.json").read_text(encoding="utf-8")
    frozen = spec("resnet8").count((1, 8, 8), 10) - 650
    assert f'"frozen_bytes": {4 * frozen}' in text
    # An export has the frozen layers as well.
    assert invoke(shlex.split("export runs/backbone --out out")) == 0


@pytest.mark.slow  # transformers are trained for ten seconds, of which the first test trains one
@pytest.mark.skipif(not HAS_TWEETS, reason="needs Sentiment140")
@pytest.mark.usefixtures("folder")
def test_the_commands_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that need tweets; the others run above."""
    pytest.importorskip("peft")
    run_commands(OF_TWEETS, capsys)


def test_the_page_shows_the_example_and_its_other_example_runs() -> None:
    exec(re.findall(r"^```python\n(import torch.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0], {})
    (code,) = re.findall(r"^```python\n(def lora.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert code in (ROOT / "examples" / "adapters" / "adapters.py").read_text(encoding="utf-8")
