"""The model card."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from coterie.experiment import check
from coterie.export import export_run
from coterie.runs.compose import compose
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config
from tests.export.conftest import reference, tables


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
    composed = compose(check(RunFolder.open(run).resolved), run / "partition.npz")
    population = composed.population
    right = 0
    for i in range(population.clients):
        rows = torch.from_numpy(population.test[i])
        with torch.no_grad():
            right += int(
                (networks[which[i]](population.x[rows]).argmax(1) == population.y[rows]).sum()
            )
    assert done.card.figures.score == right / population.sizes("test").sum()
    assert f"{100 * done.card.figures.score:.1f} % of all" in body
    for group in done.card.figures.groups:
        assert f"| {group.name} | {group.clients} | {group.train} | {group.test} |" in body
        assert sum(group.mix) == group.train


def test_the_card_of_a_method_without_groups_speaks_of_none(table: Path, tmp_path: Path) -> None:
    cards = {}
    for name, client in (("fedavg", None), ("local", "ann")):
        config = tables(table, algorithm={"name": name})
        run_config(check(config), tmp_path / name)
        folder = export_run(tmp_path / name, tmp_path / f"{name}-export", client=client).folder
        cards[name] = (folder / "README.md").read_text(encoding="utf-8")
        assert "clustered" not in cards[name].split("## Files")[0]
        assert "other groups" not in cards[name]
    assert "One model" in cards["fedavg"]
    assert "share this model" in cards["fedavg"]
    # Its clients train alone.
    assert "federated learning" not in cards["local"].split("## Files")[0]
    assert "own data only" in cards["local"]
