"""What an export and a prediction know of a run on a table: its columns, and its task.

The folder ``rows``, ``inputs.py`` and ``columns.json`` make inputs of rows. ``outputs.py``,
``predict.py`` and ``predict.json`` do without Coterie what `coterie predict` does.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Collection
from dataclasses import replace
from importlib import resources
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from coterie.data import rows as reader
from coterie.data.images.pixels import unit
from coterie.data.rows.reading import SUFFIXES
from coterie.data.rows.table import Rows
from coterie.data.tabular import new_rows
from coterie.data.tabular.arrow import image_pixels, is_images
from coterie.data.tabular.encoder import OTHER
from coterie.data.tabular.new_rows import NewRows
from coterie.errors import ConfigError, DataError
from coterie.export import placing, table_outputs
from coterie.export.calibration import calibration_of
from coterie.export.source import ExportSource
from coterie.files import FORMULA
from coterie.rules.newcomers import ONE_MODEL, WITHOUT_LABELS
from coterie.runs.folder.digests import COLUMNS
from coterie.runs.stored import Record, record_bytes
from coterie.tasks import Binary, Classification, Multilabel, Regression
from coterie.terminal import warn

if TYPE_CHECKING:
    import pandas as pd

READER = "rows"
INPUTS = "inputs.py"
OUTPUTS = "outputs.py"
RECORD = "predict.json"
PROGRAM = "predict.py"


def read_rows_for_run(
    data: str | PathLike[str] | pd.DataFrame,
    record: Record | None,
    source: str,
    known: Collection[str] = (),
) -> NewRows:
    """Read a table with the columns of the run's own data, as tensors. Labels, clients and columns
    of inputs may be missing.

    Args:
        source: the name of the run's own data.
        known: its clients.
    """
    if isinstance(data, str | PathLike):
        path = Path(data)
        if not path.is_file():
            what = "no such file"
            if path.is_dir():
                what = "a folder"
            expected = "a .parquet or .csv file"
            raise DataError("not-found", "--data", what, found=path, allowed=expected)
        if path.suffix.lower() not in SUFFIXES:
            what = "unknown format"
            expected = ".parquet or .csv"
            raise DataError("unknown-choice", "--data", what, found=path.name, allowed=expected)
    if record is None:
        what = "predictions are for tables"
        got = f"a run on {source!r}"
        expected = "a run on 'file' or another table"
        raise DataError("does-not-fit", "data.source", what, found=got, allowed=expected)
    new = new_rows.read_new_rows(data, record, _images, known)
    for line in new.lines:
        warn(line)
    target = torch.from_numpy(new.target)
    if record["classes"] is None:
        target = target.float()
    return replace(new, x=torch.from_numpy(new.x), target=target)


def _images(rows: Rows, name: str) -> Any:
    """The pixels of a column of images; ``None`` for one of lists."""
    if not is_images(rows.frame[name]):
        return None
    return unit(image_pixels(rows, name))


def task_record(source: ExportSource) -> dict[str, Any]:
    """The task of a run as `coterie.export.table_outputs` has it."""
    labels = [] if source.record is None else source.record["labels"]
    task = source.composed.spec.task
    names = list(source.composed.data.label_names)
    if isinstance(task, Binary | Classification):
        return {"kind": task.name, "labels": names}
    if isinstance(task, Regression):
        record = {"kind": task.name, "loss": task.kind, "delta": task.delta, "q": task.q}
        if task.scaling is not None:
            record["scale"] = list(task.scaling.scale)
        if source.record is not None and source.record["window"] is not None:
            record["series"] = True
        return {**record, "targets": _targets(labels, task.targets)}
    if isinstance(task, Multilabel):
        return {"kind": task.name, "targets": _targets(labels, task.labels)}
    what = "predictions for table rows are not supported for this task"
    expected = "classification, binary, multilabel or regression"
    raise ConfigError("does-not-fit", "task.kind", what, got=task.name, allowed=expected)


def can_predict(source: ExportSource) -> bool:
    """Whether rows of a table can be predicted by the run's models."""
    known = Binary | Classification | Regression | Multilabel
    return isinstance(source.composed.spec.task, known) and source.record is not None


def _targets(labels: list[str], count: int) -> list[str]:
    """The names of the targets: their columns, or the numbers of a column of lists."""
    # A single column may hold lists, whose values have no names.
    if len(labels) == count:
        return list(labels)
    return [str(at) for at in range(count)]


# --- the files ------------------------------------------------------------------------------------


def write_readers(folder: Path) -> None:
    """Write what reads rows, byte for byte as it is here, and what makes inputs of them."""
    (folder / READER).mkdir(exist_ok=True)
    for file in Path(inspect.getfile(reader)).parent.glob("*.py"):
        (folder / READER / file.name).write_bytes(file.read_bytes())
    _write_copy(folder / INPUTS, new_rows)


def _write_copy(file: Path, module: ModuleType) -> None:
    """Write a module as it is here, but for where it finds what reads rows."""
    text = inspect.getsource(module).replace("from coterie.data.rows", "from rows")
    file.write_text(text, encoding="utf-8")


def write_columns(folder: Path, source: ExportSource) -> None:
    """Write what reads rows, and the columns of the run; nothing for a run on other data."""
    record = source.record
    if record is None:
        return
    write_readers(folder)
    # What only the run's own folder needs stays there.
    public = {name: value for name, value in record.items() if name != "training"}
    if source.private and record["rules"] is not None:
        public["rules"] = [_without_rare(rule) for rule in record["rules"]]
    (folder / COLUMNS).write_bytes(record_bytes(public))


def _without_rare(rule: dict[str, Any]) -> dict[str, Any]:
    """A rule without the names of rare categories, which may be those of single clients."""
    if not rule.get("rare"):
        return rule
    return {**rule, "rare": [OTHER]}


def write_predictor(folder: Path, source: ExportSource) -> None:
    """Write the files of a run on a table."""
    record = json.dumps(_record(source), indent=1)
    (folder / RECORD).write_text(record + "\n", encoding="utf-8")
    _write_copy(folder / OUTPUTS, table_outputs)
    # Nothing in it is filled in: all that differs between runs is in the record.
    program = resources.files("coterie.export").joinpath("templates", f"{PROGRAM}.j2")
    (folder / PROGRAM).write_text(program.read_text(encoding="utf-8"), encoding="utf-8")


def _record(source: ExportSource) -> dict[str, Any]:
    """What `predict.py` must know."""
    # The same record that `coterie predict` computes with.
    task = task_record(source)
    rules: dict[str, Any] = {}
    calibration = ""
    two_classes = task["kind"] == "binary" or len(task.get("labels", ())) == 2
    if two_classes:
        found, calibration = calibration_of(source, task)
        # JSON has no key that is nothing.
        rules = {"all" if group is None else str(group): rule for group, rule in found.items()}
    return {
        "task": task,
        "groups": source.checkpoint.groups.k,
        "calibration": calibration,
        "calibrators": rules,
        "placed_by": {"known": placing.KNOWN, "no labels": WITHOUT_LABELS, "one model": ONE_MODEL},
        "formula": list(FORMULA),
    }
