"""Predictions of a run's models for new rows of known and of new clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import FloatArray
from coterie.core.csv_text import csv_text
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.task import Task
from coterie.errors import ConfigError
from coterie.export.calibration import Calibrator
from coterie.export.new_rows import NewRows, read_new_rows
from coterie.export.source import ExportSource
from coterie.runs.held_out import held_out_samples
from coterie.runs.kept import KEPT
from coterie.runs.outputs import outputs_of
from coterie.tasks import Binary, Classification, Regression

KNOWN = "known client"
BY_LABELS = "its labels"
WITHOUT_LABELS = "no labels: the model for clients without a group"
ONE_MODEL = "one model"


@dataclass(frozen=True, eq=False, slots=True)
class Placed:
    """Which model serves a client.

    Args:
        client: its name.
        group: its group; -1 without one.
        by: how it came to it.
        vector: float32 ``[d]``, the model.
    """

    client: str
    group: int
    by: str
    vector: Tensor


@dataclass(frozen=True, slots=True)
class Predicted:
    """What was written.

    Args:
        path: the file.
        rows: how many predictions.
        placed: the clients.
        calibration: how probabilities were calibrated, or why not; empty for other tasks.
    """

    path: Path
    rows: int
    placed: Sequence[Placed]
    calibration: str


def predict(
    run: Path | str, data: Path, out: Path, *, root: str | None = None, trust: bool = False
) -> Predicted:
    """Write the predictions of a run for the rows of a file.

    A client of the run is predicted by the model that serves it. A new client with labels is placed
    into the group whose model has the least mean loss on them; one without labels is served as the
    method serves a client without a group.

    Args:
        run: its folder.
        data: a .parquet or .csv file with the columns of the run's own data.
        out: the CSV file that is written.
        root: folder of the datasets; ``None``: that of the run.
        trust: run the code that the configuration names as ``module:factory``.

    Raises:
        ConfigError: for a run that has no model, or whose task has no such predictions.
        DataError: if a file cannot be read.
    """
    source = ExportSource.open(run, root, trust=trust, task_of="")
    prepared = source.prepared
    task = prepared.spec.task
    if source.real or KEPT[0] in source.checkpoint.extra:
        got = "real clients" if source.real else f"{prepared.config.algorithm.name!r}"
        raise ConfigError(
            f"run: predictions need models that the server has whole, got a run of {got}; expected "
            "a simulation of a method that shares the whole model"
        )
    if not isinstance(task, Binary | Classification | Regression):
        raise ConfigError(
            f"task.kind: no predictions for rows so far, got {task.name!r}; expected "
            "classification, binary or regression"
        )
    new = read_new_rows(data, prepared)
    placed = _place_all(source, new)
    outputs = _outputs(source, new, placed)
    columns = _columns(task, outputs, prepared.label_names)
    calibration = ""
    if _logits(task, outputs) is not None:
        calibrated, calibration = _calibrate(source, new, placed, outputs)
        columns |= calibrated
    _write(out, new, placed, columns)
    return Predicted(out, len(new.row), list(placed.values()), calibration)


# --- placing --------------------------------------------------------------------------------------


def _place_all(source: ExportSource, new: NewRows) -> dict[str, Placed]:
    """The model of each client of the rows."""
    names = {name: at for at, name in enumerate(source.population.names)}
    groups = source.checkpoint.groups
    serve = source.prepared.algorithm.serve
    served = serve(groups)
    found = {}
    for client in dict.fromkeys(new.client.tolist()):
        if client in names:
            at = names[client]
            found[client] = Placed(client, int(groups.member[at]), KNOWN, served.vector(at))
            continue
        mine = new.client == client
        labelled = torch.from_numpy(mine & new.labelled)
        if groups.k > 1 and labelled.any():
            group = _by_labels(source, groups, new.x[labelled], new.target[labelled])
            found[client] = Placed(client, group, BY_LABELS, groups.models[group])
        elif groups.k > 1:
            # As if one more client had come that is in no group.
            more = replace(groups, member=np.append(groups.member, -1))
            vector = serve(more).vector(len(groups.member))
            found[client] = Placed(client, -1, WITHOUT_LABELS, vector)
        else:
            found[client] = Placed(client, 0, ONE_MODEL, groups.models[0])
    return found


def _by_labels(source: ExportSource, groups: Groups, x: Tensor, y: Tensor) -> int:
    """The group whose model has the least mean loss on some samples; the first of equal ones."""
    module = source.prepared.module
    task = source.prepared.spec.task
    losses = [
        task.loss(outputs_of(module, vector, x), y).double().mean().item()
        for vector in groups.models
    ]
    # NaN of a model that diverged is larger than any loss.
    return int(np.argmin(np.nan_to_num(losses, nan=np.inf)))


def _outputs(source: ExportSource, new: NewRows, placed: Mapping[str, Placed]) -> Tensor:
    """The outputs for all rows, each by the model of its client."""
    # Client by client, since each has a model of its own; then back to the order of the file.
    found: list[Tensor] = []
    order: list[Tensor] = []
    for client, one in placed.items():
        mine = torch.from_numpy(np.flatnonzero(new.client == client))
        found.append(outputs_of(source.prepared.module, one.vector, new.x[mine]))
        order.append(mine)
    outputs = torch.cat(found)
    return outputs[torch.cat(order).argsort()]


# --- what the outputs mean ------------------------------------------------------------------------


def _columns(task: Task, outputs: Tensor, names: Sequence[str]) -> dict[str, list[Any]]:
    """Prediction and score of each row, by the names of their columns."""
    if isinstance(task, Regression):
        values = task.predict(outputs)
        if values.shape[1] == 1:
            return {"prediction": values[:, 0].tolist()}
        return {f"prediction {at}": values[:, at].tolist() for at in range(values.shape[1])}
    if isinstance(task, Binary):
        probability = task.predict(outputs).double()
        chosen = (probability > 0.5).long()
        shares = torch.stack([1 - probability, probability], dim=1)
    else:
        shares = outputs.double().softmax(dim=1)
        chosen = shares.argmax(dim=1)
    columns = {
        "prediction": [names[at] for at in chosen.tolist()],
        "score": shares.gather(1, chosen[:, None])[:, 0].tolist(),
    }
    if shares.shape[1] == 2:
        columns[f"probability of {names[1]}"] = shares[:, 1].tolist()
    return columns


def _logits(task: Task, outputs: Tensor) -> FloatArray | None:
    """The logit of the second of two classes, float64 ``[n]``; ``None`` for other tasks."""
    if isinstance(task, Binary):
        return outputs.reshape(len(outputs)).double().numpy()
    if isinstance(task, Classification) and outputs.shape[1] == 2:
        return (outputs[:, 1] - outputs[:, 0]).double().numpy()
    return None


def _calibrate(
    source: ExportSource, new: NewRows, placed: Mapping[str, Placed], outputs: Tensor
) -> tuple[dict[str, list[Any]], str]:
    """The column of calibrated probabilities, and a line about them."""
    prepared = source.prepared
    share = prepared.config.train.hold_out
    if share is None:
        return {}, "not calibrated: no training rows were held out (train.hold_out = 0.2)"
    calibrators = _fit_calibrators(source, share)
    if not calibrators:
        return {}, f"not calibrated: too few held-out rows (train.hold_out = {share:g})"
    logits = _logits(prepared.spec.task, outputs)
    assert logits is not None
    calibrated = np.empty(len(logits))
    for client, one in placed.items():
        mine = new.client == client
        # A group with too few held-out rows takes the calibration of all of them.
        calibrator = calibrators.get(one.group, calibrators[None])
        calibrated[mine] = calibrator.probabilities(logits[mine])
    used = calibrators[None]
    names = prepared.label_names
    line = f"calibrated by {used.method} on {used.samples} held-out training rows"
    return {f"calibrated probability of {names[1]}": calibrated.tolist()}, line


def _fit_calibrators(source: ExportSource, share: float) -> dict[int | None, Calibrator]:
    """A calibrator of each group that has enough held-out rows, and under ``None`` one of all."""
    prepared = source.prepared
    population = prepared.population
    groups = source.checkpoint.groups
    served = prepared.algorithm.serve(groups)
    held = held_out_samples(prepared.partition.train, share, Key(prepared.config.seed))
    # By group: models of different groups may be sure to different degrees.
    logits: dict[int, list[FloatArray]] = {}
    labels: dict[int, list[Any]] = {}
    for client, samples in enumerate(held):
        if not len(samples):
            continue
        rows = torch.from_numpy(samples)
        outputs = outputs_of(prepared.module, served.vector(client), population.x[rows])
        found = _logits(prepared.spec.task, outputs)
        assert found is not None
        group = int(groups.member[client])
        logits.setdefault(group, []).append(found)
        labels.setdefault(group, []).append(population.y[rows].numpy())
    if not logits:
        return {}
    all_logits = np.concatenate([part for parts in logits.values() for part in parts])
    all_labels = np.concatenate([part for parts in labels.values() for part in parts])
    together = Calibrator.fit(all_logits, all_labels)
    if together is None:
        return {}
    calibrators: dict[int | None, Calibrator] = {None: together}
    for group, parts in logits.items():
        one = Calibrator.fit(np.concatenate(parts), np.concatenate(labels[group]))
        if one is not None:
            calibrators[group] = one
    return calibrators


def _write(
    out: Path, new: NewRows, placed: Mapping[str, Placed], columns: Mapping[str, Sequence[Any]]
) -> None:
    """Write the predictions as CSV, a line a row of the file."""
    head = ["row", "client", "group", "placed by", *columns]
    if new.labelled.any():
        head.append("label")
    lines = []
    for at, (row, client) in enumerate(zip(new.row.tolist(), new.client.tolist(), strict=True)):
        one = placed[client]
        line = [row, client, one.group, one.by, *(values[at] for values in columns.values())]
        if new.labelled.any():
            line.append(str(new.label[at]))
        lines.append(line)
    try:
        out.write_bytes(csv_text(head, lines).encode("utf-8", "backslashreplace"))
    except OSError as error:
        what = f"cannot be written ({error.strerror}), got {out}"
        raise ConfigError(f"--out: {what}; expected a file that can be made") from None
