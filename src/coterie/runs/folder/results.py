"""The files that a run leaves at its end: groups, clients, models and summary."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from coterie.core.arrays import FloatArray, IntArray
from coterie.files import csv_text, plain, read_json, refuse_malformed
from coterie.measures.client_table import ScoredClients
from coterie.runs.folder.digests import CLIENTS, GROUPS, SHARES, SUMMARY, checked_file, store_files

if TYPE_CHECKING:
    from torch import Tensor

    from coterie.core.vectors import Layout
    from coterie.measures.seeds import Split


T = TypeVar("T")
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ResultFiles:
    """What a run that is done has written."""

    folder: Path

    def write_groups(self, names: Sequence[str], member: IntArray, since: IntArray) -> None:
        """``groups.csv``: client, group (-1: none), the round since which it has been there (-1:
        never)."""
        rows = zip(names, member.tolist(), since.tolist(), strict=True)
        store_files(self.folder, {GROUPS: _csv(["client", "group", "since_round"], rows)})

    def groups(self) -> list[int] | None:
        """The group of each client at the end, -1 for none; ``None`` for a run that is not done."""
        return self._read(GROUPS, lambda rows: [int(row["group"]) for row in rows])

    def write_shares(self, names: Sequence[str], shares: FloatArray) -> None:
        """``shares.csv``: client, and its share of each group, ``[N, k]``."""
        header = ["client", *(f"group_{j}" for j in range(shares.shape[1]))]
        rows = ([name, *row] for name, row in zip(names, shares.tolist(), strict=True))
        store_files(self.folder, {SHARES: _csv(header, rows)})

    def write_clients(
        self, names: Sequence[str], member: IntArray, columns: Mapping[str, IntArray | FloatArray]
    ) -> None:
        """``clients.csv``: client, group, its test samples, and what its model makes of them, as
        columns ``[N]`` by name."""
        header = ["client", "group", *columns]
        values = [column.tolist() for column in columns.values()]
        rows = zip(names, member.tolist(), *values, strict=True)
        store_files(self.folder, {CLIENTS: _csv(header, rows)})

    def clients(self, split: Split | None = None) -> ScoredClients | None:
        """What ``clients.csv`` says; ``None`` for a run that is not done."""
        found = self._read(CLIENTS, _client_table)
        return None if found is None else replace(found, split=split)

    def _read(self, name: str, taken: Callable[[Rows], T]) -> T | None:
        """What is taken of the rows of a CSV file, ``None`` where there is no such file."""
        data = checked_file(self.folder, name)
        if data is None:
            return None
        with refuse_malformed(self.folder / name):
            lines = io.StringIO(data.decode("utf-8"), newline="")
            return taken(list(csv.DictReader(lines)))

    def write_models(self, layout: Layout, models: Tensor) -> None:
        """``models/group-<j>.safetensors``: the named tensors of each group's model."""
        # Imported here: who only reads results does not wait for torch.
        from safetensors.torch import save as save_tensors

        from coterie.core.vectors import state_dict

        files = {}
        for j, vector in enumerate(models):
            # Views of one vector; safetensors takes whole tensors only.
            tensors = {name: t.contiguous() for name, t in state_dict(layout, vector).items()}
            files[f"models/group-{j}.safetensors"] = save_tensors(tensors)
        store_files(self.folder, files)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """``summary.json``."""
        text = json.dumps(plain(summary), indent=2, allow_nan=False, ensure_ascii=False)
        # Names that were read may hold halves of surrogate pairs, which UTF-8 cannot.
        store_files(self.folder, {SUMMARY: text.encode("utf-8", "backslashreplace") + b"\n"})

    def summary(self) -> dict[str, Any] | None:
        """What ``summary.json`` holds, ``None`` before the end of the run."""
        data = checked_file(self.folder, SUMMARY)
        if data is None:
            return None
        with refuse_malformed(self.folder / SUMMARY):
            return read_json(data)


def _client_table(rows: Rows) -> ScoredClients:
    others = [name for name in (rows[0] if rows else {}) if name not in ("client", "group")]
    columns = {
        name: np.array([float(row[name] or "nan") for row in rows], np.float64) for name in others
    }
    return ScoredClients(
        names=[row["client"] for row in rows],
        member=np.array([int(row["group"]) for row in rows], np.int64),
        # Not by way of a float: a number of 20 digits must be refused and not wrapped.
        samples=np.array([int(row["test_samples"]) for row in rows], np.int64),
        columns=columns,
    )


def _csv(header: Sequence[object], rows: Iterable[Sequence[object]]) -> bytes:
    # Names of clients come from the data: what is no UTF-8 in them is written with a backslash.
    return csv_text(header, rows).encode("utf-8", "backslashreplace")
