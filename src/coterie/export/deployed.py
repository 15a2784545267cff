"""A run of real clients, as far as its folder tells: who they are and what they work on, and none
of their samples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coterie.config import RunConfig
from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.core.vectors import Layout
from coterie.data import Partition, Population
from coterie.errors import CheckpointError
from coterie.export.card import Figures
from coterie.runs.checkpoint import Checkpoint
from coterie.runs.prepare import Prepared, prepare_on

TRIED = 32  # inputs that the models are tried on


def deployed(config: RunConfig, nodes: Path, checkpoint: Checkpoint) -> tuple[Prepared, Checkpoint]:
    """The run, with drawn inputs in the place of everybody's, and its checkpoint without places
    that are free.

    Args:
        config: the configuration.
        nodes: the file that the server of the run wrote.
        checkpoint: of the run.

    Raises:
        CheckpointError: if the file is damaged, or does not fit the models.
    """
    groups = checkpoint.groups
    extra = checkpoint.extra
    try:
        names, shape, labels = _read(nodes, len(groups.member))
    except (OSError, ValueError, LookupError, TypeError):
        what = (
            "damaged or of an earlier version, got no clients, shape and classes that fit the run"
        )
        raise CheckpointError(f"{nodes}: {what}; expected all three") from None
    n = len(names)
    parts = Partition((np.arange(TRIED),) * n, (np.empty(0, np.int64),) * n, names)
    x = torch.randn(TRIED, *shape, generator=Key(config.seed).of("export").torch())
    population = Population(
        x, torch.zeros(TRIED, dtype=torch.int64), parts.train, parts.test, len(labels), names
    )
    known = replace(
        checkpoint,
        groups=replace(groups, member=groups.member[:n]),
        extra={**extra, "since": np.asarray(extra["since"])[:n]},
    )
    prepared = prepare_on(config, population, parts, labels)
    d = Layout.of(prepared.module).d
    had = groups.models.shape[1]
    if d != had:
        raise CheckpointError(
            f"{nodes}: of another network, got one of {d} parameters; expected {had}"
        )
    return prepared, known


def _read(nodes: Path, places: int) -> tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...]]:
    """Names of the clients, shape of an input and names of the classes.

    Raises:
        OSError, ValueError, LookupError, TypeError: if the file is damaged.
    """
    told = json.loads(nodes.read_bytes())
    names = told["clients"]
    shape = told["shape"]
    labels = told["classes"]
    whole = all(isinstance(each, list) for each in (names, shape, labels))
    if not whole or not 0 < len(names) <= places or not labels or not shape:
        raise ValueError
    if not all(type(n) is int and n > 0 for n in shape) or not all(
        isinstance(n, str) for n in (*names, *labels)
    ):
        raise ValueError
    return tuple(names), tuple(shape), tuple(labels)


def told(names: Sequence[str], which: IntArray, rows: Sequence[Mapping[str, Any]]) -> Figures:
    """What the clients told of the models, if they were scored after the last round; else of the
    run as a whole.

    Args:
        names: of the models.
        which: int64 ``[N]``, the row of the model that serves each client.
        rows: of ``rounds.jsonl``, to the round of the models.
    """
    last: Mapping[str, Any] = next(
        (row for row in reversed(rows) if row.get("accuracy") is not None), {}
    )
    current = bool(rows) and last is rows[-1]  # groups of an earlier round may have been others
    each = [*(last["accuracy_groups"] if current else ()), *(None for _ in names)]
    unknown = dict.fromkeys(("train", "test", "mix"))
    groups = [
        {"name": name, "clients": int((which == j).sum()), "accuracy": each[j], **unknown}
        for j, name in enumerate(names)
    ]
    return Figures(groups, last.get("accuracy_all"), last["round"] + 1 if last else None)
