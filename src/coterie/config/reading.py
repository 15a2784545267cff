"""Reading a configuration: a TOML file, overrides of single keys, and the check of all of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coterie.config import custom, registry
from coterie.config.choices import run_model
from coterie.config.crosscheck import cross_check
from coterie.config.defaults import fit_defaults
from coterie.config.kinds import KINDS
from coterie.config.privacy_checks import fit_to_privacy
from coterie.config.problems import problems
from coterie.config.tables import RunConfig
from coterie.config.toml_text import MOST_CHARACTERS, parse_toml
from coterie.config.wording import shown, spelled
from coterie.errors import ConfigError


def load_config(
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


def read(path: Path | str) -> dict[str, Any]:
    """The tables of a TOML file, unchecked.

    Raises:
        ConfigError: if it is not there, or is no TOML.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(4 * MOST_CHARACTERS + 1)
        return parse_toml(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        what = f"not UTF-8 at byte {error.start}, got {error.object[error.start]:#x}"
    except OSError as error:
        what = f"cannot be read, got {shown(error.strerror)}"
    except ValueError as error:  # TOMLDecodeError is one; so is a NUL in a path
        what = f"not TOML, got {shown(str(error))}"
    except RecursionError:
        # A file of a few kilobytes of brackets does this, so it is an error of the file, not a bug.
        what = "nested too deeply, got more than Python's stack holds"
    raise ConfigError(f"{_name(path)}: {what}; expected a TOML file")


def _name(path: Path | str) -> str:
    """A file's name as it can stand in a line."""
    if str(path).isprintable():
        return str(path)
    return repr(str(path))


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
        what = f"not an assignment, got {shown(override)}"
        raise ConfigError(f"--set: {what}; expected key=value, as algorithm.groups=3")
    _set(tables, parts, _value(text.strip()))


def _set(tables: dict[str, Any], parts: Sequence[str], value: Any) -> None:
    for at, part in enumerate(parts[:-1], 1):
        tables = tables.setdefault(part, {})
        if not isinstance(tables, dict):
            what = f"{spelled(parts[:at])}: no table, got {shown(tables)}"
            raise ConfigError(f"--set: {what}; expected a table for {spelled(parts)}")
    tables[parts[-1]] = value


def _value(text: str) -> Any:
    """A value as TOML writes it, or plain text."""
    try:
        # TOML itself says what is a number, a list or a bool, so an option of the command
        # line means what the same words mean in the file. `--set algorithm.measure=madc`
        # needs no quotes.
        tables = parse_toml(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    if len(tables) > 1:  # text with a line break, which would set further keys
        return text
    return tables["value"]


def check(tables: Mapping[str, Any], file: str = "configuration") -> RunConfig:
    """Check tables that were read from ``file``, or made in Python.

    Raises:
        ConfigError: with all that is wrong, one line each.
    """
    try:
        # Paths first: a factory of the user's own is looked for in the folder that they name.
        config, lines = _check(_anchored(tables))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    except RecursionError:
        what = f"nested too deeply, got {len(tables)} tables"
        line = f"{file}: configuration: {what}; expected tables of values"
        raise ConfigError(line) from None
    if config is None or lines:
        raise ConfigError("\n".join(f"{file}: {line}" for line in lines))
    config._file = file
    _check_shifts(config)
    config = fit_to_privacy(config)
    clients = config.data.partition.options.get("clients")
    if isinstance(clients, int):
        return fit_defaults(config, clients)
    return config


def _check(tables: Mapping[str, Any]) -> tuple[RunConfig | None, list[str]]:
    """The configuration, if its tables can be read as one, and all that is wrong."""
    model, lines = run_model(tables)
    refused = {line.split(":")[0] for line in lines}  # the key paths of those lines
    config = None
    found = []
    try:
        config = model.model_validate(tables)
    except ValidationError as error:
        found = problems(error, tables, model)
    # On the unvalidated tables, so that these problems are listed beside those of single keys.
    found += cross_check(tables, model)
    for problem in found:
        # One line for each key: what follows from a factory that is not there is no news.
        if problem.path not in refused:
            refused.add(problem.path)
            lines.append(problem.line())
    return config, lines


def fit_to_clients(config: RunConfig, clients: int) -> RunConfig:
    """The configuration for so many clients, once the data are there: defaults that they do not
    allow are lowered.

    Raises:
        ConfigError: if more groups, cold-start clients or clients per round are asked for than
            there are clients.
    """
    config = fit_defaults(config, clients)
    found = cross_check(config.resolved(), type(config), clients)
    if found:
        raise ConfigError("\n".join(f"{config.file}: {problem.line()}" for problem in found))
    return config


def _anchored(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same tables with paths spelled from the root, so that a run can be resumed from any
    folder."""
    out = dict(tables)
    data = tables.get("data")
    if isinstance(data, Mapping):
        out["data"] = {**data, **_absolute_paths(data)}
    if any(_names_custom(tables, kind) for kind, where in KINDS.items() if where.custom):
        out.setdefault("folder", os.getcwd())
        # Only then: a folder that is searched can also stand in for a package that is not there.
        if isinstance(out["folder"], str):
            custom.search_in(out["folder"])
    return out


def _absolute_paths(data: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for key in ("path", "root"):
        if isinstance(data.get(key), str):
            path = os.path.expanduser(data[key])
            # A path that is not there may be relative to the folder of the datasets.
            if key == "root" or os.path.exists(path):
                found[key] = os.path.abspath(path)
    return found


def _names_custom(tables: Mapping[str, Any], kind: str) -> bool:
    """Whether a table names ``module:factory``."""
    table: Any = tables
    for part in KINDS[kind].place:
        table = table.get(part) if isinstance(table, Mapping) else None
    name = table.get(KINDS[kind].selector) if isinstance(table, Mapping) else None
    return isinstance(name, str) and ":" in name


def _check_shifts(config: RunConfig) -> None:
    """Make the shifts once: their factories know which parameters go together."""
    if config.shift is None:
        return
    try:
        # What is made is thrown away: data are not there yet, and the run makes its own.
        for table in config.shifts():
            registry.build("shift", table)
    except ConfigError as error:
        raise ConfigError(f"{config.file}: {error}") from None
