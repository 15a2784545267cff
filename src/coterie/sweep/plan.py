"""The plan of a sweep: every run of some algorithms, seeds and values of a grid, known by the hash
of what it is.

A run is what its configuration and its data are, less what cannot change results
(`coterie.config.identity.IRRELEVANT`). The first digits of the hash of both name its folder, so the same run
is never done twice, whatever sweep it belongs to.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from coterie.config import RunConfig, check, registry
from coterie.config.identity import config_hash
from coterie.config.problems import Problem
from coterie.config.reading import check_against, put, read
from coterie.config.wording import describe, nearest
from coterie.data import Samples
from coterie.data.lazy import Ranges, is_drawn
from coterie.data.partitions import Partition
from coterie.errors import ConfigError
from coterie.runs.run import deal, read_samples

MOST = 10_000
LENGTH = 12  # hexadecimal digits of a run's name
SEEDS = "seeds as 0-4, or 0,2,5-7"
Point = tuple[tuple[str, str | None], ...]


# --- the plan -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a sweep.

    Args:
        id: the first digits of the hash of configuration and data; the name of its folder.
        algorithm: its name.
        seed: its seed.
        point: key -> value as text, of the grid; ``None`` for a key that is none of this
            algorithm's.
        tables: the configuration, resolved.
    """

    id: str
    algorithm: str
    seed: int
    point: Point
    tables: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """What it is called in lines of a terminal."""
        values = [f"{key}={value}" for key, value in self.point if value is not None]
        return ", ".join([self.algorithm, *values, f"seed {self.seed}"])


@dataclass(frozen=True, slots=True)
class Plan:
    """What a sweep runs.

    Args:
        algorithms: names, in the order of the table.
        seeds: in order.
        keys: of the grid.
        points: every combination of their values, as text.
        cells: (algorithm, place of the point, seed) -> run; cells whose configurations are the same
            share one.
    """

    algorithms: tuple[str, ...]
    seeds: tuple[int, ...]
    keys: tuple[str, ...]
    points: tuple[tuple[str, ...], ...]
    cells: Mapping[tuple[str, int, int], Run]

    @property
    def runs(self) -> list[Run]:
        """Every run once."""
        return list({run.id: run for run in self.cells.values()}.values())


def make_plan(
    path: Path | str,
    algorithms: Sequence[str] = (),
    seeds: Sequence[int] = (),
    grid: Sequence[str] = (),
    overrides: Sequence[str] = (),
    values: Mapping[str, Any] = {},
) -> Plan:
    """Every run of a sweep, checked before any is started.

    The options of ``[algorithm]`` are those of the algorithm that it names. Others have their
    defaults, but for options that are the same: of one name, one range and one default. A key
    ``algorithm.x`` of the overrides and of the grid is for all that have an option ``x``, and
    ``NAME.x`` for the algorithm ``NAME`` alone.

    Args:
        path: the configuration.
        algorithms: names; default that of the configuration.
        seeds: default that of the configuration.
        grid: ``key=v1,v2``, each.
        overrides: ``key=value``, each.
        values: key path -> value, set last; ``None`` sets nothing.

    Raises:
        ConfigError: with all that is wrong, one line each.
        DataError: if the data cannot be read.

    Example:
        >>> import tempfile
        >>> text = '[data]\\nsource = "digits"\\n[data.partition]\\nkind = "iid"\\nclients = 4\\n'
        >>> text += '[model]\\nname = "mclr"\\n'
        >>> text += '[train]\\nrounds = 2\\nclients_per_round = 4\\n[algorithm]\\nname = "fedprox"\\nmu = 0.5\\n'
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "c.toml").write_text(text)
        ...     plan = make_plan(f"{folder}/c.toml", ["fedavg", "fedprox"], [0, 1], ["algorithm.mu=0.1,1"])
        >>> [run.name for run in plan.runs if run.seed == 0]
        ['fedavg, seed 0', 'fedprox, algorithm.mu=0.1, seed 0', 'fedprox, algorithm.mu=1, seed 0']
    """
    base = read(path)
    for override in overrides:
        if not _for_algorithms(override, algorithms):
            put(base, override)
    own = [override for override in overrides if _for_algorithms(override, algorithms)]
    named, seed = _check_base(base, str(path))
    names = tuple(algorithms) or (named,)
    _check_names(names)
    for override in own:
        _check_option("--set", override.partition("=")[0].strip(), names)
    every = tuple(seeds) or (seed,)
    keys, choices = _grid(grid, names)
    points = tuple(itertools.product(*choices))
    if len(names) * len(points) * len(every) > MOST:
        count = len(names) * len(points) * len(every)
        raise ConfigError(
            f"compare: more runs than a sweep holds, got {count}; expected at most {MOST}"
        )
    made = {
        (n, p, seed): (
            point,
            _tables(base, n, names, [*own, *_assigned(keys, values_)], {"seed": seed, **values}),
        )
        for n in names
        for p, values_ in enumerate(points)
        for point in [_point(keys, values_, n, names)]
        for seed in every
    }
    configs = _checked({cell: tables for cell, (_, tables) in made.items()}, str(path))
    data = _data_hashes(configs.values())
    cells = {}
    for cell, config in configs.items():
        resolved = config.resolved()
        both = config_hash(resolved) + data[_data_key(config)]
        known = hashlib.sha256(both.encode()).hexdigest()[:LENGTH]
        cells[cell] = Run(known, cell[0], cell[2], made[cell][0], resolved)
    return Plan(names, every, keys, points, cells)


