"""What the shell completes: names and run folders.

The registries import torch, which takes seconds, so names are repeated here; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from coterie.studies.reproduce import PAPERS

KINDS = ("algorithms", "models", "datasets", "partitions", "shifts", "servers", "objectives")
DATASETS = (
    *("cifar10", "digits", "emnist_letters_aj", "femnist", "fashion_mnist", "file"),
    *("mnist", "nodes", "sent140", "svhn", "synthetic"),
)
ALGORITHMS = (
    *("astraea", "cfl", "fedadagrad", "fedadam", "fedavg", "fedavgm", "fedclust", "fedfusion"),
    *("fedgroup", "fedgrouprox", "fedgsp", "fedmmd", "fedprox", "fedyogi", "fesem", "flexcfl"),
    *("flhc", "ida", "ifca", "naive_gsp", "pacfl", "rfedavg", "rfedavg_kmeans", "rfedavg_optimal"),
)
ENGINES = ("pool", "serial", "vmap", "ray")
NAMED = {"data.source": DATASETS, "algorithm.name": ALGORITHMS, "engine.name": ENGINES}
SHOWN_RUNS = 50


def complete_algorithms(incomplete: str) -> list[str]:
    """Names between commas: the last one is completed.

    Example:
        >>> complete_algorithms("fedavg,flex")
        ['fedavg,flexcfl']
    """
    before, comma, last = incomplete.rpartition(",")
    return [
        before + comma + name
        for name in _starting(ALGORITHMS, last)
        if name not in before.split(",")
    ]


def complete_set(incomplete: str) -> list[str]:
    """``data.source=`` and ``algorithm.name=`` with what they may be.

    Example:
        >>> complete_set("data.source=dig"), complete_set("algo")
        (['data.source=digits'], ['algorithm.name='])
    """
    key, equals, value = incomplete.partition("=")
    if not equals:
        return [f"{name}=" for name in _starting(sorted(NAMED), key)]
    return [f"{key}={name}" for name in _starting(NAMED.get(key, ()), value)]


def complete_kind(incomplete: str) -> list[str]:
    """What there is to list."""
    return _starting(KINDS, incomplete)


def complete_paper(incomplete: str) -> list[str]:
    """The papers whose tables can be reproduced."""
    return _starting(PAPERS, incomplete)


def complete_engine(incomplete: str) -> list[str]:
    """The engines."""
    return _starting(NAMED["engine.name"], incomplete)


def complete_run(incomplete: str) -> list[str]:
    """Folders of runs below the folder that was typed.

    Without one they are those of this folder and of ``runs``. Where none fits, other folders are
    completed: a run may be below them.
    """
    runs: list[str] = []
    others: list[str] = []
    for prefix in _prefixes(incomplete):
        folder = Path(prefix or ".").expanduser()
        for name, is_run in sorted(_folders(folder)):
            if is_run:
                runs.append(f"{prefix}{name}")
            else:
                others.append(f"{prefix}{name}/")
    wanted = _starting(runs, incomplete) or _starting(others, incomplete)
    return wanted[:SHOWN_RUNS]


def _prefixes(incomplete: str) -> list[str]:
    """The folders to search, as they begin the completed words."""
    typed, slash, _ = incomplete.rpartition("/")
    if slash:
        return [f"{typed}/"]
    return ["", "runs/"]


def _folders(folder: Path) -> Iterator[tuple[str, bool]]:
    """The folders in a folder, and whether each is that of a run."""
    # What cannot be read is not completed: there is nobody to tell.
    with suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and not path.name.startswith("."):
                yield path.name, (path / "config.toml").is_file()


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
