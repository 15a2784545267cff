"""Calibration of a run's probabilities by the training rows that it held out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from coterie.core.arrays import FloatArray
from coterie.core.keys import Key
from coterie.export.calibration import LEAST, Calibrator
from coterie.export.served import ServedClients, served_models
from coterie.export.source import ExportSource
from coterie.export.table_outputs import logits_of
from coterie.export.table_record import task_record
from coterie.runs.held_out import held_out_samples
from coterie.runs.outputs import outputs_of

SHOWN_GROUPS = 8  # in the line about a calibration
CalibrationRule = Mapping[str, Any]  # of `coterie.export.table_outputs.calibrated`


def calibration_of(source: ExportSource) -> tuple[dict[int | None, CalibrationRule], str]:
    """The calibration of each group that has enough held-out rows, and under ``None`` that of all.

    Args:
        source: a run of two classes.

    Returns:
        The rules, none without held-out rows; and a line about them.
    """
    share = source.prepared.config.train.hold_out
    if share is None:
        return {}, "not calibrated: no training rows were held out (train.hold_out = 0.2)"
    calibrators = _fit_calibrators(source, share)
    if not calibrators:
        return {}, f"not calibrated: too few held-out rows (train.hold_out = {share:g})"
    together = calibrators[None]
    line = f"calibrated by {together.method} on {together.samples} held-out training rows"
    line += _rows_of_groups(calibrators, source.checkpoint.groups.k)
    return {group: one.rule for group, one in calibrators.items()}, line


def _rows_of_groups(calibrators: Mapping[int | None, Calibrator], groups: int) -> str:
    """Which rows the calibration of each group was fitted on; empty for one group."""
    if groups < 2:
        return ""
    own = {group: one for group, one in calibrators.items() if group is not None and group >= 0}
    parts = [
        f"group {group}: {own[group].samples} of its own by {own[group].method}"
        for group in sorted(own)[:SHOWN_GROUPS]
    ]
    if len(own) > SHOWN_GROUPS:
        parts.append(f"{len(own) - SHOWN_GROUPS} more groups: their own")
    if len(own) < groups:
        rest = "other groups" if own else "all groups"
        parts.append(f"{rest}: all of them, as fewer than {LEAST} of one class are their own")
    return f" ({'; '.join(parts)})"


def _fit_calibrators(source: ExportSource, share: float) -> dict[int | None, Calibrator]:
    """A calibrator of each group that has enough held-out rows, and under ``None`` one of all."""
    prepared = source.prepared
    population = prepared.population
    task = task_record(prepared, ())
    groups = source.checkpoint.groups
    clients = ServedClients.of(source)
    held = held_out_samples(prepared.partition.train, share, Key(prepared.config.seed))
    # By group: models of different groups may be sure to different degrees.
    logits: dict[int, list[FloatArray]] = {}
    labels: dict[int, list[Any]] = {}
    for client, samples in enumerate(held):
        if not len(samples):
            continue
        rows = torch.from_numpy(samples)
        # With what the client keeps: a calibration is of the model that predicts.
        vector = served_models(source, clients, np.array([client]))[0]
        outputs = outputs_of(prepared.module, vector, population.x[rows])
        group = int(groups.member[client])
        logits.setdefault(group, []).append(np.array(logits_of(task, outputs), np.float64))
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
