"""Every reader of rows, for tests that give all of them the same: training, `coterie predict`, the
file of an export, and a node."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import coterie as ct
from coterie.data.sources.files import DataForm
from coterie.data.tabular.new_rows import NewRows
from coterie.data.tabular.raw import Encode, Origin
from coterie.export.table_files import read_rows_for_run, write_readers
from coterie.flower.node.client_table import loaded_table, read_client_table
from coterie.flower.node.data_sources import divide, rows_to_test
from coterie.flower.node.node_source import read_node_data
from coterie.runs.stored import make_record

CLIENT = "site"
LABEL = "y"
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Read:
    """What a reader finds, in the order of the rows.

    Args:
        values: inputs; of training on a table, and of a node, those of its columns before they are
            encoded.
        clients: their names; ``None``: the reader knows one client alone.
        labels: names of classes, or numbers as float32.
    """

    values: NDArray[Any]
    clients: Sequence[str] | None
    labels: Sequence[Any]

    def differences(self, right: Read) -> Iterator[str]:
        """What of it differs from what is right, a line each."""
        if self.values.shape != right.values.shape:
            yield f"inputs of shape {self.values.shape}, not {right.values.shape}"
        elif not np.array_equal(self.values, right.values, equal_nan=True):
            same = np.isclose(self.values, right.values, rtol=0, atol=0, equal_nan=True)
            place = tuple(np.argwhere(~same)[0])
            yield f"inputs {self.values[place]}, not {right.values[place]}, at {place}"
        if self.clients is not None and list(self.clients) != list(right.clients or ()):
            yield f"clients {self.clients[:9]}"
        if not _same_labels(self.labels, right.labels):
            yield f"labels {self.labels[:9]}"


def _same_labels(found: Sequence[Any], right: Sequence[Any]) -> bool:
    if right and not isinstance(right[0], str):
        return np.array_equal(np.float32(found), np.float32(right), equal_nan=True)
    return list(found) == list(right)


@dataclass(frozen=True)
class Case:
    """Rows in one of their forms, and what is right.

    Args:
        source: a file, several, or a frame.
        record: by which new rows are read.
    """

    name: str
    source: Any
    right: Read
    record: Record

    @property
    def is_file(self) -> bool:
        """Whether a node reads it as well."""
        return isinstance(self.source, Path)


def some(cases: Sequence[Case], all_cases: bool, reader: str) -> list[Case]:
    """All cases, or a seventh of them, other ones for each reader."""
    if all_cases:
        return list(cases)
    seed = list(f"{reader} of {cases[0].name}".encode())
    order = np.random.default_rng(seed).permutation(len(cases))
    return [cases[at] for at in order[: len(cases) // 7 + 1]]


def differing(
    cases: Sequence[Case], read: Callable[[Case], Read], reader: str, all_cases: bool = True
) -> list[str]:
    """What a reader finds that is not right: a line each, with the name of the case."""
    found = []
    for case in some(cases, all_cases, reader):
        try:
            lines = list(read(case).differences(case.right))
        except Exception as error:  # noqa: BLE001 - a traceback is a difference
            lines = [f"{type(error).__name__}: {error}"]
        found += [f"{case.name}: {reader}: {line}" for line in lines]
    return found


ALL_CASES = pytest.mark.parametrize(
    "all_cases", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some", "all"]
)


def refuse_any(differences: Sequence[str]) -> None:
    """Fail where there is a difference, and name the sources."""
    shown = "\n".join(differences[:20])
    assert not differences, f"{shown}\n{len(differences)} differences"


# --- training -------------------------------------------------------------------------------------


def load(source: Any, **options: Any) -> ct.Population:
    """The population of a frame, of a file, or of several."""
    options = {"partition": {"kind": "natural", "min_size": 1}, **options}
    options = {"client": CLIENT, "label": LABEL, **options}
    if isinstance(source, Path):
        return ct.load("file", path=str(source), **options)
    if isinstance(source, list):
        return ct.load("file", path=list(map(str, source)), **options)
    return ct.load(source, **options)


def training(population: ct.Population) -> Read:
    """What training finds."""
    assert population.origin is not None
    clients = np.full(len(population.y), "", dtype=object)
    for name, *parts in zip(population.names, population.train, population.test, strict=True):
        clients[np.concatenate(parts)] = name
    labels = population.y.tolist()
    if population.origin.label_names:
        labels = [population.origin.label_names[place] for place in labels]
    values = population.x.numpy()
    if population.table is not None:
        values = population.table.raw.values
    return Read(values, clients.tolist(), labels)


def record_of(population: ct.Population, features: Any) -> Record:
    """What the folder of a run on these data says of its table."""
    assert population.origin is not None
    classes = population.origin.label_names or None
    if population.table is None:
        roles = Origin(population.origin.table["label"], population.origin.table["client"])
        return make_record(None, roles, classes, population.shape) | {"features": features}
    table = population.table
    return make_record(table.encoder.record(), table.raw.origin, classes, population.shape)


# --- new rows -------------------------------------------------------------------------------------


def prediction(source: Any, record: Record, clients: Sequence[str] = ()) -> Read:
    """What `coterie predict` finds."""
    return _of_new_rows(read_rows_for_run(source, record, "file", clients), record)


@contextmanager
def exported(folder: Path) -> Iterator[Callable[[Any, Record], Read]]:
    """What the files of an export find, of which none imports Coterie."""
    write_readers(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        module = _imported(folder / "inputs.py", patch)
        yield lambda source, record: _of_new_rows(module.read_new_rows(source, record), record)


def _imported(file: Path, patch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("inputs", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    patch.setitem(sys.modules, "inputs", module)  # records are looked up there
    spec.loader.exec_module(module)
    for name in [one for one in sys.modules if one.partition(".")[0] == "rows"]:
        sys.modules.pop(name)
    return module


def differing_new_rows(cases: Sequence[Case], all_cases: bool, folder: Path) -> list[str]:
    """What `coterie predict` and an export find that is not right."""
    with exported(folder) as of_export:
        return [
            *differing(cases, lambda one: prediction(one.source, one.record), "predict", all_cases),
            *differing(cases, lambda one: of_export(one.source, one.record), "export", all_cases),
        ]


def _of_new_rows(new: NewRows, record: Record) -> Read:
    labels = new.label.tolist()
    if record["classes"] is None:
        labels = np.asarray(new.target)[:, 0].tolist()
    return Read(np.asarray(new.x), new.client.tolist(), labels)


# --- a node ---------------------------------------------------------------------------------------


def node(source: Path, classes: Sequence[str], features: Sequence[str] | None = None) -> Read:
    """What a node finds whose inputs are columns of numbers, or images."""
    train, test = read_node_data({"data": str(source), "label": LABEL}, classes, features)
    assert test is not None
    places = np.arange(len(train[1]) + len(test[1]))
    (to_train, _), (to_test, _) = divide(places, places)
    return _in_order(train, test, np.concatenate([to_train, to_test]), classes)


def node_of_table(source: Any, form: DataForm, labels: Any = None) -> Read:
    """What a node finds of a table, in a file or as ``load_client`` returns it with its labels."""
    if labels is not None:
        raw, y = loaded_table((source, labels), None, form, Encode()).train
        return Read(raw.values, None, [form.classes[place] for place in y])
    table = read_client_table(source, {"label": LABEL}, form, Encode())
    train, test = ((raw.values, y) for raw, y in (table.train, table.test))
    is_test = rows_to_test(len(train[1]) + len(test[1]))
    rows = np.concatenate([np.flatnonzero(~is_test), np.flatnonzero(is_test)])
    return _in_order(train, test, rows, form.classes)


def _in_order(train: Any, test: Any, rows: NDArray[np.int64], classes: Sequence[str]) -> Read:
    """The samples of a node in the order of its file.

    Args:
        rows: those of the file that they are.
    """
    order = np.argsort(rows)
    x, y = (np.concatenate(pair)[order] for pair in zip(train, test, strict=True))
    return Read(x, None, [classes[place] for place in y] if classes else y.tolist())
