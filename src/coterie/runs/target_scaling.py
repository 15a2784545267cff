"""How the targets of a run are scaled, which its folder says: ``targets.json``.

It is decided once, from what the clients of the first round report. A folder without the file is of
a run whose networks learn targets as they are, as those of earlier versions do.
"""

from __future__ import annotations

from pathlib import Path

from coterie.core.target_scaling import ScalesTargets, TargetScaling
from coterie.data import Population
from coterie.errors import CheckpointError
from coterie.experiment import Experiment
from coterie.experiment.objects import make_choice
from coterie.files import MALFORMED, canonical_json, read_json
from coterie.runs.folder.digests import TARGETS, checked_file
from coterie.tasks.scaling import reported_scaling


def asks_for_scaling(experiment: Experiment) -> bool:
    """Whether clients are asked what their targets are. Not with ``[privacy]``, since a mean would
    be sent without noise."""
    task = make_choice(experiment, "task")
    return isinstance(task, ScalesTargets) and task.asks_for_scaling and experiment.privacy is None


def new_scaling(experiment: Experiment, population: Population) -> TargetScaling | None:
    """How a new run scales its targets."""
    if not asks_for_scaling(experiment):
        return None
    return reported_scaling(population)


def scaling_bytes(scaling: TargetScaling | None) -> bytes:
    """A scaling as the bytes of ``targets.json``."""
    return canonical_json((scaling or TargetScaling((), ())).record()) + b"\n"


def stored_scaling(folder: Path) -> TargetScaling | None:
    """How the run of a folder scales its targets."""
    data = checked_file(folder, TARGETS)
    if data is None:
        return None
    try:
        return TargetScaling.read(read_json(data))
    except MALFORMED:
        raise CheckpointError("damaged", folder / TARGETS, "no scaling of targets") from None
