"""What the folder of a run says of its table, ``columns.json``, and the run without its rows.

The kinds of columns and what becomes of them are decided once, from the training files. Later
commands read the record, and new rows by it; the training files may have changed or be gone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.data import load_partition
from coterie.data.rows.kinds import BOOLEAN, CATEGORY, IDENTIFIER, NUMBER
from coterie.data.tabular.raw import Origin
from coterie.experiment import Experiment
from coterie.runs.compose import Composed, compose_stand_in
from coterie.runs.data import rows_digest
from coterie.runs.target_scaling import stored_scaling

Record = Mapping[str, Any]


def rows_record(composed: Composed) -> dict[str, Any] | None:
    """What a run knows of its table; ``None`` where its data are none.

    `coterie.data.tabular.new_rows` reads new rows by it. ``training`` is for the folder alone: the
    kinds of all columns of the training files, a digest of what was read of them, and why columns
    that may have been meant as numbers are text.
    """
    data = composed.data
    table = data.population.table
    origin = data.population.origin
    options = composed.experiment.options("source")
    from_frame = origin is not None and origin.from_frame
    if origin is not None and from_frame:
        options = {"features": "x", "label": "y", "client": "client", **origin.table}
    if table is None and "label" not in options:
        return None
    # Of a frame the folder holds the inputs, with a digest of their own.
    digest = "" if from_frame else rows_digest(data.population)
    classes = data.label_names if composed.spec.task.class_labels else None
    shape = data.population.shape
    found: dict[str, Any]
    if table is None:
        missing = options.get("missing") or ()
        roles = Origin(options["label"], options["client"], missing=missing)
        found = make_record(None, roles, classes, shape) | {"features": options["features"]}
        found["kinds"] |= dict.fromkeys(data.booleans, BOOLEAN)
        if options.get("shape") is not None:
            found["reshaped"] = True
    else:
        found = make_record(table.encoder.record(), table.raw.origin, classes, shape)
    found["target_shape"] = list(data.population.y.shape[1:])
    kinds = {}
    why_text = {}
    if table is not None:
        kinds = dict(table.raw.origin.kinds)
        why_text = dict(table.raw.origin.why_text)
    found["training"] = {"kinds": kinds, "digest": digest, "why_text": why_text}
    return found


def make_record(
    rules: Sequence[Mapping[str, Any]] | None,
    roles: Origin,
    classes: Sequence[str] | None,
    shape: Sequence[int],
) -> dict[str, Any]:
    """A record for tables whose columns become inputs by some rules, or are inputs as they are.

    Args:
        rules: see `coterie.data.tabular.encoder.Encoder`.
        classes: their names; ``None``: targets are numbers.
    """
    kinds = dict.fromkeys(roles.labels, NUMBER if classes is None else CATEGORY)
    kinds[roles.client] = IDENTIFIER
    kinds |= {rule["name"]: rule.get("kind", CATEGORY) for rule in rules or ()}
    if roles.window is not None:
        kinds[roles.window.time] = roles.moments
    found = {
        "client": roles.client,
        "labels": roles.labels,
        "classes": None if classes is None else list(classes),
        "features": None,
        "rules": rules,
        "window": None if roles.window is None else roles.window.model_dump(),
        "step": roles.step,
        "kinds": kinds,
        "shape": list(shape),
    }
    if roles.missing:
        found["missing"] = list(roles.missing)
    return found


def record_bytes(record: Record) -> bytes:
    """A record as the bytes of ``columns.json``."""
    return (json.dumps(record, indent=1) + "\n").encode()


def needs_samples(experiment: Experiment) -> bool:
    """Whether a run cannot be put together from its record, which does not say how many tokens there
    are."""
    return experiment.name("task") == "next_token"


def compose_recorded(experiment: Experiment, partition: Path, record: Record) -> Composed:
    """A run of a table put together without reading its rows, for who needs its models alone."""
    parts = load_partition(partition)
    names = parts.names or tuple(map(str, range(parts.clients)))
    classes = tuple(record["classes"] or ())
    shapes = (record["shape"], classes, record["target_shape"])
    return compose_stand_in(experiment, names, *shapes, stored_scaling(partition.parent))
