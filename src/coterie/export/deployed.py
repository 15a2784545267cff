"""A run of real clients, as far as its folder tells: who they are and what they work on, and none of their samples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coterie.config import RunConfig
from coterie.data import Parts, Population
from coterie.experiment import Prepared, prepare_on
from coterie.export.card import Figures
from coterie.keys import Key
from coterie.store import Checkpoint
from coterie.types import CheckpointError, IntArray

NODES = "nodes.json"  # only a deployed run has it
TRIED = 32  # inputs that the models are tried on


def deployed(config: RunConfig, nodes: Path, checkpoint: Checkpoint) -> tuple[Prepared, Checkpoint]:
    """The run, with drawn inputs in the place of everybody's, and its checkpoint without places that are free.

    Args:
        config: the configuration.
        nodes: the file that the server of the run wrote.
        checkpoint: of the run.

    Raises:
        CheckpointError: if the file is damaged.
    """
    try:
        told = json.loads(nodes.read_bytes())
        names, shape = tuple(map(str, told["clients"])), tuple(map(int, told["shape"]))
        labels = tuple(map(str, told["classes"]))
    except (OSError, ValueError, LookupError, TypeError):
        what = "damaged or of an earlier version, got no clients, shape and classes"
        raise CheckpointError(f"{nodes}: {what}; expected all three") from None
    n = len(names)
    parts = Parts((np.arange(TRIED),) * n, (np.empty(0, np.int64),) * n, names)
    x = torch.randn(TRIED, *shape, generator=Key(config.seed).of("export").torch())
    population = Population(x, torch.zeros(TRIED, dtype=torch.int64), parts.train, parts.test, len(labels), names)
    groups, extra = checkpoint.groups, checkpoint.extra
    known = replace(
        checkpoint,
        groups=replace(groups, member=groups.member[:n]),
        extra={**extra, "since": np.asarray(extra["since"])[:n]},
    )
    return prepare_on(config, population, parts, labels), known


def told(names: Sequence[str], which: IntArray, rows: Sequence[Mapping[str, Any]]) -> Figures:
    """What the clients told of the models at the last evaluation.

    Args:
        names: of the models.
        which: int64 ``[N]``, the row of the model that serves each client.
        rows: of ``rounds.jsonl``.
    """
    last: Mapping[str, Any] = next((row for row in reversed(rows) if row.get("accuracy") is not None), {})
    each = [*last.get("accuracy_groups", ()), *(None for _ in names)]
    unknown = dict.fromkeys(("train", "test", "mix"))
    groups = [
        {"name": name, "clients": int((which == j).sum()), "accuracy": each[j], **unknown}
        for j, name in enumerate(names)
    ]
    return Figures(groups, last.get("accuracy_all"), last.get("round"))
