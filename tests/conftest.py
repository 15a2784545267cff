"""Small federations and comparisons that tests share."""

from __future__ import annotations

import gc
import os
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from hypothesis import settings
from torch import nn

from coterie.clients.clients import Clients
from coterie.clients.round import Round
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.data.population import Population
from coterie.data.samples import Samples
from coterie.errors import ConfigError
from tests.quick import has_quick, is_quick, unknown

Record = TypeVar("Record")
Made = TypeVar("Made")

# Tests of real data are skipped where they are not.
DATA = Path(os.environ.get("COTERIE_DATA") or Path(__file__).parents[2] / "shared" / "data")

# Seconds after which a test gives up to wait for something. It goes on as soon as that is there, and
# on a busy machine a process may take a minute to start.
PATIENCE = 600

# Options with which every shift does something to twelve clients within a few rounds.
SHIFT_OPTIONS: dict[str, dict[str, Any]] = {
    "swap_all": {"p": 0.5},
    "swap_part": {"p": 0.9},
    "incremental": {"every": 2},
    "arrivals": {"round": 1, "count": 2, "waves": 2, "every": 2},
    "departures": {"round": 1, "count": 2, "waves": 2, "every": 2},
    "rotate_labels": {"round": 1, "fraction": 0.25, "waves": 2, "every": 2},
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--start-method",
        choices=["fork", "spawn"],
        help="how the pool's workers start: spawn is the only way on macOS and Windows",
    )
    parser.addoption("--quick", action="store_true", help="only what tests/quick.py names")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.getoption("--quick") and not has_quick(collection_path):
        return True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        names = unknown(items)
        if names:
            raise pytest.UsageError(f"tests/quick.py names no test: {', '.join(names)}")
        config.hook.pytest_deselected(items=[item for item in items if not is_quick(item)])
        items[:] = filter(is_quick, items)
    else:
        _mark_all_but_a_sample(items)


def _mark_all_but_a_sample(items: list[pytest.Item]) -> None:
    """Mark all but ``n`` cases of each test with ``sampled(n)`` as slow.

    The digest of a case's name says whether it is in the sample: cases of the same method are in
    the samples of other tests, and a new case leaves the others where they are.
    """
    cases = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is not None and item.get_closest_marker("slow") is None:
            cases[item.nodeid.split("[")[0], mark.args[0]].append(item)
    for (_, n), found in cases.items():
        for item in sorted(found, key=lambda item: sha256(item.nodeid.encode()).digest())[n:]:
            item.add_marker("slow")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the search for garbage, and leave what was collected out of later ones.

    Nothing of it becomes garbage before the end. A search also writes into the memory that it looks
    through, and each process that was forked would get a copy of that.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Refuse a module that draws random numbers when it is imported, as a network among the
    arguments of `parametrize` does: they would depend on what else was imported before."""
    generator = torch.random.default_generator
    before = generator.get_state()
    report = yield
    if not torch.equal(before, generator.get_state()):
        generator.set_state(before)
        report.outcome = "failed"
        report.longrepr = "random numbers are drawn at import: draw them in a test or a fixture"
    return report


@pytest.fixture(autouse=True, scope="session")
def worker_start_method(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every pool starts its workers as the option says, also those of `coterie.run`."""
    chosen = request.config.getoption("--start-method")
    if chosen is None:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        # A fork cannot train on several threads.
        patch.setattr(
            "coterie.engines.pool.engine.start_method",
            lambda threads=1: chosen if threads == 1 else "spawn",
        )
        yield


