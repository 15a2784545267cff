"""Distribution shifts: who holds what, who is there, and what labels mean, changed at the start of
a round.

A shift is a pure function of the scene of the round before, the population before any shift, and a
key. It moves index arrays and copies no sample. A client whose data did not change keeps the
*identical* arrays, so that engines and caches can see what changed. A run that resumes goes on from
the saved scene.

`SHIFTS` holds the factories by name; the table ``[shift]`` of a configuration names one,
``[[shift]]`` several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from coterie.config.arguments import validated
from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data.population import Population
from coterie.errors import ConfigError, DataError

Mask = NDArray[np.bool_]
Event = dict[str, Any]
Pool = Literal["warm", "all"]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, le=1)]
Round = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
BEFORE = -1  # the round of draws that hold for the whole run


def _nobody() -> IntArray:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class FederationSnapshot:
    """The federation in one round.

    Args:
        population: who holds what now.
        present: bool ``[N]``, who can be asked and is scored.
        events: what moved in this round, ready for JSON.
        changed: int64, the clients whose data changed in this round, ascending.
    """

    population: Population
    present: Mask
    events: tuple[Event, ...] = ()
    changed: IntArray = field(default_factory=_nobody)

    @classmethod
    def start(cls, population: Population) -> FederationSnapshot:
        """Before any shift: everybody is there.

        Example:
            >>> p = Population(torch.zeros(2, 1), torch.tensor([0, 1]), ([0], [1]), ([], []), classes=2)
            >>> FederationSnapshot.start(p).present.tolist()
            [True, True]
        """
        return cls(population, np.ones(population.clients, bool))

    def tensors(self, initial: Population) -> dict[str, Tensor]:
        """What changed against ``initial``, as named tensors for a checkpoint."""
        named = {"present": torch.from_numpy(self.present.copy())}
        if self.population.planted is not None:
            named["planted"] = torch.from_numpy(self.population.planted.copy())
        for split in ("train", "test"):
            named[split] = torch.from_numpy(np.concatenate(getattr(self.population, split)))
            named[f"{split}_sizes"] = torch.from_numpy(self.population.sizes(split).copy())
        if self.population.y is initial.y:
            return named
        return named | {"y": self.population.y.clone()}

    @classmethod
    def restore(cls, initial: Population, tensors: Mapping[str, Tensor]) -> FederationSnapshot:
        """The scene that ``tensors`` were taken from."""

        def parts(split: str) -> tuple[IntArray, ...]:
            bounds = np.cumsum(tensors[f"{split}_sizes"].numpy())[:-1]
            return tuple(np.split(tensors[split].numpy(), bounds))

        planted = tensors["planted"].numpy() if "planted" in tensors else None
        y = tensors.get("y", initial.y)
        moved = replace(initial, y=y, train=parts("train"), test=parts("test"), planted=planted)
        return cls(moved, tensors["present"].numpy())

    def after(
        self, population: Population, changed: Iterable[int], event: Event
    ) -> FederationSnapshot:
        """The same people with other data, and one event."""
        return FederationSnapshot(
            population, self.present, (event,), np.unique(np.fromiter(changed, np.int64))
        )

    def with_present(self, present: Mask, event: Event) -> FederationSnapshot:
        """The same data with other people, and one event."""
        return FederationSnapshot(self.population, present, (event,))

    def quiet(self) -> FederationSnapshot:
        """The same scene, in a round in which nothing happens."""
        if self.events or len(self.changed):
            return FederationSnapshot(self.population, self.present)
        return self


class Shift(Protocol):
    """What changes at the start of a round, before clients are drawn."""

    def __call__(
        self, scene: FederationSnapshot, initial: Population, round: int, warm: Mask, key: Key
    ) -> FederationSnapshot:
        """The scene of this round.

        Args:
            scene: of the round before.
            initial: the population before any shift.
            round: number of this round, from 0.
            warm: bool ``[N]``, who has a group.
            key: the stream of this round; draws that hold for the whole run come from
                ``key.at(-1)``.
        """
        ...


# --- who is chosen, and when ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Schedule:
    """Rounds ``start, start + every, ...`` before ``stop``, at most ``times`` of them.

    Example:
        >>> [t for t in range(12) if Schedule(start=2, stop=9, every=3).due(t)]
        [2, 5, 8]
    """

    start: int = 0
    stop: int | None = None
    every: int = 1
    times: int | None = None

    def __post_init__(self) -> None:
        if self.stop is not None and self.stop <= self.start:
            raise ConfigError(
                f"shift.stop: not after the start, got {self.stop}; expected more than {self.start}"
            )

    def due(self, round: int) -> bool:
        """Whether something happens in this round."""
        since = round - self.start
        if since < 0 or since % self.every or (self.stop is not None and round >= self.stop):
            return False
        return self.times is None or since // self.every < self.times


def _pool(scene: FederationSnapshot, warm: Mask, pool: Pool) -> IntArray:
    return np.flatnonzero(scene.present & warm if pool == "warm" else scene.present)


def _pairs(clients: IntArray, p: float, key: Key) -> list[tuple[int, int]]:
    """Of ``floor(n / 2)`` disjoint random pairs, those chosen, each with probability ``p``."""
    rng = key.generator()
    mixed = rng.permutation(clients)
    half = len(mixed) // 2
    chosen = np.flatnonzero(rng.random(half) < p)
    return [(int(mixed[i]), int(mixed[len(mixed) - 1 - i])) for i in chosen]


def _quota(count: int | None, fraction: float | None, clients: int) -> int:
    """How many of so many clients: ``count``, or a share of them, at least one."""
    wanted = (
        count
        if count is not None
        else max(1, round(clients * (0.1 if fraction is None else fraction)))
    )
    if wanted > clients:
        raise ConfigError(
            f"shift.count: more than there are clients, got {wanted}; expected at most {clients}"
        )
    return wanted


def _one_of(count: int | None, fraction: float | None) -> None:
    if count is not None and fraction is not None:
        raise ConfigError(
            f"shift.fraction: given beside shift.count, got {fraction}; expected one of the two"
        )


# --- swaps ----------------------------------------------------------------------------------------


@validated
def swap_all(
    p: Share = 0.05,
    pool: Pool = "warm",
    start: Round = 0,
    stop: Count | None = None,
    every: Count = 1,
) -> Shift:
    """Pairs of clients exchange all their data, training and test, each pair with probability p.

    The pool is paired off at random; of its ``floor(n / 2)`` disjoint pairs each is swapped
    independently, so that ``p n`` clients move in a round (FlexCFL, section 5.3). A planted group
    moves with the data.

    Args:
        p: probability of a pair.
        pool: ``warm``: clients with a group; ``all``: everybody present.
        start: first round.
        stop: the round before which it ends; ``None``: never.
        every: rounds from one time to the next.

    Example:
        >>> p = Population(torch.zeros(2, 1), torch.tensor([0, 1]), ([0], [1]), ([], []), classes=2)
        >>> scene = swap_all(p=1.0, pool="all")(FederationSnapshot.start(p), p, 0, np.zeros(2, bool), Key(0, round=0))
        >>> [rows.tolist() for rows in scene.population.train], scene.changed.tolist()
        ([[1], [0]], [0, 1])
    """
    schedule = Schedule(start, stop, every)

    def shift(
        scene: FederationSnapshot, initial: Population, round: int, warm: Mask, key: Key
    ) -> FederationSnapshot:
        pairs = _pairs(_pool(scene, warm, pool), p, key) if schedule.due(round) else []
        if not pairs:
            return scene.quiet()
        now = scene.population
        source = np.arange(now.clients)
        for a, b in pairs:
            source[[a, b]] = b, a
        train, test = (tuple(parts[i] for i in source) for parts in (now.train, now.test))
        planted = None if now.planted is None else now.planted[source]
        moved = now.with_parts(train, test, planted)
        event = {"shift": "swap_all", "pairs": [list(pair) for pair in pairs]}
        return scene.after(moved, (i for pair in pairs for i in pair), event)

    return shift


@validated
def swap_part(
    p: Share = 0.05,
    pool: Pool = "warm",
    start: Round = 0,
    stop: Count | None = None,
    every: Count = 1,
) -> Shift:
    """Pairs of clients exchange all samples of one label each, each pair with probability p.

    Pairs as in `swap_all`. One label that only the first client has goes against one that only the
    second has; a label counts if the client has it in training and in test. A pair without such
    labels is skipped (FlexCFL, section 5.3; the authors' code ends the round's swaps there).

    Args:
        p: probability of a pair.
        pool: ``warm``: clients with a group; ``all``: everybody present.
        start: first round.
        stop: the round before which it ends; ``None``: never.
        every: rounds from one time to the next.

    Example:
        >>> y = torch.tensor([0, 1, 0, 1])
        >>> p = Population(torch.zeros(4, 1), y, ([0], [1]), ([2], [3]), classes=2)
        >>> scene = swap_part(p=1.0, pool="all")(FederationSnapshot.start(p), p, 0, np.zeros(2, bool), Key(0, round=0))
        >>> [rows.tolist() for rows in scene.population.train], [rows.tolist() for rows in scene.population.test]
        ([[1], [0]], [[3], [2]])
    """
    schedule = Schedule(start, stop, every)

    def shift(
        scene: FederationSnapshot, initial: Population, round: int, warm: Mask, key: Key
    ) -> FederationSnapshot:
        drawn = _pairs(_pool(scene, warm, pool), p, key) if schedule.due(round) else []
        now = scene.population
        train = list(now.train)
        test = list(now.test)
        rng = key.of("labels").generator()
        pairs = []
        labels = []
        for a, b in drawn:
            found = _tradable(now, a, b, rng)
            if found:
                _trade(now.labels, (train, test), (a, b), found)
                pairs.append([a, b])
                labels.append(list(found))
        if not pairs:
            return scene.quiet()
        event = {"shift": "swap_part", "pairs": pairs, "labels": labels}
        return scene.after(
            now.with_parts(tuple(train), tuple(test)), (i for pair in pairs for i in pair), event
        )

    return shift


def _tradable(now: Population, a: int, b: int, rng: np.random.Generator) -> tuple[int, int] | None:
    """A label of ``a`` that ``b`` has not, and one of ``b`` that ``a`` has not."""
    of_a, of_b = (np.intersect1d(now.labels[now.train[i]], now.labels[now.test[i]]) for i in (a, b))
    only_a = np.setdiff1d(of_a, of_b)
    only_b = np.setdiff1d(of_b, of_a)
    if not len(only_a) or not len(only_b):
        return None
    return int(rng.choice(only_a)), int(rng.choice(only_b))


def _trade(
    y: IntArray,
    splits: tuple[list[IntArray], list[IntArray]],
    pair: tuple[int, int],
    labels: tuple[int, int],
) -> None:
    """Move every sample of the first label from the first client to the second, and of the second
    label back."""
    a, b = pair
    for parts in splits:
        mine = parts[a]
        theirs = parts[b]
        give = y[mine] == labels[0]
        take = y[theirs] == labels[1]
        parts[a] = np.concatenate([mine[~give], theirs[take]])
        parts[b] = np.concatenate([theirs[~take], mine[give]])


# --- release --------------------------------------------------------------------------------------


@validated
def incremental(
    share: Positive = 0.25,
    every: Count = 50,
    release: Literal["cumulative", "flexcfl_code"] = "cumulative",
    start: Round = 0,
) -> Shift:
    """Training data come in by and by: a share first, more every so many rounds, until all are
    there.

    Each client's training samples are put in a random order once. At round ``start + s * every`` it
    has the first ``ceil(min(1, (s + 1) share) n)`` of them; tests stay as they are (FlexCFL,
    section 5.3). Beside other shifts, put this one first: what is yet to come stays the client's
    own, whatever it swaps meanwhile, so that planted groups and tests tell of a mixture until
    swapped data are outweighed. Global data are not the same from round to round.

    Args:
        share: released each time.
        every: rounds from one release to the next.
        release: ``cumulative``: as above, 25, 50, 75, 100 of 100; ``flexcfl_code``: as in the
            authors' code, where the share is one of what the client has *left*, so that data
            shrink: 25, 13, 10, 10 of 100.
        start: round of the first release; before it clients have everything, and no other shift may
            move training data. 1 lets groups form on all data, as in FlexCFL's code, whose cold
            start comes before round 0.

    Raises:
        ConfigError: in the round of the first release, if training data have moved before it.

    Example:
        >>> p = Population(torch.zeros(8, 1), torch.zeros(8).long(), (np.arange(8),), ([],), classes=1)
        >>> scene, shift = FederationSnapshot.start(p), incremental(every=2)
        >>> seen = []
        >>> for t in range(8):
        ...     scene = shift(scene, p, t, np.ones(1, bool), Key(0, round=t))
        ...     seen.append(len(scene.population.train[0]))
        >>> seen
        [2, 2, 4, 4, 6, 6, 8, 8]
    """

    def shift(
        scene: FederationSnapshot, initial: Population, round: int, warm: Mask, key: Key
    ) -> FederationSnapshot:
        stage, rest = divmod(round - start, every)
        if stage < 0 or rest or _part(share, stage) == _part(share, stage - 1):
            return scene.quiet()
        now = scene.population
        if stage == 0 and start and not all(map(np.array_equal, now.train, initial.train)):
            raise ConfigError(
                f"shift.start: another shift moved training data before the first release, got {start}; "
                "expected 0, or the others to start no earlier"
            )
        step = _released if release == "cumulative" else _kept
        train = tuple(
            step(rows, initial.train[i], share, stage, key.client(i))
            for i, rows in enumerate(now.train)
        )
        changed = [
            i
            for i, (rows, before) in enumerate(zip(train, now.train, strict=True))
            if rows is not before
        ]
        if not changed:
            return scene.quiet()
        event = {
            "shift": "incremental",
            "share": _part(share, stage),
            "samples": sum(map(len, train)),
        }
        return scene.after(now.with_parts(train, now.test), changed, event)

    return shift


def _part(share: float, stage: int) -> float:
    """The share released at a stage, counted from 0."""
    return min(1.0, share * (stage + 1))


def _upto(share: float, stage: int, n: int) -> int:
    """``ceil`` of the share of ``n``, proof against rounding (0.1 * 3 * 10 is
    3.0000000000000004)."""
    return math.ceil(round(_part(share, stage) * n, 9))


def _order(held: IntArray, key: Key) -> IntArray:
    return held[key.at(BEFORE).of("order").generator().permutation(len(held))]


def _released(now: IntArray, initial: IntArray, share: float, stage: int, key: Key) -> IntArray:
    """What a client has now and the samples of this stage."""
    order = _order(initial, key)
    if stage == 0:
        first = order[: _upto(share, 0, len(order))]
        if np.array_equal(first, now):
            return now
        return first
    more = order[_upto(share, stage - 1, len(order)) : _upto(share, stage, len(order))]
    if len(more):
        return np.concatenate([now, more])
    return now


def _kept(now: IntArray, initial: IntArray, share: float, stage: int, key: Key) -> IntArray:
    """The first samples of what a client has now, as the reference code cuts them."""
    held = _order(now, key) if stage == 0 else now
    left = held[: _upto(share, stage, len(held))]
    if np.array_equal(left, now):
        return now
    return left


# --- coming and going -----------------------------------------------------------------------------


@validated
def arrivals(
    round: Count = 50,
    count: Count | None = None,
    fraction: Positive | None = None,
    waves: Count = 1,
    every: Count = 1,
) -> Shift:
    """Clients that join late: some are not there before a round, in one wave or several.

    Args:
        round: of the first wave.
        count: clients in each wave.
        fraction: share of all clients in each wave, instead of ``count``; default 0.1.
        waves: number of waves.
        every: rounds from one wave to the next.

    Raises:
        ConfigError: where nobody is left to begin with.

    Example:
        >>> p = Population(torch.zeros(3, 1), torch.zeros(3).long(), ([0], [1], [2]), ([],) * 3, classes=1)
        >>> scene, shift = FederationSnapshot.start(p), arrivals(round=2, count=1, waves=2)
        >>> seen = []
        >>> for t in range(5):
        ...     scene = shift(scene, p, t, np.zeros(3, bool), Key(0, round=t))
        ...     seen.append(int(scene.present.sum()))
        >>> seen
        [1, 1, 2, 3, 3]
    """
    _one_of(count, fraction)
    schedule = Schedule(round, every=every, times=waves)

    def shift(
        scene: FederationSnapshot, initial: Population, round: int, warm: Mask, key: Key
    ) -> FederationSnapshot:
        size = _quota(count, fraction, initial.clients)
        if round and not schedule.due(round):
            return scene.quiet()
        if size * waves >= initial.clients:
            raise ConfigError(
                f"shift.waves: {waves} of {size} clients leave nobody to begin with, got {initial.clients} clients; "
                f"expected fewer or smaller waves"
            )
        late = key.at(BEFORE).of("late").generator().permutation(initial.clients)[: size * waves]
        present = scene.present.copy()
        if round == 0:
            present[late] = False
            if not present.any():
                raise ConfigError(
                    "shift.waves: the arrivals of several tables leave nobody to begin with, "
                    f"got {initial.clients} clients; expected fewer or smaller waves"
                )
            return scene.with_present(present, _people("awaited", late))
        come = late[(wave := (round - schedule.start) // every) * size : (wave + 1) * size]
        present[come] = True
        return scene.with_present(present, _people("arrivals", come))

    return shift


@validated
def departures(
    round: Round = 50,
    count: Count | None = None,
    fraction: Positive | None = None,
    waves: Count = 1,
    every: Count = 1,
) -> Shift:
    """Clients that leave for good: some of those present are gone from a round on, in one wave or
    several.

    Args:
        round: of the first wave.
        count: clients in each wave; one client always stays.
        fraction: share of all clients in each wave, instead of ``count``; default 0.1.
        waves: number of waves.
        every: rounds from one wave to the next.

    Example:
        >>> p = Population(torch.zeros(3, 1), torch.zeros(3).long(), ([0], [1], [2]), ([],) * 3, classes=1)
        >>> scene, shift = FederationSnapshot.start(p), departures(round=1, count=1, waves=5)
        >>> seen = []
        >>> for t in range(5):
        ...     scene = shift(scene, p, t, np.zeros(3, bool), Key(0, round=t))
        ...     seen.append(int(scene.present.sum()))
        >>> seen
        [3, 2, 1, 1, 1]
    """
    _one_of(count, fraction)
    schedule = Schedule(round, every=every, times=waves)

    def shift(
        scene: FederationSnapshot, initial: Population, round: int, warm: Mask, key: Key
    ) -> FederationSnapshot:
        size = _quota(count, fraction, initial.clients)
        there = np.flatnonzero(scene.present)
        if not schedule.due(round) or len(there) < 2:
            return scene.quiet()
        gone = key.generator().choice(there, min(size, len(there) - 1), replace=False)
        present = scene.present.copy()
        present[gone] = False
        return scene.with_present(present, _people("departures", gone))

    return shift


def _people(shift: str, clients: IntArray) -> Event:
    return {"shift": shift, "clients": np.sort(clients).tolist()}


# --- what labels mean -----------------------------------------------------------------------------


@validated
def rotate_labels(
    round: Round = 50,
    count: Count | None = None,
    fraction: Positive | None = None,
    by: Count = 1,
    pool: Pool = "all",
    waves: Count = 1,
    every: Count = 1,
) -> Shift:
    """A planted change of concept: for some clients every label y becomes (y + by) mod c, in
    training and test.

    Samples that a client has yet to receive (`incremental`) turn with it. Where the federation has
    planted groups, the clients form new ones, one for each group they came from.

    Args:
        round: of the first wave.
        count: clients in each wave.
        fraction: share of the pool in each wave, instead of ``count``; default 0.1.
        by: how far labels turn.
        pool: ``warm``: clients with a group; ``all``: everybody present.
        waves: number of waves; a client can be met again.
        every: rounds from one wave to the next.

    Raises:
        DataError: before the first round, if two clients share a sample: it would turn at both.

    Example:
        >>> p = Population(torch.zeros(2, 1), torch.tensor([0, 2]), ([0], [1]), ([], []), classes=3)
        >>> scene = rotate_labels(0, fraction=1.0)(FederationSnapshot.start(p), p, 0, np.zeros(2, bool), Key(0, round=0))
        >>> scene.population.y.tolist(), p.y.tolist()
        ([1, 0], [0, 2])
    """
    _one_of(count, fraction)
    schedule = Schedule(round, every=every, times=waves)

    def shift(
        scene: FederationSnapshot, initial: Population, round: int, warm: Mask, key: Key
    ) -> FederationSnapshot:
        among = _pool(scene, warm, pool)
        if (
            not round
        ):  # what would be refused when a wave is due is refused before anything is computed
            _quota(count, fraction, initial.clients)
            _refuse_shared(initial)
        if not schedule.due(round) or not len(among):
            return scene.quiet()
        size = min(
            len(among), _quota(count, fraction, len(among) if count is None else initial.clients)
        )
        met = np.sort(key.generator().choice(among, size, replace=False))
        now = scene.population
        rows = torch.from_numpy(_own_rows(now, initial, met))
        y = now.y.clone()
        y[rows] = (y[rows] + by) % now.classes
        event = {**_people("rotate_labels", met), "by": by}
        return scene.after(replace(now, y=y, planted=_split_off(now.planted, met)), met, event)

    return shift


def _refuse_shared(initial: Population) -> None:
    held = [
        np.union1d(train, test) for train, test in zip(initial.train, initial.test, strict=True)
    ]
    shared = int((np.bincount(np.concatenate(held)) > 1).sum())
    if shared:
        raise DataError(
            f"shift: rotate_labels needs samples that no two clients share, got {shared} shared samples; "
            "expected a partition without overlap"
        )


def _own_rows(now: Population, initial: Population, clients: IntArray) -> IntArray:
    """The samples that these clients hold, or will receive."""
    holders = np.bincount(np.concatenate([*now.train, *now.test]), minlength=len(now.y))
    held = np.concatenate([parts[i] for parts in (now.train, now.test) for i in clients])
    to_come = np.concatenate([initial.train[i] for i in clients])
    return np.union1d(held, to_come[holders[to_come] == 0])


def _split_off(planted: IntArray | None, clients: IntArray) -> IntArray | None:
    if planted is None:
        return None
    apart = planted.copy()
    apart[clients] += int(planted.max()) + 1
    return np.unique(apart, return_inverse=True)[1].astype(np.int64)


# --- several shifts, and shifts by name -----------------------------------------------------------

SHIFTS: MappingProxyType[str, Callable[..., Shift]] = MappingProxyType(
    {
        "swap_all": swap_all,
        "swap_part": swap_part,
        "incremental": incremental,
        "arrivals": arrivals,
        "departures": departures,
        "rotate_labels": rotate_labels,
    }
)


def combined(shifts: Sequence[Shift]) -> Shift:
    """Several shifts, one after another in every round, each with a stream of its own.

    Example:
        >>> p = Population(torch.zeros(2, 1), torch.tensor([0, 1]), ([0], [1]), ([], []), classes=2)
        >>> both = combined([swap_all(1.0, "all"), rotate_labels(0, count=1)])
        >>> scene = both(FederationSnapshot.start(p), p, 0, np.zeros(2, bool), Key(0, round=0))
        >>> [event["shift"] for event in scene.events], scene.changed.tolist()
        (['swap_all', 'rotate_labels'], [0, 1])
    """

    def shift(
        scene: FederationSnapshot, initial: Population, round: int, warm: Mask, key: Key
    ) -> FederationSnapshot:
        events: list[Event] = []
        changed: list[IntArray] = [_nobody()]
        for at, one in enumerate(shifts):
            scene = one(scene, initial, round, warm, key.of(f"{at}"))
            events += scene.events
            changed.append(scene.changed)
        return FederationSnapshot(
            scene.population, scene.present, tuple(events), np.unique(np.concatenate(changed))
        )

    return shift


def make_shift(tables: Sequence[Mapping[str, Any]]) -> Shift | None:
    """The shift of some tables, each with its ``kind`` and its parameters; ``None`` where there are
    no tables.

    Raises:
        ConfigError: for an unknown kind, or parameters that do not go together.

    Example:
        >>> make_shift([]) is None, callable(make_shift([{"kind": "swap_all", "p": 0.1}]))
        (True, True)
    """
    made = [_make(**table) for table in tables]
    if not made:
        return None
    if len(made) == 1:
        return made[0]
    return combined(made)


def _make(kind: str, **parameters: Any) -> Shift:
    if kind not in SHIFTS:
        raise ConfigError(f"shift.kind: unknown, got {kind!r}; expected one of {', '.join(SHIFTS)}")
    return SHIFTS[kind](**parameters)
