"""The state of a run, as whatever shows a run reads it."""

from __future__ import annotations

import os
from dataclasses import replace

from coterie.runs.folder.store import RunFolder
from coterie.runs.state import PATIENCE, read_state, seconds_left
from tests.runs.stored_runs import row


def test_a_new_run_has_no_round_and_is_not_over(folder: RunFolder) -> None:
    state = read_state(folder)
    assert (state.title, state.rounds, list(state.rows)) == ("fedavg on digits", 4, [])
    assert (state.over, state.done, state.values, state.seconds_left) == (False, False, [], None)


def test_a_state_follows_the_folder_and_reads_rows_again_only_where_they_changed(
    folder: RunFolder,
) -> None:
    folder.append_round(row(0))
    before = read_state(folder)
    assert read_state(folder, before).rows is before.rows
    folder.append_round(row(1))
    after = read_state(folder, before)
    assert [one["round"] for one in after.rows] == [0, 1]
    assert after.counted("refused") == {"finite": 2}
    folder.rewind(1)
    assert [one["round"] for one in read_state(folder, after).rows] == [0]


def test_a_run_is_done_when_its_results_are_written(folder: RunFolder) -> None:
    for round in range(4):
        folder.append_round(row(round))
    state = read_state(folder)
    assert (state.over, state.done) == (True, False)
    folder.results.write_summary({"rounds": 4})
    # No row has changed, but the record has.
    assert read_state(folder, state).done


def test_the_time_left_is_at_the_pace_of_the_last_rounds_without_the_first(
    folder: RunFolder,
) -> None:
    for round in range(3):
        folder.append_round(row(round))  # of 1, 2 and 3 seconds
    assert read_state(folder).seconds_left == 2.5
    assert seconds_left([], 3) is None
    assert seconds_left([], 0) == 0.0


def test_a_run_is_silent_only_after_many_rounds_and_a_minute(folder: RunFolder) -> None:
    for round in range(3):
        folder.append_round(row(round))
    state = read_state(folder)
    assert state.silence == 0.0
    later = replace(state, now=state.written + PATIENCE + 1)
    assert later.silence == PATIENCE + 1
    slow = [{**one, "seconds": {"total": 10.0}} for one in state.rows]
    assert replace(later, rows=slow).silence == 0.0
    os.utime(folder.path / "rounds.jsonl", (0, 0))
    assert read_state(folder).silence > PATIENCE
