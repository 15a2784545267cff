"""A run's configuration: TOML in, checked records, TOML out.

Every table is a pydantic model. Those that name a choice (``[data]``, ``[data.partition]``,
``[model]``, ``[algorithm]``, and where there are any ``[server]``, ``[objective]``, ``[shift]``)
are read from the signature of the registered factory, the single source of truth for its options.
All errors are reported at once, one line each.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import tomli_w
from pydantic import BaseModel, Field, PrivateAttr, ValidationError, create_model

from coterie.config import schema
from coterie.config.custom import find, look_in
from coterie.config.schema import LARGEST, Problem, Table
from coterie.errors import ConfigError

Count = Annotated[int, Field(ge=1)]
GIVEN = {
    "partition": (
        "labels",
        "y",
        "x",
        "key",
        "classes",
        "train_rows",
        "columns",
        "offsets",
        "label_names",
        "samples",
    ),
    "source": ("root", "partition", "key"),
    "model": ("shape", "classes", "key"),
    "algorithm": (),
    "shift": (),
    "server": (),
    "objective": (),
}  # what the library fills in itself
SELECTOR = {
    **{
        "source": "source",
        "partition": "kind",
        "model": "name",
        "algorithm": "name",
        "shift": "kind",
    },
    **{"server": "name", "objective": "name"},
}
PLACE: Mapping[str, tuple[str, ...]] = {
    "source": ("data",),
    "partition": ("data", "partition"),
    "model": ("model",),
    "algorithm": ("algorithm",),
    "server": ("server",),
    "objective": ("objective",),
}
OPTIONAL = ("server", "objective")
OWN = ("model", "algorithm", *OPTIONAL)  # what may be the user's own, ``module:factory``
REACHED = (
    "name",
    "workers",
    "device",
    "precision",
    "graphs",
    "memory",
    "address",
    "each",
    "samples",
)
FREE = (
    *(("engine", option) for option in REACHED),
    ("checkpoint",),
    ("data", "root"),
    ("folder",),
    ("log",),
)  # cannot change results, so not in the hash
ROUNDED = (
    ("engine", "name"),
    ("engine", "each"),
    ("engine", "precision"),
)  # can, in the last digits, with vmap


# --- the fixed tables -----------------------------------------------------------------------------


def _local(
    epochs: Count = 10,
    batch_size: Count = 10,
    lr: Annotated[float, Field(gt=0)] = 0.03,
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0,
    l2: Annotated[float, Field(ge=0)] = 0.0,
) -> None:
    """Local SGD; the fields of `coterie.core.solver.Solver`."""


def _train(
    rounds: Count,
    clients_per_round: Count,
    sampler: Literal["cover_then_uniform", "uniform"] = "cover_then_uniform",
    evaluate_every: Count = 1,
    evaluate_clients: Count | None = None,
    measures: tuple[Literal["balance", "cpd", "theory"], ...] = (),
) -> None:
    """Rounds, and who takes part in them."""


def _engine(
    name: Literal["pool", "serial", "vmap", "ray"] = "pool",
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None,
    round_timeout: Annotated[float, Field(gt=0)] | None = None,
    device: str = "auto",
    precision: Literal["float32", "tf32", "bfloat16"] = "float32",
    graphs: bool = False,
    memory: Annotated[float, Field(gt=0)] | None = None,
    address: str | None = None,
    each: Literal["serial", "vmap"] = "serial",
    samples: Literal["shard", "path"] = "shard",
) -> None:
    """How clients are reached; see ``docs/engines.md``. From ``device`` on: of vmap, from
    ``address`` on: of ray."""


def _quorum(
    min_replies: Count = 1,
    max_skipped_rounds: Annotated[int, Field(ge=0)] = 10,
    max_wait: Annotated[float, Field(gt=0)] | None = None,
) -> None:
    """When a round counts; ``max_wait`` is the time in seconds that skipped rounds in a row may
    take."""


def _checkpoint(seconds: Annotated[float, Field(ge=0)] = 10.0, keep: Count = 2) -> None:
    """How often the state is saved, and how many are kept."""


def _log(
    to: tuple[Literal["mlflow", "tensorboard"], ...] = (),
    uri: str | None = None,
    experiment: str = "coterie",
) -> None:
    """Whom else rounds are told to; ``uri`` and ``experiment`` are those of MLflow."""


FIXED: Mapping[str, Callable[..., None]] = {
    "local": _local,
    "train": _train,
    "engine": _engine,
    "quorum": _quorum,
    "checkpoint": _checkpoint,
    "log": _log,
}


@lru_cache
def _fixed(name: str) -> type[Table]:
    fields: dict[str, Any] = {
        n: (schema.strict(k), d) for n, (k, d) in schema.options(FIXED[name]).items()
    }
    return create_model(name.capitalize(), __base__=Table, **fields)


class RunConfig(Table):
    """A checked configuration. Tables are records: ``config.train.rounds``,
    ``config.algorithm.name``.

    Args:
        seed: of every random draw.
        data: the source and its options, and the table ``partition``.
        model: a registered network, or ``module:factory``.
        local: local SGD.
        train: rounds and sampling.
        algorithm: a registered algorithm, or ``module:factory``, and its options.
        engine: how clients are reached.
        quorum: when a round counts.
        checkpoint: how often the state is saved.
        log: whom else rounds are told to.
        shift: what moves as the rounds go by: a table, a list of tables, or nothing.
        server: a server optimiser in place of the algorithm's own, or nothing.
        objective: what clients minimise in place of the algorithm's own, or nothing.
        folder: where ``module:factory`` is found; filled in with the folder that the run was
            started in.
    """

    seed: Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)] = 0
    data: Any
    model: Any
    local: Any
    train: Any
    algorithm: Any
    engine: Any
    quorum: Any
    checkpoint: Any
    log: Any
    shift: Any
    server: Any
    objective: Any
    folder: str | None = None
    _file: str = PrivateAttr(default="configuration")

    @property
    def file(self) -> str:
        """Where it was read from, for error lines."""
        return self._file

    def options(
        self, table: Literal["source", "partition", "model", "algorithm", "server", "objective"]
    ) -> dict[str, Any]:
        """The options of a choice, by the names of its factory's parameters, without the choice
        itself.

        ``options("source")`` leaves out ``root``, which is a place on this machine.
        """
        record = self
        for part in PLACE[table]:
            record = getattr(record, part)
        out = {SELECTOR[table], "partition", "root"} if table == "source" else {SELECTOR[table]}
        return {
            name: getattr(record, name) for name in type(record).model_fields if name not in out
        }

    def shifts(self) -> list[dict[str, Any]]:
        """The tables of ``[shift]`` or ``[[shift]]``, each with its ``kind``, for
        `coterie.data.shifts`.

        Example:
            >>> tables = {"data": {"source": "digits", "partition": {"kind": "iid"}}, "model": {"name": "mclr"},
            ...           "train": {"rounds": 3, "clients_per_round": 4}, "algorithm": {"name": "fedavg"}}
            >>> check(tables).shifts(), check(tables | {"shift": {"kind": "swap_all"}}).shifts()[0]["p"]
            ([], 0.05)
        """
        tables = (
            ()
            if self.shift is None
            else self.shift
            if isinstance(self.shift, tuple)
            else (self.shift,)
        )
        return [
            {name: getattr(table, name) for name in type(table).model_fields} for table in tables
        ]

    def resolved(self) -> dict[str, Any]:
        """The configuration with every default filled in, as TOML can hold it (what is ``None`` is
        left out)."""
        return _without_none(self.model_dump(mode="json"))

    def toml(self) -> str:
        """The resolved configuration as TOML."""
        return tomli_w.dumps(self.resolved())


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_none(v) for v in value if v is not None]
    return value


# --- the registries -------------------------------------------------------------------------------


def registry(kind: str) -> Mapping[str, Any]:
    """The registered choices of a kind, one of `SELECTOR`; imports them."""
    modules = {
        "source": ("coterie.data.sources", "SOURCES"),
        "partition": ("coterie.data.partitions", "PARTITIONS"),
        "model": ("coterie.models", "MODELS"),
        "algorithm": ("coterie.algorithms", "ALGORITHMS"),
        "shift": ("coterie.data.shifts", "SHIFTS"),
        "server": ("coterie.rules.server", "SERVERS"),
        "objective": ("coterie.objectives", "OBJECTIVES"),
    }
    module, name = modules[kind]
    return getattr(importlib.import_module(module), name)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a table chose: the factory, ``None`` where it chose nothing that is known."""

    factory: Callable[..., Any] | None = None
    own: bool = False
    problem: Problem | None = field(default=None, compare=False)


