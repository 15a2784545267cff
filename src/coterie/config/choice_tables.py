"""The tables of a configuration that name a choice, as typed records.

Such a table has the options of the registered factory in addition to its own fields:
`coterie.config.registry` reads those from the factory's signature. These are ``[data]``,
``[data.partition]``, ``[model]``, ``[algorithm]``, and where there are any ``[server]``,
``[weigh]``, ``[objective]``, ``[own_model]``, ``[shift]`` and ``[attack]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from coterie.config.schema import Table


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


def with_partition(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table ``[data]``; if it names the column of clients and has no partition, these clients
    hold its samples."""
    if data.get("client") is None or data.get("partition") is not None:
        return data
    return {**data, "partition": {"kind": "natural"}}
