"""What the server knows: the models, which client belongs to which of them, and what rules remember
from round to round.

A rule's memory is one typed record: a frozen dataclass whose fields are tensors, NumPy arrays,
numbers, or ``None``, and whose class attribute ``record_name`` names it in checkpoints. A rule that
needs the record of another rule asks for it by its type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeVar, get_args, get_type_hints

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import BoolArray, IntArray, empty_mapping

NO_GROUP = -1


class Record(Protocol):
    """A frozen dataclass that a rule keeps in `Groups.memory`."""

    record_name: ClassVar[str]


class GrowingRecord(Record):
    """A record that can take clients that come later. ``newcomer`` has the value of a new row for
    each field ``[N, ...]``."""

    __slots__ = ()
    newcomer: ClassVar[Mapping[str, float]]
    # A checkpoint is read before its rules ask for their records, and knows only their names.
    rows_of: ClassVar[dict[str, Mapping[str, float]]] = {}

    def __init_subclass__(cls) -> None:
        GrowingRecord.rows_of[cls.record_name] = cls.newcomer


R = TypeVar("R", bound=Record)


class Memory:
    """The records of all rules of a method, at most one of each type. It never changes.

    Args:
        records: the records by their ``record_name``.
        saved: tensors of a checkpoint, ``<record_name>.<field>``; a record is made of them when a
            rule asks for it, so reading a checkpoint imports no rule.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Seen:
        ...     record_name = "seen"
        ...     rounds: int
        ...     models: Tensor | None = None
        >>> memory = Memory().with_record(Seen(rounds=3))
        >>> memory.get(Seen)
        Seen(rounds=3, models=None)
        >>> memory.tensors()
        {'seen.rounds': tensor(3)}
        >>> Memory(saved=memory.tensors()).get(Seen)
        Seen(rounds=3, models=None)
    """

    __slots__ = ("_records", "_saved")

    def __init__(
        self, records: Mapping[str, Record] | None = None, saved: Mapping[str, Tensor] | None = None
    ) -> None:
        self._records = MappingProxyType(dict(records or {}))
        self._saved = empty_mapping() if saved is None else MappingProxyType(dict(saved))

    def get(self, kind: type[R]) -> R | None:
        """The record of this type; ``None`` if its rule remembers nothing yet."""
        found = self._records.get(kind.record_name)
        if found is not None:
            assert isinstance(found, kind), f"two records are named {kind.record_name!r}"
            return found
        # Made here and not on loading: only the caller knows the type, and with it the fields' types.
        return _record(kind, self._saved)

    def with_record(self, record: Record) -> Memory:
        """The same memory with this record in place of the one of its type.

        Raises:
            TypeError: for a record that no checkpoint can hold.
        """
        assert is_dataclass(record), f"{type(record).__name__} is no dataclass"
        for one in fields(record):
            value = getattr(record, one.name)
            if not isinstance(value, Tensor | np.ndarray | np.generic | int | float | None):
                what = (
                    f"is a {type(value).__name__}; a checkpoint holds arrays, tensors and numbers"
                )
                raise TypeError(f"{type(record).__name__}.{one.name} {what}")
        return Memory({**self._records, record.record_name: record}, self._saved)

    def tensors(self) -> dict[str, Tensor]:
        """All fields as tensors named ``<record_name>.<field>``; fields of ``None`` are left out."""
        kept = {
            name: value
            for name, value in self._saved.items()
            # Records that no rule has asked for since the run was resumed; the next
            # checkpoint needs them, too.
            if name.partition(".")[0] not in self._records
        }
        for name, record in self._records.items():
            assert is_dataclass(record)
            for one in fields(record):
                value = getattr(record, one.name)
                if value is not None:
                    kept[f"{name}.{one.name}"] = _tensor(value)
        return kept

    def with_newcomers(self, count: int) -> Memory:
        """The same memory with rows for clients that come later; every record must be a
        `GrowingRecord`."""
        tensors = self.tensors()
        for name, rows in list(tensors.items()):
            record, _, field = name.partition(".")
            value = GrowingRecord.rows_of[record].get(field)
            if value is not None:
                new = torch.full((count, *rows.shape[1:]), value, dtype=rows.dtype)
                tensors[name] = torch.cat([rows, new])
        return Memory(saved=tensors)


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, float):
        # Python's floats have 64 bits; torch would take its default of 32.
        return torch.tensor(value, dtype=torch.float64)
    return torch.tensor(value)


@lru_cache(maxsize=256)
def _types(kind: type[Any]) -> dict[str, tuple[Any, ...]]:
    """The types that each field of a record may have."""
    hints = get_type_hints(kind)
    return {
        field.name: get_args(hints[field.name]) or (hints[field.name],) for field in fields(kind)
    }


def _record(kind: type[R], tensors: Mapping[str, Tensor]) -> R | None:
    """A record made of saved tensors; ``None`` where none of its fields was saved."""
    named = {}
    for name, types in _types(kind).items():
        saved = tensors.get(f"{kind.record_name}.{name}")
        if saved is not None:
            named[name] = _value(saved, types)
    if not named:
        return None
    # `None` was not saved, see `tensors`.
    missing = {name: None for name in _types(kind) if name not in named}
    return kind(**named, **missing)


def _value(saved: Tensor, types: tuple[Any, ...]) -> Any:
    if Tensor in types:
        return saved
    if any(kind in types for kind in (int, float, bool)):
        return saved.item()
    return saved.numpy()


class MemberCounts:
    """What was counted of the newest array of members, so that each round counts ten million clients
    once. An array of members never changes: clients that move are in a new array."""

    __slots__ = ("_has_group", "_member", "_sizes")

    def __init__(self) -> None:
        self._member: IntArray | None = None
        self._has_group: BoolArray | None = None
        self._sizes: IntArray | None = None

    def has_group(self, member: IntArray) -> BoolArray:
        """The clients with a group, bool ``[N]``."""
        self._turn_to(member)
        if self._has_group is None:
            self._has_group = member >= 0
            self._has_group.flags.writeable = False
        return self._has_group

    def sizes(self, member: IntArray) -> IntArray:
        """Members per group, up to the last group with members."""
        self._turn_to(member)
        if self._sizes is None:
            # Clients without a group are counted first, which saves a copy without them.
            self._sizes = np.bincount(member + 1)[1:]
        return self._sizes

    def after(self, before: IntArray, now: IntArray, ids: IntArray) -> MemberCounts:
        """The counts of an array in which some clients moved, from those of the array before."""
        counts = MemberCounts()
        if self._member is not before or self._sizes is None or 8 * len(ids) > len(now):
            return counts
        ids = np.unique(ids)
        left = np.bincount(before[ids] + 1)[1:]
        joined = np.bincount(now[ids] + 1)[1:]
        sizes = np.zeros(max(len(self._sizes), len(joined)), np.int64)
        sizes[: len(self._sizes)] += self._sizes
        sizes[: len(left)] -= left
        sizes[: len(joined)] += joined
        counts._member = now
        counts._sizes = sizes
        return counts

    def _turn_to(self, member: IntArray) -> None:
        if member is not self._member:
            self._member = member
            self._has_group = None
            self._sizes = None


@dataclass(frozen=True, slots=True)
class Groups:
    """The state of the server: the models, the group of each client, and what the rules store.

    Args:
        models: float32 ``[k, d]``, one flat parameter vector per group.
        member: int64 ``[N]``, the group of each client, ``-1`` for a client without a group.
        optimiser: rows of the server optimiser, each ``[k, ...]``.
        memory: one typed record for each rule (directions, signatures, ...).
        start: float32 ``[d]``, the first model ``w_0`` of the run.
        trained: bool ``[k]``, the models for which at least one reply of the last round counted.
        counted: cached counts of ``member``; copies with other models share them.

    All values are arrays or numbers, so a checkpoint contains the complete state.
    """

    models: Tensor
    member: IntArray
    optimiser: Mapping[str, Tensor] = field(default_factory=empty_mapping)
    memory: Memory = field(default_factory=Memory)
    start: Tensor | None = None
    trained: BoolArray | None = None
    counted: MemberCounts = field(default_factory=MemberCounts, repr=False, compare=False)

    @property
    def k(self) -> int:
        """Number of models."""
        return len(self.models)

    @property
    def first_model(self) -> Tensor:
        """The first model ``w_0 [d]`` of the run."""
        assert self.start is not None, "a run's groups know the first model"
        return self.start

    def sizes(self) -> IntArray:
        """Members per group, int64 ``[k]``."""
        sizes = self.counted.sizes(self.member)
        return np.pad(sizes, (0, max(0, self.k - len(sizes))))

    @property
    def has_group(self) -> BoolArray:
        """The clients with a group, bool ``[N]``; read-only."""
        return self.counted.has_group(self.member)

    @property
    def assigned(self) -> int:
        """Number of clients with a group."""
        return int(self.counted.sizes(self.member).sum())

    def auxiliary(self, *, filled: bool) -> Tensor:
        """The auxiliary global model ``[d]``: the mean of all models (FedGroup Alg. 2 l. 11).

        Args:
            filled: average only the models that have members, as FlexCFL's code does.
        """
        chosen = self.models
        has_members = torch.from_numpy(self.sizes() > 0)
        if filled and bool(has_members.any()):
            chosen = self.models[has_members]
        # In float64, so that the mean of equal models is that model to the bit.
        return chosen.to(torch.float64).mean(dim=0).to(torch.float32)

    def select(self, rows: Sequence[int] | IntArray) -> Groups:
        """The groups with the given rows of models and server optimiser, in that order. Members and
        memory are unchanged.

        A row that occurs twice is a group that splits; a row that is left out is a group that
        disappears.

        Example:
            >>> groups = Groups(torch.tensor([[1.0], [2.0]]), np.zeros(3, np.int64))
            >>> groups.select([0, 0, 1]).models.ravel().tolist()
            [1.0, 1.0, 2.0]
        """
        chosen = torch.as_tensor(rows, dtype=torch.int64)
        # Moments go with their model: a group that splits has been moving as its parent did.
        optimiser = {name: row[chosen] for name, row in self.optimiser.items()}
        return replace(self, models=self.models[chosen], optimiser=MappingProxyType(optimiser))

    def merged(self) -> Groups:
        """One group with all clients that have a group, served by the auxiliary model.

        This is the federation without grouping, for measures that compare the two.
        """
        return Groups(self.auxiliary(filled=True)[None], np.where(self.member >= 0, 0, NO_GROUP))

    def with_members(self, ids: IntArray, group: IntArray | int) -> Groups:
        """The same groups after some clients moved.

        Args:
            ids: int64 ``[n]``, the clients.
            group: int64 ``[n]``, the new group of each, or one for all of them.

        Raises:
            ValueError: for groups that are no integers, or not one for each client.
        """
        # A copy: the state before a round is still compared with the one after it.
        member = self.member.copy()
        wanted = member[ids].shape
        given = np.asarray(group)
        if not given.size:
            given = given.astype(np.int64)  # an empty list becomes float64
        # NumPy would cut the decimals off.
        if given.dtype.kind not in "iu" or given.shape not in ((), wanted):
            got = f"{given.dtype} {list(given.shape)}"
            raise ValueError(
                f"with_members: wrong groups, got {got}; expected int64 {list(wanted)}"
            )
        member[ids] = given
        counted = self.counted.after(self.member, member, np.asarray(ids))
        return replace(self, member=member, counted=counted)

    def remember(self, record: Record) -> Groups:
        """The same groups, with this record in place of the stored one of its type."""
        return replace(self, memory=self.memory.with_record(record))
