"""What an export must know to predict rows of a table: the file ``predict.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coterie.data.tabular.raw import Window
from coterie.errors import ConfigError
from coterie.runs.prepare import Prepared
from coterie.tasks import Binary, Classification, Multilabel, Regression


@dataclass(frozen=True, slots=True)
class TableRoles:
    """What columns of a run's own table are for.

    Args:
        labels: the columns of labels.
        client: the column that names the client.
        features: the columns of inputs, or one column of lists; ``None`` where `columns.json` says.
        window: of a series; ``None``: a row is an input.
    """

    labels: tuple[str, ...]
    client: str
    features: tuple[str, ...] | str | None = None
    window: Window | None = None

    @classmethod
    def of(cls, prepared: Prepared) -> TableRoles | None:
        """Those of a run; ``None`` for a run whose data are no table."""
        table = prepared.population.table
        if table is not None:
            origin = table.raw.origin
            return cls(_names(origin.label), origin.client, None, origin.window)
        if prepared.config.data.source != "file":
            return None
        options = prepared.config.options("source")
        features = options["features"]
        if not isinstance(features, str):
            features = tuple(features)
        return cls(_names(options["label"]), options["client"], features)


def _names(columns: str | list[str]) -> tuple[str, ...]:
    if isinstance(columns, str):
        return (columns,)
    return tuple(columns)


def task_record(prepared: Prepared, labels: tuple[str, ...]) -> dict[str, Any]:
    """The task of a run as `coterie.export.table_outputs` has it.

    Args:
        prepared: the run.
        labels: the columns of labels.

    Raises:
        ConfigError: for a task whose predictions are no columns.
    """
    task = prepared.spec.task
    names = list(prepared.label_names)
    if isinstance(task, Binary | Classification):
        return {"kind": task.name, "labels": names}
    if isinstance(task, Regression):
        record = {"kind": task.name, "loss": task.kind, "delta": task.delta, "q": task.q}
        return {**record, "targets": _targets(labels, task.targets)}
    if isinstance(task, Multilabel):
        return {"kind": task.name, "targets": _targets(labels, task.labels)}
    raise ConfigError(
        f"task.kind: no predictions for rows of a table, got {task.name!r}; expected "
        "classification, binary, multilabel or regression"
    )


def has_record(prepared: Prepared) -> bool:
    """Whether rows of a table can be predicted by the run's models."""
    known = Binary | Classification | Regression | Multilabel
    return isinstance(prepared.spec.task, known) and TableRoles.of(prepared) is not None


def _targets(labels: tuple[str, ...], count: int) -> list[str]:
    """The names of the targets: their columns, or the numbers of a column of lists."""
    # A single column may hold lists, whose values have no names.
    if len(labels) == count:
        return list(labels)
    return [str(at) for at in range(count)]
