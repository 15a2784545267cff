"""A run that goes on from its folder, to as many rounds as before or to another number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coterie.config.problems import Problem
from coterie.core.arrays import EMPTY
from coterie.errors import ConfigError
from coterie.experiment import Experiment
from coterie.runs.check_folder import check_folder
from coterie.runs.checkpoint import Checkpoint
from coterie.runs.compose import Composed, compose
from coterie.runs.newcomers import with_places
from coterie.runs.store import RunFolder


def reopen(
    folder: RunFolder,
    values: Mapping[str, Any] = EMPTY,
    *,
    rounds: int | None = None,
    trust: bool = False,
) -> tuple[Composed, Checkpoint | None]:
    """The run of a folder, and the state that it goes on from; to be called under its lock.

    With another number of rounds, the folder says so from here on. Final models, members and rows
    are those of a run of this number from the start.

    Args:
        values: settings that change no result, by key path.
    """
    config = folder.config(values, trust=trust)
    # With the options of the caller: those that change results are refused here.
    checkpoint = folder.checkpoints.latest(config.resolved())
    check_folder(folder, resumed=True)
    # Nothing to change, so nothing is written: also a run that is done may be resumed.
    if rounds is None or rounds == config.train.rounds:
        composed = compose(config, folder.partition)
        return composed, _grown(composed, checkpoint)
    done = 0 if checkpoint is None else checkpoint.round
    _refuse_rounds(config, rounds, done)
    changed = folder.config({**values, "train.rounds": rounds}, trust=trust)
    # Composed first, which refuses what a longer run would spend; only then the folder changes.
    composed = compose(changed, folder.partition)
    folder.plan_rounds(rounds)
    return composed, _grown(composed, checkpoint)


def _grown(composed: Composed, checkpoint: Checkpoint | None) -> Checkpoint | None:
    """The state with a place for each client that joined after it was saved."""
    if checkpoint is None:
        return None
    return with_places(
        checkpoint, composed.population.clients, composed.experiment.name("algorithm")
    )


def _refuse_rounds(config: Experiment, rounds: int, done: int) -> None:
    before = config.train.rounds
    problem = None
    # Rows and models of those rounds are there, and a run is never cut.
    if rounds < done:
        expected = f"{done} or more, which are done"
        problem = Problem("--rounds", "fewer rounds than are done", rounds, expected)
    # With `over` the course is the same whatever the number of rounds.
    schedule = config.local.round_schedule
    if schedule is not None and schedule.kind == "cosine" and schedule.over is None:
        what = f"the learning rate follows a cosine over the {before} rounds of the run"
        expected = f"{before}, or a run with local.round_schedule.over"
        problem = Problem("--rounds", what, rounds, expected)
    if config.privacy is not None and config.privacy.noise is None:
        what = f"the noise was chosen so that {before} rounds spend privacy.epsilon"
        expected = f"{before}, or a run with privacy.noise"
        problem = Problem("--rounds", what, rounds, expected)
    if problem is not None:
        raise ConfigError(problem.line())
