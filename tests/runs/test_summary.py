"""The summary of a run."""

from __future__ import annotations

import pytest

from coterie.errors import CheckpointError
from coterie.runs.folder.store import RunFolder
from coterie.runs.summary import summarise
from tests.refusals import refuses
from tests.runs.stored_runs import RESOLVED, row


def test_the_summary() -> None:
    rows = [row(0, accuracy=None), *(row(t) for t in range(1, 4))]
    summary = summarise(RESOLVED, rows, clients=8)
    assert summary["accuracy"] == {
        "max": pytest.approx(0.3),
        "final": pytest.approx(0.3),
        "last10_mean": pytest.approx(0.2),
    }
    assert summary["seconds"]["total"] == 10
    assert summary["seconds"]["per_round_median"] == 2.5
    assert summary["transfers"] == {"models": 32, "down_bytes": 400, "up_bytes": 200}
    assert summary["refused"] == {"finite": 4}
    assert (summary["algorithm"], summary["dataset"], summary["model"]) == (
        "fedavg",
        "digits",
        "mclr",
    )
    assert (summary["clients"], summary["rounds"], summary["groups"], summary["complete"]) == (
        8,
        4,
        2,
        True,
    )


def test_the_best_round_is_one_in_which_all_clients_were_scored() -> None:
    def best(*rounds: tuple[int, float | None]) -> float | None:
        rows = [row(t, clients_assigned=n, accuracy=a) for t, (n, a) in enumerate(rounds)]
        return summarise(RESOLVED, rows, clients=8)["accuracy"]["max"]

    assert best((3, 0.9), (6, 0.8), (7, 0.5), (7, 0.6), (7, 0.4)) == 0.6
    assert (
        best((3, 0.9), (6, 0.8), (7, None)) == 0.9
    )  # none of the rounds with everybody was evaluated


def test_a_damaged_summary_is_named(folder: RunFolder) -> None:
    folder.results.write_summary(summarise(RESOLVED, [], clients=8))
    (folder.path / "summary.json").write_text('{"accuracy"')
    with refuses(CheckpointError, "damaged", "summary.json"):
        folder.results.summary()


@pytest.mark.parametrize("text", ['{"accuracy"', "{}"])
def test_a_summary_of_a_folder_without_a_record_is_not_read(folder: RunFolder, text: str) -> None:
    """Nothing says that it is whole, and `coterie resume` writes it anew."""
    (folder.path / "digests.json").unlink()
    (folder.path / "summary.json").write_text(text)
    assert folder.results.summary() is None


def test_the_summary_of_nothing_is_json(folder: RunFolder) -> None:
    folder.results.write_summary(summarise(RESOLVED, [], clients=8))
    read = folder.results.summary()
    assert read is not None
    assert read["accuracy"] == {"max": None, "final": None, "last10_mean": None}