@pytest.fixture(autouse=True)
def same_first_weights() -> None:
    """A network that a test makes has the same weights whichever tests ran before in its process."""
    # Of the processor alone: torch would write down the whole stack for each kind of accelerator.
    torch.random.default_generator.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def files_are_not_flushed() -> Iterator[None]:
    """Nothing waits for the disk, which takes 4 ms a file: only a loss of power would show it.

    Processes that tests start, and kill, flush as they do for users.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def state_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What tests trust is not remembered for the user who runs them."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


settings.register_profile("coterie", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("coterie")


def blobs(
    clients: int = 12, groups: int = 2, size: int = 24, classes: int = 4, seed: int = 0
) -> Population:
    """A planted federation: clients of group ``g`` see the same inputs with labels shifted by
    ``g``."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, 6)) * 2
    x = []
    y = []
    train = []
    test = []
    planted = np.arange(clients) % groups
    for i in range(clients):
        n = size + int(rng.integers(0, size))
        truth = rng.integers(classes, size=n)
        start = sum(len(part) for part in y)
        x.append(centres[truth] + rng.normal(size=(n, 6)))
        y.append((truth + planted[i]) % classes)
        index = start + rng.permutation(n)
        train.append(index[: n * 3 // 4])
        test.append(index[n * 3 // 4 :])
    return Population(
        torch.tensor(np.concatenate(x), dtype=torch.float32),
        torch.tensor(np.concatenate(y)),
        tuple(train),
        tuple(test),
        classes,
        planted=planted,
    )


def two_classes_each(clients: int = 12, groups: int = 2, seed: int = 0) -> Population:
    """A planted federation: clients of group ``g`` hold the classes ``2 g`` and ``2 g + 1``
    alone."""
    rng = np.random.default_rng(seed)
    centres = 3 * np.eye(6)
    planted = np.arange(clients) % groups
    size = 24
    y = 2 * np.repeat(planted, size) + rng.integers(2, size=clients * size)
    y[::size] = 2 * planted
    y[1::size] = 2 * planted + 1
    x = centres[y] + rng.normal(size=(len(y), 6)) * 0.3
    parts = np.arange(len(y)).reshape(clients, size)
    return Population(
        torch.tensor(x, dtype=torch.float32),
        torch.tensor(y),
        tuple(parts[:, :18]),
        tuple(parts[:, 18:]),
        2 * groups,
        planted=planted,
    )


def two_labels_each() -> Population:
    """The blobs of which client ``i`` holds the labels ``i`` and ``i + 1`` alone."""
    whole = blobs()
    kept = [
        tuple(
            rows[np.isin(whole.labels[rows], [i % 4, (i + 1) % 4])] for i, rows in enumerate(parts)
        )
        for parts in (whole.train, whole.test)
    ]
    return whole.with_parts(*kept)


def disjoint_neighbours() -> Population:
    """Two planted groups with disjoint labels; neighbours are in different groups."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 6)) * 3
    owner = np.repeat(np.arange(12), 40)
    y = 2 * (owner % 2) + rng.integers(2, size=len(owner))
    x = torch.tensor(centres[y] + rng.normal(size=(len(y), 6)), dtype=torch.float32)
    parts = [np.flatnonzero(owner == i) for i in range(12)]
    return Population(
        x, torch.tensor(y), tuple(p[:30] for p in parts), tuple(p[30:] for p in parts), 4
    )


def small_net(classes: int = 4) -> nn.Module:
    torch_state = torch.random.get_rng_state()
    torch.random.default_generator.manual_seed(5)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, classes))
    torch.random.set_rng_state(torch_state)
    return net


@pytest.fixture(scope="session")
def population() -> Population:
    return blobs()


@pytest.fixture
def net() -> nn.Module:
    return small_net()


def round_of(clients: Clients, cohort: Any, key: Key, able: Any = None) -> Round:
    """The round of a key, as the loop makes it for a method's step.

    Args:
        clients: reaches them.
        cohort: who is asked.
        key: of the round.
        able: the clients that can train; ``None``: all.
    """
    can_train = None
    if able is not None:
        # Clients behind the last one that can train are left out of the mask.
        can_train = np.isin(np.arange(1 + max(able)), able)
    return Round(key.round, key, np.asarray(cohort, np.int64), clients, can_train=can_train)


def same_memory(one: Groups, other: Groups) -> bool:
    """Whether the rules remember the same, to the bit."""
    mine = one.memory.tensors()
    theirs = other.memory.tensors()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[n], theirs[n]) for n in mine)


def no_round() -> Round:
    """A round that reaches no client, for rules that only compute."""
    return round_of(Clients(None), [], Key(3).at(0))  # type: ignore[arg-type]


def real_data(name: str) -> Path:
    """The folder that holds a real dataset; without it a test is skipped."""
    if not list((DATA / name).glob("*.parquet")):
        pytest.skip(f"no {name} under COTERIE_DATA")
    return DATA


def real_labels(name: str, classes: int = 10, *columns: str) -> Samples:
    """Labels and columns of a real dataset; the images are not decoded."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    root = real_data(name)
    tables = [
        pq.read_table(root / name / f"{split}.parquet", columns=["label", *columns])
        for split in ("train", "test")
    ]
    both = pa.concat_tables(tables)
    extra = {name: np.array(both[name].to_pylist()) for name in columns}
    labels = torch.from_numpy(both["label"].to_numpy().copy())
    return Samples(torch.zeros(len(labels), 1), labels, classes, len(tables[0]), extra)


@pytest.fixture(scope="session")
def tenth_of_cifar10(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with the first tenth of CIFAR-10: decoding all of it takes ten seconds."""
    import pyarrow.parquet as pq

    whole = real_data("cifar10") / "cifar10"
    root = tmp_path_factory.mktemp("data")
    (root / "cifar10").mkdir()
    for name in ("train.parquet", "test.parquet"):
        rows = pq.read_table(whole / name)
        pq.write_table(rows.slice(0, len(rows) // 10), root / "cifar10" / name)
    return root


def remembered(groups: Groups, record: type[Record]) -> Record:
    """What a rule remembers of one kind."""
    found = groups.memory.get(record)
    assert found is not None
    return found


def same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two labellings have the same clusters, whatever they are called."""
    pairs = set(zip(a.tolist(), b.tolist(), strict=True))
    return len(pairs) == len(set(a.tolist())) == len(set(b.tolist()))


def assert_near(found: Any, expected: Any, within: float = 1e-4) -> None:
    """Equal but for rounding, which is relative to the largest value of each row.

    Sums in float32 that were made in another order differ by rounding errors of their largest terms,
    6e-8 of them at each step, and an update is a difference of weights that are larger than itself.
    What is left in one coordinate may be far smaller than those.

    Args:
        found: ``[..., d]``; a single number is a row of its own.
        expected: of the same shape.
        within: the share of the largest absolute value of a row of ``expected``.
    """
    found = np.asarray(found, np.float64)
    expected = np.asarray(expected, np.float64)
    assert found.shape == expected.shape
    gap = np.abs(found - expected)
    size = np.abs(expected)
    if expected.ndim:
        gap = gap.max(axis=-1)
        size = size.max(axis=-1)
    assert (gap <= within * size).all(), f"off by {np.max(gap / size)} of the largest value"


def work_of(action: Callable[[], Made]) -> tuple[Made, float]:
    """What an action returns, and its processor time as a multiple of that of a fixed piece of work,
    which takes 0.07 s on the machine of the benchmarks: a limit holds on slow and on busy ones."""
    before = _fixed_work()
    begun = time.process_time()
    made = action()
    seconds = time.process_time() - begun
    return made, seconds / max(before, _fixed_work())


def _fixed_work() -> float:
    """Sorting, products of matrices and a loop; its seconds."""
    begun = time.process_time()
    rng = np.random.default_rng(0)
    for _ in range(4):
        np.sort(rng.normal(size=200_000))
        rng.normal(size=(200, 200)) @ rng.normal(size=(200, 200))
    sum(i * i for i in range(300_000))
    return time.process_time() - begun


def config_errors(action: Callable[[], object]) -> list[str]:
    """The lines of the configuration error that an action raises."""
    with pytest.raises(ConfigError) as caught:
        action()
    return str(caught.value).splitlines()