def _choose(kind: str, tables: Mapping[str, Any]) -> Choice | None:
    """What a table chose; ``None`` where there is none and none is needed."""
    if kind in OPTIONAL and tables.get(kind) is None:
        return None
    record: Any = tables
    for part in PLACE[kind]:
        record = record.get(part) if isinstance(record, Mapping) else None
    return _chosen(kind, record, PLACE[kind])


def _choose_shifts(tables: Mapping[str, Any]) -> Choice | tuple[Choice, ...] | None:
    """What ``[shift]`` chose, or each table of ``[[shift]]``; ``None`` where there is neither."""
    given = tables.get("shift")
    if isinstance(given, list):
        return tuple(_chosen("shift", table, ("shift", at)) for at, table in enumerate(given))
    if given is None:
        return None
    return _chosen("shift", given, ("shift",))


def _chosen(kind: str, record: Any, place: Sequence[Any]) -> Choice:
    name = record.get(SELECTOR[kind]) if isinstance(record, Mapping) else None
    if not isinstance(name, str):
        return Choice()
    if name in registry(kind):
        return Choice(registry(kind)[name])
    if kind in OWN and ":" in name:
        return _own(kind, name, place)
    return Choice()


def _own(kind: str, name: str, place: Sequence[Any]) -> Choice:
    """The user's own factory; a model's takes only what the data say, the others have options."""
    try:
        own = find(name)
        schema.options(own)
    except Exception as error:  # noqa: BLE001 - importing runs the user's code, which may raise anything
        what = f"cannot be used ({type(error).__name__}: {schema.shown(str(error))})"
        path = schema.spelled([*place, SELECTOR[kind]])
        return Choice(
            problem=Problem(
                path, what, name, "'module:factory', importable from here or from 'folder'"
            )
        )
    return Choice(_no_options if kind == "model" else own, own=True)


