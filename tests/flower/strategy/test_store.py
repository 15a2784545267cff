"""The folder of a run in a Flower app, and a run that goes on."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.app import ArrayRecord, Message

import coterie as ct
from coterie.cli.main import invoke
from coterie.errors import CheckpointError
from coterie.flower import ClusteredResult, ClusteredStrategy
from coterie.report.load import view_of
from tests.flower.strategy.ordinary import (
    AppGrid,
    config,
    first_arrays,
    largest_gap,
    node_ids,
    rotated_digits,
    torch_app,
)
from tests.refusals import refuses

NODES = node_ids(6)
ROUNDS = 5


class StoppedError(Exception):
    """The server is killed."""


def start(out: Path | None, grid: AppGrid | None = None, **options: object) -> ClusteredResult:
    method = options.pop("method", None) or ct.fedgroup(groups=2, alpha=3)
    grid = grid or AppGrid(torch_app(rotated_digits(6, 2)), NODES)
    strategy = ClusteredStrategy(method, out=out, fraction_train=0.7, **options)
    return strategy.start(grid, first_arrays(), ROUNDS, 1.0, config())


def killed_after(exchanges: int) -> AppGrid:
    def stop(grid: AppGrid, exchange: int) -> None:
        if exchange == exchanges:
            raise StoppedError

    return AppGrid(torch_app(rotated_digits(6, 2)), NODES, before=stop)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("exchanges", [0, 1, 4, 8, 10])
def test_a_run_that_was_killed_goes_on_to_the_same_bits(tmp_path: Path, exchanges: int) -> None:
    whole = start(None)
    with pytest.raises(StoppedError):
        start(tmp_path / "run", killed_after(exchanges))
    grid = AppGrid(torch_app(rotated_digits(6, 2)), NODES)
    resumed = start(tmp_path / "run", grid)
    assert resumed.groups == whole.groups
    for ours, theirs in zip(resumed.models, whole.models, strict=True):
        assert largest_gap(ours, theirs) == 0.0
    assert [row["round"] for row in resumed.rows] == list(range(ROUNDS))
    first = grid.sent[0].content["config"]["server-round"]
    assert first == {0: 1, 1: 1, 4: 2, 8: 4, 10: 5}[exchanges]


def test_a_run_that_is_done_is_read_and_no_node_is_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = start(tmp_path / "run")
    caplog.clear()
    grid = AppGrid(torch_app(rotated_digits(6, 2)), NODES)
    again = start(tmp_path / "run", grid)
    assert not grid.sent
    # The app may have changed since, and nothing is trained.
    (warning,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert str(tmp_path / "run") in warning
    assert again.groups == whole.groups
    assert largest_gap(again.arrays, whole.arrays) == 0.0


def test_a_run_that_is_done_is_not_written_again_for_other_nodes(tmp_path: Path) -> None:
    """Simulated nodes have other ids in each simulation."""
    whole = start(tmp_path / "run")
    before = {
        file.name: file.read_bytes() for file in (tmp_path / "run").iterdir() if file.is_file()
    }
    others = AppGrid(
        torch_app(rotated_digits(6, 2)), {node + 1: part for node, part in NODES.items()}
    )
    seen: dict[int, ArrayRecord] = {}

    def evaluate(number: int, arrays: ArrayRecord) -> None:
        seen[number] = arrays

    strategy = ClusteredStrategy(
        ct.fedgroup(groups=2, alpha=3), out=tmp_path / "run", fraction_train=0.7
    )
    again = strategy.start(others, first_arrays(), ROUNDS, 1.0, config(), evaluate_fn=evaluate)
    assert not others.sent
    assert again.groups == whole.groups
    assert list(seen) == [ROUNDS]
    assert largest_gap(seen[ROUNDS], whole.arrays) == 0.0
    after = {
        file.name: file.read_bytes() for file in (tmp_path / "run").iterdir() if file.is_file()
    }
    assert after == before


def test_the_folder_has_what_every_run_has(tmp_path: Path) -> None:
    result = start(tmp_path / "run")
    folder = tmp_path / "run"
    with (folder / "groups.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert {int(row["client"]): int(row["group"]) for row in rows} == result.groups
    summary = json.loads((folder / "summary.json").read_text())
    last = result.evaluate_metrics_clientapp[ROUNDS]["eval_acc"]
    assert summary["accuracy"]["final"] == pytest.approx(last)
    assert summary["sizes"] == [3, 3]
    assert summary["complete"]
    with (folder / "clients.csv").open() as lines:
        clients = list(csv.DictReader(lines))
    correct = sum(float(row["correct"]) for row in clients)
    assert correct / sum(int(row["test_samples"]) for row in clients) == pytest.approx(last)
    assert result.rows[-1]["accuracy_groups"] == pytest.approx(
        [result.evaluate_metrics_groups[ROUNDS][j]["eval_acc"] for j in (0, 1)]
    )


def test_report_and_compare_read_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start(tmp_path / "grouped")
    start(tmp_path / "one", method=ct.fedavg())
    folders = [str(tmp_path / "grouped"), str(tmp_path / "one")]
    page = tmp_path / "page.html"
    assert invoke(["report", *folders, "--out", str(page)]) == 0, capsys.readouterr().err
    assert "fedgroup" in page.read_text(encoding="utf-8")
    # Places that no node has taken are no clients.
    views = [view_of(folder) for folder in folders]
    assert [sorted(view.names) for view in views] == [sorted(map(str, NODES))] * 2
    assert invoke(["show", folders[0]]) == 0, capsys.readouterr().err
    table = tmp_path / "compared"
    assert invoke(["compare", *reversed(folders), "--out", str(table)]) == 0
    with (table / "table.csv").open() as lines:
        rows = {row["algorithm"]: row for row in csv.DictReader(lines)}
    final = {
        name: json.loads((tmp_path / folder / "summary.json").read_text())["accuracy"]["final"]
        for name, folder in (("fedavg", "one"), ("fedgroup", "grouped"))
    }
    gap = final["fedgroup"] - final["fedavg"]
    assert float(rows["fedgroup"]["difference"]) == pytest.approx(gap)
    with (table / "clients.csv").open() as lines:
        assert {int(row["client"]) for row in csv.DictReader(lines)} == set(NODES)


def test_another_method_or_seed_is_refused(tmp_path: Path) -> None:
    start(tmp_path / "run")
    with refuses(CheckpointError, "differs", "run"):
        start(tmp_path / "run", method=ct.fedavg())
    with refuses(CheckpointError, "differs", "run"):
        start(tmp_path / "run", seed=5)


def test_without_an_accuracy_the_loss_is_the_headline(tmp_path: Path) -> None:
    def without(request: Message, reply: Message) -> Message:
        reply.content["metrics"].pop("eval_acc", None)
        return reply

    grid = AppGrid(torch_app(rotated_digits(6, 2)), NODES, without)
    result = start(tmp_path / "run", grid)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    last = result.evaluate_metrics_clientapp[ROUNDS]["eval_loss"]
    assert summary["loss"]["final"] == pytest.approx(last)
    # A folder that is only read keeps its headline.
    start(tmp_path / "run", grid)
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary
