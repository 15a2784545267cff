"""``predict.py`` of an export: what `coterie predict` does, without Coterie."""

from __future__ import annotations

import inspect
import json
from importlib import resources
from pathlib import Path
from typing import Any

from coterie.export import placing, table_outputs
from coterie.export.held_out_calibration import calibration_of
from coterie.export.new_rows import NEW_CLIENT
from coterie.export.source import ExportSource
from coterie.export.table_record import TableRoles, task_record
from coterie.files import FORMULA
from coterie.rules.unlabelled import ONE_MODEL, WITHOUT_LABELS

RECORD = "predict.json"
OUTPUTS = "outputs.py"
PROGRAM = "predict.py"


def write_predictor(folder: Path, source: ExportSource) -> None:
    """Write the files of a run on a table.

    Args:
        folder: of the export.
        source: the run.
    """
    record = json.dumps(_record(source), indent=1)
    (folder / RECORD).write_text(record + "\n", encoding="utf-8")
    (folder / OUTPUTS).write_text(inspect.getsource(table_outputs), encoding="utf-8")
    # Nothing in it is filled in: all that differs between runs is in the record.
    program = resources.files("coterie.export").joinpath("templates", f"{PROGRAM}.j2")
    (folder / PROGRAM).write_text(program.read_text(encoding="utf-8"), encoding="utf-8")


def _record(source: ExportSource) -> dict[str, Any]:
    """What `predict.py` must know."""
    prepared = source.prepared
    roles = TableRoles.of(prepared)
    assert roles is not None
    # The same record that `coterie predict` computes with.
    task = task_record(prepared, roles.labels)
    rules: dict[str, Any] = {}
    calibration = ""
    two_classes = task["kind"] == "binary" or len(task.get("labels", ())) == 2
    if two_classes:
        found, calibration = calibration_of(source)
        # JSON has no key that is nothing.
        rules = {"all" if group is None else str(group): rule for group, rule in found.items()}
    return {
        "task": task,
        "labels": list(roles.labels),
        "client": roles.client,
        "features": roles.features,
        "window": None if roles.window is None else roles.window.model_dump(),
        "groups": source.checkpoint.groups.k,
        "calibration": calibration,
        "calibrators": rules,
        "new_client": NEW_CLIENT,
        "placed_by": {
            "known": placing.KNOWN,
            "no labels": WITHOUT_LABELS,
            "one model": ONE_MODEL,
        },
        "formula": list(FORMULA),
    }