def _no_options() -> None:
    """What a model of the user's own has in the way of options."""


@lru_cache(maxsize=256)
def _table(kind: str, choice: Choice) -> type[Table]:
    """The pydantic model of the table of one choice."""
    own = choice.own or choice.problem is not None
    names = tuple(sorted(registry(kind)))
    return schema.table(kind.capitalize(), SELECTOR[kind], names, choice.factory, GIVEN[kind], own)


@lru_cache(maxsize=256)
def _data(source: Choice, partition: Choice) -> type[Table]:
    """The pydantic model of ``[data]``; ``root`` is the folder of the datasets."""
    fields: dict[str, Any] = {
        "partition": (_table("partition", partition), ...),
        "root": (str | None, None),
    }
    return create_model("Data", __base__=_table("source", source), **fields)


def _shift(chosen: Choice | tuple[Choice, ...] | None) -> Any:
    """The type of ``[shift]``: a table, a tuple of them, or nothing."""
    if isinstance(chosen, tuple):
        return tuple.__class_getitem__(tuple(_table("shift", one) for one in chosen))
    if chosen is None:
        return None
    return _table("shift", chosen)


@lru_cache(maxsize=1024)
def _model(
    source: Choice,
    partition: Choice,
    model: Choice,
    algorithm: Choice,
    server: Choice | None,
    objective: Choice | None,
    shift: Choice | tuple[Choice, ...] | None,
) -> type[RunConfig]:
    """The pydantic model of a configuration with these choices."""
    fields: dict[str, Any] = {
        "data": (_data(source, partition), ...),
        "model": (_table("model", model), ...),
        "algorithm": (_table("algorithm", algorithm), ...),
        "train": (_fixed("train"), ...),
        **{
            name: (_fixed(name), _fixed(name)())
            for name in ("local", "engine", "quorum", "checkpoint", "log")
        },
        "shift": (_shift(shift), None),
        "server": (None if server is None else _table("server", server), None),
        "objective": (None if objective is None else _table("objective", objective), None),
    }
    return create_model("RunConfig", __base__=RunConfig, **fields)


