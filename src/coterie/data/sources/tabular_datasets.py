"""Three public tables with natural clients: hospitals, patients and stations.

They are read from the data folder, ``<root>/<name>/all.parquet``, as a table of the user is.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from coterie.data.rows.kinds import decide_kinds
from coterie.data.rows.reading import read_rows
from coterie.data.rows.table import Rows
from coterie.data.samples import Samples, Targets
from coterie.data.sources.folders import dataset_folder
from coterie.data.tabular.raw import Encode, Window
from coterie.data.tabular.roles import Roles, identifiers
from coterie.data.tabular.tables import ALL, table_samples
from coterie.errors import DataError

# Measurements that cannot be 0; there it stands for a missing value.
NEVER_ZERO = ("chol", "trestbps")
# Of the patients in the order of their names, every fifth is only tested on.
FOLDS = 5
Fold = Annotated[int, Field(ge=0, lt=FOLDS)]


def heart_disease(
    root: Path | None = None,
    *,
    label: Literal["disease", "num"] = "disease",
    encode: Encode | None = None,
    targets: Targets = "classes",
) -> Samples:
    """Heart disease (UCI): 920 patients of four hospitals, 13 columns, many values missing.

    The column ``hospital`` is the client. A cholesterol or blood pressure of 0 is a missing value.

    Args:
        label: ``disease``: 0 or 1; ``num``: 0 to 4.
    """
    rows = _without_zeros(_open(root, "heart_disease"))
    # The one is made from the other.
    other = "num" if label == "disease" else "disease"
    roles = Roles(ALL, label, "hospital")
    # A label with the values 0 to 4 has few values, whatever it looks like.
    kind: Targets = "numbers" if targets == "numbers" else "classes"
    return _samples(rows, roles, _leaving_out(encode, other), None, kind)


def parkinsons(
    root: Path | None = None,
    *,
    label: Literal["total_UPDRS", "motor_UPDRS"] = "total_UPDRS",
    unseen: Literal["recordings", "patients"] = "recordings",
    fold: Fold = FOLDS - 1,
    encode: Encode | None = None,
) -> Samples:
    """Parkinson's telemonitoring (UCI): 5,875 voice recordings of 42 patients, scores to predict.

    The column ``patient`` is the client.

    Args:
        unseen: what is tested on: ``recordings`` of every patient, as the partition splits them;
            ``patients``: all recordings of every fifth patient, who then does not take part in
            training. The partition `natural` needs ``split = "source"`` for it.
        fold: which fifth of the patients, 0 to 4: every fifth patient, starting after this many.
    """
    rows = _open(root, "parkinsons")
    split = "split"
    if unseen == "patients":
        # One more column, which says whether a patient is tested on.
        _, patient = np.unique(identifiers(rows, "patient"), return_inverse=True)
        is_test = patient % FOLDS == fold
        rows = replace(rows, frame=rows.frame.assign(unseen=np.where(is_test, "test", "train")))
        split = "unseen"
    # Both scores come from the same examination: one would give the other away.
    other = "motor_UPDRS" if label == "total_UPDRS" else "total_UPDRS"
    roles = Roles(ALL, label, "patient", split)
    return _samples(rows, roles, _leaving_out(encode, other), None, "numbers")


def beijing_air(
    root: Path | None = None,
    *,
    label: str = "PM2.5",
    window: Window | None = None,
    encode: Encode | None = None,
) -> Samples:
    """Beijing multi-site air quality (UCI): four years of hours at 12 stations, a value to forecast.

    The column ``station`` is the client. By default a week of hours is the input, and the target is
    24 hours after its last one; there is one forecast per day.

    Args:
        label: the column to forecast.
        window: which hours are an input, and which one has its target.
    """
    rows = _open(root, "beijing_air")
    if window is None:
        window = Window(past=168, horizon=24, stride=24, season=24)
    return _samples(rows, Roles(ALL, label, "station"), encode or Encode(), window, "numbers")


def _open(root: Path | None, name: str) -> Rows:
    """The rows of a dataset of the data folder."""
    expected = "root or COTERIE_DATA set to the folder with the datasets"
    path = dataset_folder(root, name, expected) / "all.parquet"
    if not path.is_file():
        raise DataError("not-found", "data.source", found=path, allowed=expected)
    return read_rows(path)


def _samples(
    rows: Rows, roles: Roles, encode: Encode, window: Window | None, targets: Targets
) -> Samples:
    kinds = decide_kinds([rows], rows.names) | roles.kinds(targets)
    return table_samples(rows, kinds, roles, encode, window, targets)


def _leaving_out(encode: Encode | None, name: str) -> Encode:
    """The options with one more column that is not used: the label that was not chosen."""
    chosen = encode or Encode()
    return chosen.model_copy(update={"leave_out": (*chosen.leave_out, name)})


def _without_zeros(rows: Rows) -> Rows:
    """The rows with missing values in the place of impossible zeros."""
    known = {name: rows.frame[name].mask(rows.frame[name] == 0) for name in NEVER_ZERO}
    return replace(rows, frame=rows.frame.assign(**known))
