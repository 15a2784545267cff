"""The tables of a configuration that name a choice, as typed records.

Such a table has the options of the registered factory in addition to its own fields:
`coterie.config.registry` reads those from the factory's signature. These are ``[data]``,
``[data.partition]``, ``[model]``, ``[algorithm]``, and where there are any ``[server]``,
``[weigh]``, ``[objective]``, ``[own_model]``, ``[shift]`` and ``[attack]``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from coterie.config.schema import Table
from coterie.errors import Problem


class ChoiceTable(Table):
    """A table that names a choice; its further fields are the options of that choice."""

    not_options: ClassVar[frozenset[str]] = frozenset()

    @property
    def options(self) -> dict[str, Any]:
        """The options by the names of the factory's parameters."""
        fields = type(self).model_fields
        return {name: getattr(self, name) for name in fields if name not in self.not_options}


class NamedTable(ChoiceTable):
    """``[model]``, ``[algorithm]``, ``[server]``, ``[weigh]``, ``[objective]`` or
    ``[own_model]``."""

    not_options: ClassVar[frozenset[str]] = frozenset({"name"})
    name: str


class EngineTable(ChoiceTable):
    """``[engine]``: how clients are reached; see ``docs/engines.md``.

    It has the options of all engines, so that a run can be resumed with another one; those that the
    chosen one does not have keep their defaults.
    """

    not_options: ClassVar[frozenset[str]] = frozenset({"name"})
    name: str = "pool"


class KindTable(ChoiceTable):
    """``[data.partition]``, ``[shift]``, ``[attack]`` or ``[task]``."""

    not_options: ClassVar[frozenset[str]] = frozenset({"kind"})
    kind: str


class SourceTable(ChoiceTable):
    """A source and its options."""

    not_options: ClassVar[frozenset[str]] = frozenset({"source", "partition", "root"})
    source: str


# The table of a choice by its selector: the key that names the choice.
TABLES: Mapping[str, type[ChoiceTable]] = {
    "name": NamedTable,
    "kind": KindTable,
    "source": SourceTable,
}


class DataTable(SourceTable):
    """``[data]``: the source and its options, and who holds its samples; ``root`` is the folder of
    the datasets."""

    partition: KindTable
    root: str | None = None


@dataclass(frozen=True, slots=True)
class Absent:
    """What stands for a Python object that a run was given, where it was not passed.

    Args:
        place: the table that the object stands in place of.
        table: what the run's folder says of it.
    """

    place: str
    table: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What tables call it; in the folder in parentheses, which no name of a factory has."""
        return str(self.table.get("name", self.table.get("kind"))).strip("()")

    @property
    def argument(self) -> str:
        """The argument of `coterie.run` that it was given as."""
        return "method" if self.place == "algorithm" else self.place

    def problem(self) -> Problem:
        """That it has to be handed over."""
        what = "the run used a Python object, which cannot be stored in a file"
        calls = ("resume", "Result.open")
        again = " or ".join(f"coterie.{one}(folder, {self.argument}=...)" for one in calls)
        do = f"pass it again, as in {again}"
        return Problem("missing", self.argument, what, str(self.table["type"]), do=do)


def completed(data: Mapping[str, Any]) -> dict[str, Any]:
    """The table ``[data]`` as it means the same in any folder: with paths spelled from the root, and
    with the partition that follows from a column of clients."""
    found = dict(data)
    if found.get("client") is not None and found.get("partition") is None:
        found["partition"] = {"kind": "natural"}
    if isinstance(found.get("root"), str):
        found["root"] = os.path.abspath(os.path.expanduser(found["root"]))
    path = found.get("path")
    if isinstance(path, str):
        found["path"] = _from_root(path)
    elif isinstance(path, list | tuple):
        found["path"] = [_from_root(one) if isinstance(one, str) else one for one in path]
    return found


def _from_root(path: str) -> str:
    spelled = os.path.expanduser(path)
    # A path that is not there may be relative to the folder of the datasets.
    if os.path.exists(spelled):
        return os.path.abspath(spelled)
    return path