# --- reading --------------------------------------------------------------------------------------


def load(
    path: Path | str, overrides: Sequence[str] = (), values: Mapping[str, Any] = {}
) -> RunConfig:
    """Read and check a configuration.

    Args:
        path: a TOML file.
        overrides: ``key.path=value``, each value as TOML writes it, or plain text.
        values: key path -> value, set after the overrides; ``None`` sets nothing.

    Raises:
        ConfigError: with all that is wrong, one line each.
    """
    tables = read(path)
    for override in overrides:
        put(tables, override)
    for key, value in values.items():
        if value is not None:
            _set(tables, key.split("."), value)
    return check(tables, _name(path))


def _name(path: Path | str) -> str:
    if str(path).isprintable():
        return str(path)
    return repr(str(path))


def read(path: Path | str) -> dict[str, Any]:
    """The tables of a TOML file, unchecked.

    Raises:
        ConfigError: if it is not there, or is no TOML.
    """
    name = _name(path)
    try:
        return tomllib.loads(Path(path).read_bytes().decode("utf-8"))
    except UnicodeDecodeError as error:
        _refuse(
            f"{name}: not UTF-8 at byte {error.start}, got {error.object[error.start]:#x}; expected a TOML file"
        )
    except (OSError, ValueError) as error:  # TOMLDecodeError is a ValueError; so is a NUL in a path
        reason = error.strerror if isinstance(error, OSError) else str(error)
        what = "cannot be read" if isinstance(error, OSError) else "not TOML"
        _refuse(f"{name}: {what}, got {schema.shown(reason)}; expected a TOML file")
    except RecursionError:
        _refuse(
            f"{name}: nested too deeply, got more than Python's stack holds; expected a TOML file"
        )


def put(tables: dict[str, Any], override: str) -> None:
    """Set one value, ``key.path=value``, in place.

    Raises:
        ConfigError: if it is not of that form.

    Example:
        >>> tables = {"algorithm": {"name": "fedgroup"}}
        >>> put(tables, "algorithm.groups=3"); put(tables, "algorithm.measure=madc"); tables["algorithm"]
        {'name': 'fedgroup', 'groups': 3, 'measure': 'madc'}
    """
    path, equals, text = override.partition("=")
    parts = [part.strip() for part in path.split(".")]
    if not equals or not all(parts):
        _refuse(
            f"--set: not an assignment, got {schema.shown(override)}; expected key=value, as algorithm.groups=3"
        )
    _set(tables, parts, _value(text.strip()))


def _set(tables: dict[str, Any], parts: Sequence[str], value: Any) -> None:
    for at, part in enumerate(parts[:-1], 1):
        tables = tables.setdefault(part, {})
        if not isinstance(tables, dict):
            where = schema.spelled(parts[:at])
            got = schema.shown(tables)
            _refuse(
                f"--set: {where}: no table, got {got}; expected a table for {schema.spelled(parts)}"
            )
    tables[parts[-1]] = value


def _value(text: str) -> Any:
    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    if len(read) == 1:
        return read["value"]
    return text


