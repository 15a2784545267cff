"""What the shell completes: names, keys and run folders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from coterie.cli.declarations import REGISTRIES, keys_in_tables, options_in, registered
from coterie.listed import LISTED
from coterie.studies.reproduce import PAPERS

SHOWN_RUNS = 50


def complete_algorithms(incomplete: str) -> list[str]:
    """Names between commas: the last one is completed."""
    before, comma, last = incomplete.rpartition(",")
    return [
        before + comma + name
        for name in _starting(registered("algorithm.name"), last)
        if name not in before.split(",")
    ]


def complete_set(incomplete: str) -> list[str]:
    """Keys such as ``local.lr=``, and for choices what they may be. The options of choices are
    many: they follow once their table is typed."""
    key, equals, value = incomplete.partition("=")
    if not equals:
        table, dot, _ = key.partition(".")
        options = options_in(table) if dot else []
        keys = [*REGISTRIES, *keys_in_tables(), *options]
        return [f"{name}=" for name in _starting(keys, key)]
    if key not in REGISTRIES:
        return []
    return [f"{key}={name}" for name in _starting(registered(key), value)]


def complete_kind(incomplete: str) -> list[str]:
    """What there is to list."""
    return _starting(LISTED, incomplete)


def complete_paper(incomplete: str) -> list[str]:
    """The papers whose tables can be reproduced."""
    return _starting(PAPERS, incomplete)


def complete_engine(incomplete: str) -> list[str]:
    """The engines."""
    return _starting(registered("engine.name"), incomplete)


def complete_run(incomplete: str) -> list[str]:
    """Folders of runs below the folder that was typed, or without one, below this folder and
    ``runs``. Where none fits, other folders are completed: a run may be below them."""
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
    typed, slash, _ = incomplete.rpartition("/")
    if slash:
        return [f"{typed}/"]
    return ["", "runs/"]


def _folders(folder: Path) -> Iterator[tuple[str, bool]]:
    # What cannot be read is not completed: a shell shows no message.
    with suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir() and not path.name.startswith("."):
                yield path.name, (path / "config.toml").is_file()


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