def read_seeds(text: str) -> list[int]:
    """Seeds as a list and ranges.

    Raises:
        ConfigError: if they are neither.

    Example:
        >>> read_seeds("0-2,7")
        [0, 1, 2, 7]
    """
    found: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        ends = (first, last if dash else first)
        if not all(end.isascii() and end.isdigit() and len(end) <= 18 for end in ends):
            _refuse("--seeds", "not seeds", text, SEEDS)
        low, high = map(int, ends)
        if high < low or high - low >= MOST:
            _refuse("--seeds", "a range that holds none, or too many", part, SEEDS)
        found |= dict.fromkeys(range(low, high + 1))
    return list(found)


def _refuse(path: str, what: str, got: Any, expected: str, hint: str | None = None) -> NoReturn:
    raise ConfigError(Problem(path, what, got, expected, hint).line())


def _check_base(base: Mapping[str, Any], file: str) -> tuple[str, int]:
    """The algorithm and the seed of the configuration itself; the rest is checked run by run."""
    table = base.get("algorithm")
    seed = base.get("seed", 0)
    name = table.get("name") if isinstance(table, Mapping) else None
    if not isinstance(name, str) or not isinstance(seed, int) or not isinstance(table, Mapping):
        check(base, file)
        raise AssertionError("a configuration without algorithm or seed was not refused")
    known = _options(name)
    for key, value in table.items():
        if known is not None and key != "name" and key not in known:
            expected = f"one of {', '.join(['name', *known])}"
            _refuse(
                f"{file}: algorithm.{key}",
                "unknown key",
                value,
                expected,
                nearest(key, list(known)),
            )
    return name, seed


def _check_names(names: Sequence[str]) -> None:
    known = tuple(sorted(registry.names("algorithm")))
    for name in names:
        if ":" not in name and name not in known:
            _refuse(
                "--algorithms",
                "unknown choice",
                name,
                describe(Literal[known]),
                nearest(name, known),
            )
    if len(set(names)) < len(names):
        _refuse(
            "--algorithms",
            "one of them twice",
            ",".join(names),
            "each once; --grid compares values of an option",
        )


def _for_algorithms(assignment: str, names: Sequence[str]) -> bool:
    """Whether an assignment is for some of the algorithms, and not for all there is."""
    key = assignment.partition("=")[0].strip()
    return (key.startswith("algorithm.") and key != "algorithm.name") or _owner(
        key, names
    ) is not None