def check(tables: Mapping[str, Any], file: str = "configuration") -> RunConfig:
    """Check tables that were read from ``file``, or made in Python.

    Raises:
        ConfigError: with all that is wrong, one line each.
    """
    try:
        found, config = _check(_anchored(tables))
    except RecursionError:
        _refuse(
            f"{file}: configuration: nested too deeply, got {len(tables)} tables; expected tables of values"
        )
    if config is None or found:
        _refuse(*(f"{file}: {problem.line()}" for problem in found))
    config._file = file
    _check_shifts(config)
    return config


def _anchored(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same tables with places spelled from the root, so that a run can be resumed from any
    folder."""
    data = tables.get("data")
    out = dict(tables)
    if isinstance(data, Mapping):
        here = {
            key: os.path.expanduser(data[key])
            for key in ("path", "root")
            if isinstance(data.get(key), str)
        }
        known = {
            key: os.path.abspath(p) for key, p in here.items() if key == "root" or os.path.exists(p)
        }
        out["data"] = {**data, **known}
    if any(isinstance(name, str) and ":" in name for name in (_at(tables, kind) for kind in OWN)):
        out.setdefault("folder", os.getcwd())
    if isinstance(out.get("folder"), str):
        look_in(out["folder"])
    return out


def _at(tables: Mapping[str, Any], kind: str) -> Any:
    """The name that a table chose, if it is one."""
    record = tables.get(kind)
    if isinstance(record, Mapping):
        return record.get(SELECTOR[kind])
    return None


def _check_shifts(config: RunConfig) -> None:
    """Make the shifts once: their factories know which parameters go together."""
    if config.shift is None:
        return
    # The package of shifts is above this one, so it is reached as the registries are: by name.
    shifts = importlib.import_module("coterie.data.shifts")
    try:
        shifts.make_shift(config.shifts())
    except ConfigError as error:
        _refuse(f"{config.file}: {error}")


def _check(tables: Mapping[str, Any]) -> tuple[list[Problem], RunConfig | None]:
    chosen = [_choose(kind, tables) for kind in PLACE]
    found = [choice.problem for choice in chosen if choice is not None and choice.problem]
    model = _model(*chosen, _choose_shifts(tables))
    config = None
    try:
        config = model.model_validate(tables)
    except ValidationError as error:
        found += [
            p
            for p in schema.problems(error, tables, model)
            if p.path not in {f.path for f in found}
        ]
    wrong = {problem.path for problem in found}
    return found + [p for p in _cross(tables, model) if p.path not in wrong], config


def _refuse(*lines: str) -> NoReturn:
    raise ConfigError("\n".join(lines))


# --- checks across tables -------------------------------------------------------------------------


def check_against(config: RunConfig, clients: int) -> None:
    """Check what depends on the number of clients, once the data are there.

    Raises:
        ConfigError: if more groups, cold-start clients or clients per round are asked for than
            there are clients.
    """
    found = _cross(config.resolved(), type(config), clients)
    if found:
        _refuse(*(f"{config.file}: {problem.line()}" for problem in found))


def _cross(
    tables: Mapping[str, Any], model: type[BaseModel], clients: int | None = None
) -> list[Problem]:
    def value(*path: str) -> Any:
        record: Any = tables
        for part in path:
            record = record.get(part) if isinstance(record, Mapping) else None
        record = schema.default_at(model, path) if record is None else record
        number = isinstance(record, int | float) and not isinstance(record, bool)
        if number and 0 < record <= LARGEST:
            return record
        return None

    where = "" if clients is not None else " (data.partition.clients)"
    count = value("data", "partition", "clients") if clients is None else clients
    return (
        _quorum_met(value)
        + _engine_met(tables)
        + ([] if count is None else _crossed(count, where, value))
    )


def _quorum_met(value: Callable[..., Any]) -> list[Problem]:
    cohort = value("train", "clients_per_round")
    least = value("quorum", "min_replies")
    if not cohort or not least or least <= cohort:
        return []
    expected = f"at most {cohort} (train.clients_per_round)"
    return [Problem("quorum.min_replies", "more replies than clients are asked", least, expected)]


def _engine_met(tables: Mapping[str, Any]) -> list[Problem]:
    """Options of another engine than the one chosen."""
    given = tables.get("engine")
    if not isinstance(given, Mapping) or given.get("name", "pool") not in (
        "pool",
        "serial",
        "vmap",
        "ray",
    ):
        return []
    found = []
    defaults = schema.options(_engine)
    of_vmap = ("device", "precision", "graphs", "memory")
    of_ray = ("address", "each", "samples")
    for option in (*of_vmap, *of_ray):
        value = given.get(option, defaults[option][1])
        default = defaults[option][1]
        fits = given.get("name") == "ray" if option in of_ray else _batched(given)
        if value != default and not fits:
            who = (
                "engine.name 'ray'"
                if option in of_ray
                else "engine.name 'vmap', or 'ray' with engine.each 'vmap'"
            )
            found.append(Problem(f"engine.{option}", "of another engine", value, who))
    return found


def _crossed(clients: int, where: str, value: Callable[..., Any]) -> list[Problem]:
    groups = value("algorithm", "groups")
    alpha = value("algorithm", "alpha")
    cohort = value("train", "clients_per_round")
    found = []
    if cohort and cohort > clients:
        expected = f"at most {clients}{where}"
        found.append(
            Problem("train.clients_per_round", "more than there are clients", cohort, expected)
        )
    if groups and groups > clients:
        found.append(
            Problem(
                "algorithm.groups", "more groups than clients", groups, f"at most {clients}{where}"
            )
        )
    elif groups and alpha and alpha * groups > clients:
        what = f"a cold start of alpha * groups = {alpha * groups:g} clients"
        most = f"at most {clients // groups}: {clients} clients{where}"
        found.append(Problem("algorithm.alpha", what, alpha, most))
    return found


# --- identity -------------------------------------------------------------------------------------


def relevant(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved configuration as flat key paths, without what cannot change results (engine,
    checkpoints, data root).

    With ``vmap`` the engine can, in the last digits: then it counts.

    Example:
        >>> relevant({"seed": 1, "engine": {"workers": 2}, "data": {"source": "digits", "root": "data"}})
        {'seed': 1, 'data.source': 'digits'}
    """
    engine = resolved.get("engine")
    rounded = isinstance(engine, Mapping) and _batched(engine)
    free = [f for f in FREE if not (rounded and f in ROUNDED)]
    return {
        schema.spelled(p): v
        for p, v in _leaves(resolved, ())
        if not any(p[: len(f)] == f for f in free)
    }


def _batched(engine: Mapping[str, Any]) -> bool:
    """Whether clients are trained together: then results equal those of the other engines but for
    rounding."""
    return engine.get("name") == "vmap" or (
        engine.get("name") == "ray" and engine.get("each") == "vmap"
    )


def _leaves(value: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping) and (value or not path):
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, (*path, key))]
    return [(path, value)]


def config_hash(resolved: Mapping[str, Any]) -> str:
    """SHA-256 of a resolved configuration in canonical JSON; the order of keys does not matter.

    Example:
        >>> config_hash({"seed": 1, "a": 2}) == config_hash({"a": 2, "seed": 1, "engine": {"workers": 2}})
        True
    """
    text = json.dumps(
        relevant(resolved),
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=True,
        allow_nan=False,
    )
    return hashlib.sha256(text.encode()).hexdigest()


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The key paths in which two resolved configurations differ, of those that matter.

    Example:
        >>> differing({"seed": 1, "train": {"rounds": 3}}, {"seed": 1, "train": {"rounds": 4}})
        ['train.rounds']
    """
    a = relevant(one)
    b = relevant(other)
    return sorted(key for key in a.keys() | b.keys() if a.get(key) != b.get(key))
