"""What the shell completes: names and run folders. Nothing here waits for torch."""

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
)  # the registries themselves wait for torch
ENGINES = ("pool", "serial", "vmap", "ray")
NAMED = {"data.source": DATASETS, "algorithm.name": ALGORITHMS, "engine.name": ENGINES}
SHOWN = 50  # run folders


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
    """Folders of runs below what was typed, or below ``runs``; and folders on the way there."""
    found: list[str] = []
    typed = incomplete.rpartition("/")[0]
    for folder in dict.fromkeys(
        (typed or ("/" if incomplete.startswith("/") else "."), typed or "runs")
    ):
        prefix = "" if folder == "." else folder.rstrip("/") + "/"
        for name, run in sorted(_folders(Path(folder).expanduser())):
            found.append(f"{prefix}{name}" if run else f"{prefix}{name}/")
    wanted = _starting(found, incomplete)
    runs = [name for name in wanted if not name.endswith("/")]
    return (runs or wanted)[:SHOWN]


def _folders(folder: Path) -> Iterator[tuple[str, bool]]:
    """The folders in a folder, and whether each is that of a run."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and not path.name.startswith("."):
                yield path.name, (path / "config.toml").is_file()


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
