"""TOML files and single assignments, with limits: how long a text is, and how deep it is nested.

Python's parser keeps every beginning of a dotted key, so a key of 20,000 parts in a file of 40 kB
took 1.5 GB and 23 seconds. The limits are checked on the text, before anything is parsed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.config.wording import spelled
from coterie.errors import ConfigError, shown

MOST_CHARACTERS = 1_000_000  # a configuration with all defaults has about 2,000
MOST_DEPTH = 32  # parts of a key, and brackets around them
# Texts and comments are skipped: what is in them is no key and no bracket. A text of several lines may
# have up to two quotes of its own before the three that close it. A pattern that stops at the first
# three takes what follows for a text, and does not see a deep key in it.
TOKENS = re.compile(
    r'"""(?:\\.|[^\\])*?""""{0,2}'
    r"|'''.*?''''{0,2}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|(?P<open>[\[{])|(?P<close>[\]}])|(?P<end>[,=\n])|(?P<dot>\.)",
    re.DOTALL,
)


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text; a ValueError if it is invalid, too long, or nested too deeply."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"longer than {MOST_CHARACTERS:,} characters")
    _check_depth(text)
    return tomllib.loads(text)


def _check_depth(text: str) -> None:
    brackets = 0
    dots = 0
    for token in TOKENS.finditer(text):
        kind = token.lastgroup
        if kind == "dot":
            dots += 1
        elif kind is not None:
            # A key ends there, and the next one begins.
            dots = 0
        if kind == "open":
            brackets += 1
        elif kind == "close":
            brackets -= 1
        if brackets + dots > MOST_DEPTH:
            raise ValueError(f"keys or brackets nested more than {MOST_DEPTH} deep")


def read(path: Path | str) -> dict[str, Any]:
    """The tables of a TOML file, unchecked; a ConfigError if it is missing or invalid."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(4 * MOST_CHARACTERS + 1)
        # Notepad writes a byte order mark.
        return parse_toml(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        what = f"not UTF-8 at byte {error.start}"
        got = f"{error.object[error.start]:#x}"
    except FileNotFoundError:
        name = printable_name(path)
        raise ConfigError("not-found", name, "there is no such file", do="check the path") from None
    except OSError as error:
        what = "cannot be read"
        got = shown(error.strerror)
    except ValueError as error:  # TOMLDecodeError is one; so is a NUL in a path
        what = "not valid TOML"
        got = shown(str(error))
    except RecursionError:
        # A file of a few kilobytes of brackets does this, so it is an error of the file, not a bug.
        what = "nested too deeply"
        got = "more levels than Python can parse"
    expected = "a TOML file"
    raise ConfigError("cannot-be-read", printable_name(path), what, found=got, allowed=expected)


def printable_name(path: Path | str) -> str:
    """A file's name as it can stand in a line."""
    if str(path).isprintable():
        return str(path)
    return repr(str(path))


def put_all(tables: dict[str, Any], overrides: Sequence[str], values: Mapping[str, Any]) -> None:
    """Set ``key.path=value`` lines, and after them values by their key paths, in place; ``None`` sets
    nothing."""
    for override in overrides:
        put(tables, override)
    for key, value in values.items():
        if value is not None:
            put_at(tables, key.split("."), value)


def put(tables: dict[str, Any], override: str) -> None:
    """Set one value, ``key.path=value``, in place."""
    path, equals, text = override.partition("=")
    parts = [part.strip() for part in path.split(".")]
    if not equals or not all(parts):
        what = "not an assignment"
        expected = "key=value, such as algorithm.groups=3"
        raise ConfigError("wrong-type", "--set", what, got=override, allowed=expected)
    put_at(tables, parts, _value(text.strip()))


def value_at(tables: Any, path: Sequence[str]) -> Any:
    """The value at a key path of tables that are not validated; ``None`` where there is none."""
    for part in path:
        tables = tables.get(part) if isinstance(tables, Mapping) else None
    return tables


def put_at(tables: dict[str, Any], parts: Sequence[str], value: Any) -> None:
    """Set the value at a key path, in place."""
    for at, part in enumerate(parts[:-1], 1):
        tables = tables.setdefault(part, {})
        if not isinstance(tables, dict):
            what = f"{spelled(parts[:at])}: not a table"
            expected = f"a table for {spelled(parts)}"
            raise ConfigError("wrong-type", "--set", what, got=tables, allowed=expected)
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
