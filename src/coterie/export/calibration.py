"""Probabilities of two classes, calibrated with the training rows that a run held out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.export.models import ServedClients, served_models
from coterie.export.source import ExportSource
from coterie.export.table_outputs import TaskRecord, logits_of
from coterie.runs.held_out import held_out_samples
from coterie.runs.spec import outputs_of

# With fewer samples of a class nothing can be said of its probabilities.
LEAST = 10
# Isotonic regression overfits on fewer samples; scikit-learn's documentation says so, too.
MANY = 1000

SHOWN_GROUPS = 8  # in the line about a calibration
CalibrationRule = Mapping[str, Any]  # of `coterie.export.table_outputs.calibrated`


@dataclass(frozen=True, slots=True)
class Calibrator:
    """From a logit to a calibrated probability.

    Args:
        method: ``platt``: a logistic regression on the logit; ``isotonic``: any ascending function.
        samples: how many it was fitted on.
    """

    method: Literal["platt", "isotonic"]
    model: Any
    samples: int

    @classmethod
    def fit(cls, logits: FloatArray, labels: IntArray) -> Calibrator | None:
        """The calibrator for held-out samples; ``None`` where a class has fewer than 10."""
        from sklearn.isotonic import IsotonicRegression
        from sklearn.linear_model import LogisticRegression

        if np.bincount(labels, minlength=2).min() < LEAST:
            return None
        if len(labels) >= MANY:
            isotonic = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
            return cls("isotonic", isotonic.fit(logits, labels), len(labels))
        # Hardly any penalty: it is to follow the samples, and has two parameters.
        platt = LogisticRegression(C=1e3)
        return cls("platt", platt.fit(logits[:, None], labels), len(labels))

    @property
    def title(self) -> str:
        """The method in words."""
        return {"platt": "Platt scaling", "isotonic": "isotonic regression"}[self.method]

    @property
    def rule(self) -> dict[str, Any]:
        """The same as plain numbers, for `coterie.export.table_outputs.calibrated`."""
        if self.method == "isotonic":
            x = self.model.X_thresholds_.tolist()
            return {"method": "isotonic", "x": x, "y": self.model.y_thresholds_.tolist()}
        slope = float(self.model.coef_[0, 0])
        return {"method": "platt", "slope": slope, "intercept": float(self.model.intercept_[0])}


def calibration_of(
    source: ExportSource, task: TaskRecord
) -> tuple[dict[int | None, CalibrationRule], str]:
    """The calibration of each group that has enough held-out rows, under ``None`` that of all; and
    a line about it."""
    share = source.composed.experiment.train.hold_out
    if share is None:
        return {}, "not calibrated: no training rows were held out (set train.hold_out = 0.2)"
    calibrators = _fit_calibrators(source, task, share)
    if not calibrators:
        return {}, f"not calibrated: too few held-out rows (train.hold_out = {share:g})"
    together = calibrators[None]
    line = f"calibrated by {together.title} on {together.samples} held-out training rows"
    line += _rows_of_groups(calibrators, source.checkpoint.groups.k)
    return {group: one.rule for group, one in calibrators.items()}, line


def _rows_of_groups(calibrators: Mapping[int | None, Calibrator], groups: int) -> str:
    """Which rows the calibration of each group was fitted on; empty for one group."""
    if groups < 2:
        return ""
    own = {group: one for group, one in calibrators.items() if group is not None and group >= 0}
    parts = [
        f"group {group}: by {own[group].title} on {own[group].samples} of its own samples"
        for group in sorted(own)[:SHOWN_GROUPS]
    ]
    if len(own) > SHOWN_GROUPS:
        parts.append(f"{len(own) - SHOWN_GROUPS} more groups: on their own samples")
    if len(own) < groups:
        rest = "other groups" if own else "all groups"
        parts.append(f"{rest}: on all samples, because they have fewer than {LEAST} of one class")
    return f" ({'; '.join(parts)})"


def _fit_calibrators(
    source: ExportSource, task: TaskRecord, share: float
) -> dict[int | None, Calibrator]:
    """A calibrator of each group that has enough held-out rows, and under ``None`` one of all."""
    composed = source.composed
    population = composed.population
    groups = source.checkpoint.groups
    clients = ServedClients.of(source)
    held = held_out_samples(composed.partition.train, share, Key(composed.experiment.seed))
    # By group: models of different groups may be sure to different degrees.
    logits: dict[int, list[FloatArray]] = {}
    labels: dict[int, list[Any]] = {}
    for client, samples in enumerate(held):
        if not len(samples):
            continue
        rows = torch.from_numpy(samples)
        # With what the client keeps: a calibration is of the model that predicts.
        vector = served_models(source, clients, np.array([client]))[0]
        outputs = outputs_of(composed.module, vector, population.x[rows])
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