def _owner(key: str, names: Sequence[str]) -> str | None:
    """The algorithm whose name a key begins with."""
    return next((name for name in names if key.startswith(f"{name}.")), None)


def _grid(grid: Sequence[str], names: Sequence[str]) -> tuple[tuple[str, ...], list[list[str]]]:
    """Keys, and the values of each as text."""
    found: dict[str, list[str]] = {}
    for one in grid:
        key, equals, text = (part.strip() for part in one.partition("="))
        values = list(dict.fromkeys(split_values(text)))
        if not equals or not all(key.split(".")) or not all(values):
            _refuse("--grid", "not a key and its values", one, "key=v1,v2, as algorithm.groups=2,3")
        if key in found or key in ("seed", "algorithm.name"):
            _refuse(
                "--grid",
                "a key that is set elsewhere",
                key,
                "other keys; --seeds and --algorithms have their own",
            )
        _check_option("--grid", key, names)
        found[key] = values
    return tuple(found), list(found.values())


def _check_option(given: str, key: str, names: Sequence[str]) -> None:
    """Refuse an option that none of the algorithms has, which no configuration would then hold."""
    if any(_place(key, name, names) for name in names):
        return
    known = sorted({option for name in names for option in _options(name) or ()})
    expected = f"one of {', '.join(known)}" if known else "a key of another table"
    _refuse(
        given,
        "an option of none of the algorithms",
        key,
        expected,
        nearest(key.split(".")[-1], known),
    )


def split_values(text: str) -> list[str]:
    """Values between commas, but for commas in brackets or quotes.

    Example:
        >>> split_values("1, 2.5,[3, 4],'a,b'")
        ['1', '2.5', '[3, 4]', "'a,b'"]
    """
    pieces = [""]
    depth = 0
    quote = ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        else:
            depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth <= 0 and not quote:
            pieces.append("")
        else:
            pieces[-1] += letter
    return [piece.strip() for piece in pieces]


@lru_cache(maxsize=256)
def _options(name: str) -> dict[str, tuple[Any, Any]] | None:
    """The options of an algorithm; ``None`` for one of the user's own that cannot be used, which
    the check will say."""
    try:
        return registry.options("algorithm", name)
    except Exception:  # noqa: BLE001 - importing runs the user's code, which may raise anything
        return None


def _has(name: str, option: str) -> bool:
    found = _options(name)
    return found is None or option in found


def _assigned(keys: Sequence[str], values: Sequence[str]) -> list[str]:
    return [f"{key}={value}" for key, value in zip(keys, values, strict=True)]


def _point(keys: Sequence[str], values: Sequence[str], name: str, names: Sequence[str]) -> Point:
    return tuple(
        (key, value if _place(key, name, names) else None)
        for key, value in zip(keys, values, strict=True)
    )


def _place(key: str, name: str, names: Sequence[str]) -> str | None:
    """Where a key stands in the configuration of one algorithm; ``None`` if it is not for this
    one."""
    owner = _owner(key, names)
    if owner is not None:
        if owner == name:
            return f"algorithm{key[len(owner) :]}"
        return None
    first, _, rest = key.partition(".")
    if first == "algorithm" and rest and not _has(name, rest.split(".")[0]):
        return None
    return key


def _tables(
    base: Mapping[str, Any],
    name: str,
    names: Sequence[str],
    assignments: Iterable[str],
    values: Mapping[str, Any],
) -> dict[str, Any]:
    """The tables of one run."""
    tables = deepcopy(dict(base))
    tables["algorithm"] = {"name": name, **_shared(base.get("algorithm"), name)}
    for assignment in assignments:
        key, _, value = assignment.partition("=")
        place = _place(key.strip(), name, names)
        if place is not None:
            put(tables, f"{place}={value}")
    for key, value in values.items():
        head, _, last = key.rpartition(".")
        record = tables.setdefault(head, {}) if head else tables
        if value is not None and isinstance(record, dict):
            record[last] = value
    return tables


