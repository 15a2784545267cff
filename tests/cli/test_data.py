"""Commands that show choices and data."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from coterie.cli.main import invoke
from coterie.config import registry
from coterie.listed import LISTED
from tests.docs.pages import ROOT


@pytest.mark.parametrize(
    ("what", "names"),
    [
        (
            "algorithms",
            ["fedavg", "fedgroup", "groups=3", "an integer >= 1", "one of 'edc', 'madc'"],
        ),
        ("models", ["mclr", "lenet5", "hidden=128"]),
        ("datasets", ["digits", "cifar10", "pixels="]),
        ("shifts", ["swap_all", "incremental"]),
        ("partitions", ["dirichlet", "beta=0.1", "a number > 0"]),
        ("engines", ["pool", "vmap", "ray", "precision=", "one of 'serial', 'vmap'"]),
        ("tasks", ["classification", "regression", "headline="]),
        ("measures", ["theory", "The gradient divergence inside groups"]),
        ("trackers", ["mlflow", "tensorboard", "wandb"]),
    ],
)
def test_list(what: str, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["list", what]) == 0
    text = capsys.readouterr().out
    for name in names:
        assert name in text


def recommended() -> set[str]:
    """The words X of all ``coterie list X`` in messages, docstrings, pages and examples."""
    folders = (ROOT / "src" / "coterie", ROOT / "docs", ROOT / "examples")
    files = [ROOT / "README.md"]
    for folder in folders:
        files += [*folder.rglob("*.py"), *folder.rglob("*.md"), *folder.rglob("*.toml")]
    texts = [file.read_text(encoding="utf-8") for file in files]
    found = {word for text in texts for word in re.findall(r"coterie list\s+([a-z_]+)", text)}
    return found | set(LISTED)


@pytest.mark.parametrize("what", sorted(recommended()))
def test_every_list_that_is_recommended_can_be_had(
    what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["list", what]) == 0
    out, err = capsys.readouterr()
    assert all(name in out for name in registry.names(LISTED[what]))
    assert not err


def test_the_page_of_commands_names_all_lists() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    sentence = re.findall(r"`coterie list` accepts ([^.]*)\.", page)[0]
    assert re.findall(r"`(\w+)`", sentence) == list(LISTED)


def test_inspect(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["data", "inspect", config]) == 0
    text = capsys.readouterr().out
    assert "digits, iid: 6 clients, 10 classes" in text
    assert re.search(r"train +6 +1,61\d", text)
    assert "█" in text


def test_inspect_says_what_other_stands_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table in which two categories are rare."""
    lines = ["client,ward,x,y"]
    for row in range(40):
        ward = {3: "attic", 7: "barn"}.get(row, "main")
        lines.append(f"{'ann' if row % 2 else 'bob'},{ward},{row},{row % 3 % 2}")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "run.toml").write_text(
        f"""
[data]
source = "file"
path = "{tmp_path / "t.csv"}"
features = "*"
label = "y"
client = "client"
[data.partition]
kind = "natural"
test_fraction = 0.1
[data.encode]
rare = 5
[task]
kind = "binary"
[model]
name = "mclr"
[train]
rounds = 1
[algorithm]
name = "fedavg"
"""
    )
    assert invoke(["data", "inspect", str(tmp_path / "run.toml")]) == 0
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if line.startswith("ward = (other) combines")]
    assert "rare categories" in line
    assert "attic" in line or "barn" in line


def test_inspect_counts_tokens_without_padding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "texts_here.py").write_text(
        """
import coterie as ct, torch
def population():
    x = torch.arange(40).reshape(8, 5) % 7
    y = x.roll(-1, 1)
    y[:, -1] = -100
    return ct.Population(x, y, [[0, 1, 2], [4, 5, 6]], [[3], [7]])
"""
    )
    (tmp_path / "run.toml").write_text(
        """
[data]
source = "texts_here:population"
partition = { kind = "given" }
[task]
kind = "next_token"
[model]
name = "transformer"
per_token = true
[train]
rounds = 1
[algorithm]
name = "fedavg"
"""
    )
    monkeypatch.chdir(tmp_path)
    assert invoke(["data", "inspect", "run.toml"]) == 0
    said = capsys.readouterr().out
    assert "tokens to predict" in said
    assert "24 tokens, 7 of them different" in said
    assert "(-100): 6" in said


def test_inspect_reads_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "".join(f"{at % 7}.5,{'ab'[at % 2]},{'xy'[at % 3 // 2]}\n" for at in range(60))
    (tmp_path / "t.csv").write_text(f"age,client,y\n{rows}")
    file = tmp_path / "c.toml"
    file.write_text(
        f"[data]\nsource = 'file'\npath = '{tmp_path}/t.csv'\nfeatures = '*'\n"
        "[data.partition]\nkind = 'natural'\n[model]\nname = 'mclr'\n"
        "[train]\nrounds = 1\n[algorithm]\nname = 'fedavg'\n"
    )
    read = []
    pandas = pd.read_csv
    monkeypatch.setattr(pd, "read_csv", lambda *a, **k: read.append(a) or pandas(*a, **k))
    assert invoke(["data", "inspect", str(file)]) == 0
    assert len(read) == 1