def _shared(table: Any, name: str) -> dict[str, Any]:
    """What an algorithm takes of the table of another one, or of its own."""
    if not isinstance(table, Mapping):
        return {}
    given = {key: value for key, value in table.items() if key != "name"}
    if table.get("name") == name:
        return given
    theirs, ours = (_options(str(one)) or {} for one in (table.get("name"), name))
    return {
        key: v for key, v in given.items() if key in ours and _alike(theirs.get(key), ours[key])
    }


def _alike(one: tuple[Any, Any] | None, other: tuple[Any, Any]) -> bool:
    return one is not None and (describe(one[0]), one[1]) == (describe(other[0]), other[1])


def _checked(made: Mapping[Any, Mapping[str, Any]], file: str) -> dict[Any, RunConfig]:
    """Every configuration, checked; what is wrong with some of them is said once."""
    configs = {}
    wrong = []
    for cell, tables in made.items():
        try:
            configs[cell] = check(tables, file)
        except ConfigError as error:
            wrong += [
                f"{line} ({cell[0]})" if "algorithm" in line else line
                for line in str(error).splitlines()
            ]
    if wrong:
        raise ConfigError("\n".join(dict.fromkeys(wrong)))
    return configs


# --- the data -------------------------------------------------------------------------------------


def _data_key(config: RunConfig) -> str:
    source = {
        "root": getattr(config.data, "root", None),
        **config.options("source"),
        "source": config.data.source,
    }
    dealt = config.resolved()["data"]["partition"]
    return json.dumps([source, dealt, config.seed], sort_keys=True, default=str)


def _data_hashes(configs: Iterable[RunConfig]) -> dict[str, str]:
    """Of each data table and seed, the hash of the samples and of who holds which; a source is read
    once.

    Raises:
        ConfigError: if a configuration asks for more than its data hold.
    """
    every: dict[str, list[RunConfig]] = {}
    for config in configs:
        every.setdefault(_data_key(config), []).append(config)
    found = {}
    wrong = []
    source = None
    samples = None
    read_hash = ""
    for key in sorted(every):
        config = every[key][0]
        if samples is None or json.loads(key)[0] != source:
            source = json.loads(key)[0]
            samples = read_samples(config)
            read_hash = samples_hash(samples)
        parts = deal(config, samples)
        found[key] = read_hash + parts_hash(parts)
        for one in every[key]:
            try:
                check_against(one, parts.clients)
            except ConfigError as error:
                wrong += str(error).splitlines()
    if wrong:
        raise ConfigError("\n".join(dict.fromkeys(wrong)))
    return found


def samples_hash(samples: Samples) -> str:
    """SHA-256 of inputs and labels.

    Example:
        >>> import torch
        >>> one, other = (Samples(torch.full((2, 3), v), torch.tensor([0, 1]), 2, 2) for v in (0.0, 1.0))
        >>> samples_hash(one) == samples_hash(other)
        False
    """
    if is_drawn(
        samples.x
    ):  # what is drawn follows from the options of the source, which a run is known by
        assert samples.offsets is not None
        return _hash([np.array([samples.classes, samples.train_rows]), samples.offsets])
    arrays = (samples.x.contiguous().numpy(), samples.y.contiguous().numpy())
    return _hash([np.array([samples.classes, samples.train_rows]), *arrays])


def parts_hash(parts: Partition) -> str:
    """SHA-256 of who holds which samples.

    Example:
        >>> a, b = np.array([0, 1]), np.array([2])
        >>> parts_hash(Partition((a,), (b,))) == parts_hash(Partition((b,), (a,)))
        False
    """
    words = json.dumps([parts.transform, list(parts.names)]).encode()
    held = [rows for split in (parts.train, parts.test) for rows in _held(split)]
    optional = [np.empty(0) if one is None else one for one in (parts.planted, parts.relabel)]
    return _hash([np.frombuffer(words, np.uint8), *held, *optional])


def _held(split: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arrays that say who holds what."""
    if isinstance(split, Ranges):
        return [split.start, split.size]
    return [np.asarray(rows, np.int64) for rows in split]


def _hash(arrays: Iterable[np.ndarray]) -> str:
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return total.hexdigest()
