"""Files: written whole after a kill at any moment, with values as JSON, CSV and Markdown hold them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from coterie.errors import CheckpointError, ConfigError

# What values of the wrong kind or size raise where they are first used.
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, csv.Error)
POPULATION = "population.npz"  # in the folder of a run, the data of a run from Python

UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # the byte order marks

# A spreadsheet takes a cell that begins with one of the first for a formula. The last marks a cell
# that was changed, so that no two texts are written alike.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'")


# JSON of others is no larger than this, in bytes, and has no more lists in lists.
LARGEST_JSON = 2**28
DEEPEST_JSON = 50


# --- writing ----------------------------------------------------------------------------------------


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, and wait until it is on the disk."""
    # Made with these rights: to change them afterwards would leave a moment in which any user of
    # the machine can open the file.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        # The rights above are those of a new file; an existing file would keep its own.
        if os.name == "posix":
            os.fchmod(descriptor, 0o600)
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that it is the old one or the new one, whole, at any moment."""
    # Beside its place, since a rename is atomic within one file system only.
    hidden = path.with_name(f".{path.name}.tmp")
    try:
        # Synced before it has its name. Otherwise a power cut may leave an empty file of the right
        # name; of 20 runs killed while they wrote in place, 16 left a file that cannot be read.
        write_synced(hidden, data)
    except OSError:
        # A full disk: what was written of it is room for something else.
        hidden.unlink(missing_ok=True)
        raise
    hidden.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk; a rename is not durable before that."""
    # Windows opens no folder as a file.
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Wait until a file that was appended to is on the disk."""
    if path.exists():
        with path.open("ab") as file:
            os.fsync(file.fileno())


@contextmanager
def refuse_unwritable(folder: Path) -> Iterator[None]:
    """Refuse a run folder that cannot be written in one line: a full disk, or a read-only one."""
    try:
        yield
    except TimeoutError:
        # Of a lock that another process holds, which says nothing about the folder.
        raise
    except OSError as error:
        what = f"cannot be written ({error.strerror})"
        expected = f"enough space and write permission; then `coterie resume {folder}` continues"
        raise CheckpointError(
            "cannot-be-written", folder, what, got=str(error.filename or folder), allowed=expected
        ) from None


@contextmanager
def refuse_unwritable_output(option: str, path: Path) -> Iterator[None]:
    """Refuse a path that cannot be written in a line that names the option."""
    try:
        yield
    except OSError as error:
        what = f"cannot be written ({error.strerror})"
        expected = "a path that can be created"
        raise ConfigError("cannot-be-written", option, what, found=path, allowed=expected) from None


def damaged(file: Path, error: Exception) -> CheckpointError:
    """The one line for a file of a run that is not what was written."""
    reason = (str(error).splitlines() or [""])[0]
    what = f"{type(error).__name__} ({reason})"
    return CheckpointError("damaged", file, found=what, do="restore the original")


@contextmanager
def refuse_malformed(file: Path) -> Iterator[None]:
    """Refuse values of a file that are not what a run writes, where they are used."""
    try:
        yield
    except MALFORMED as error:
        raise damaged(file, error) from None


def canonical_json(value: Any) -> bytes:
    """JSON of plain values, the same bytes whatever the order of the keys."""
    # NaN and Infinity are no JSON; other readers would refuse the file.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def read_json(source: bytes | str | Path, parse_float: Callable[[str], float] = float) -> Any:
    """The values of JSON, which may be anybody's.

    Args:
        source: the text, or its file.

    Raises:
        ValueError: for what is no JSON, is too large, or is nested too deeply.
        OSError: for a file that cannot be read.

    Example:
        >>> read_json('{"shape": [2, 3]}')
        {'shape': [2, 3]}
        >>> read_json("[" * 100 + "]" * 100)
        Traceback (most recent call last):
        ...
        ValueError: JSON with more than 50 nested levels
    """
    size = source.stat().st_size if isinstance(source, Path) else len(source)
    if size > LARGEST_JSON:
        raise ValueError(f"JSON of {size:,} bytes, more than {LARGEST_JSON:,}")
    text = source.read_bytes() if isinstance(source, Path) else source
    try:
        values = json.loads(text, parse_float=parse_float)
    except RecursionError:
        raise _too_deep() from None
    # Not by the reader alone: what uses the values walks through them, too.
    level = [values]
    for _ in range(DEEPEST_JSON):
        level = [inner for one in level for inner in _within(one) if isinstance(inner, list | dict)]
        if not level:
            return values
    raise _too_deep()


def _within(value: Any) -> Iterable[Any]:
    """What is in a list or an object of JSON."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _too_deep() -> ValueError:
    return ValueError(f"JSON with more than {DEEPEST_JSON} nested levels")


def sealed(body: Mapping[str, Any]) -> bytes:
    """JSON that holds the SHA-256 of the rest of itself."""
    digest = hashlib.sha256(canonical_json(body)).hexdigest()
    # Canonical, so that a reader gets the same bytes from the parsed values.
    return canonical_json({**body, "sha256": digest}) + b"\n"


def read_sealed(data: bytes) -> dict[str, Any] | None:
    """The values that `sealed` wrote; ``None`` where a single byte is another one."""
    try:
        values: dict[str, Any] = read_json(data)
        body = {key: value for key, value in values.items() if key != "sha256"}
        # Written again and compared byte by byte: so not even a changed space goes unseen.
        if sealed(body) == data:
            return body
    except (ValueError, TypeError, AttributeError):
        return None
    return None


def plain(value: Any) -> Any:
    """A value as JSON can hold it: arrays as lists, what is not finite as ``None``.

    Example:
        >>> plain({"loss": float("nan"), 1: np.int64(2), "sizes": np.arange(2)})
        {'loss': None, '1': 2, 'sizes': [0, 1]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray) or _is_tensor(value):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set):
        return [plain(inner) for inner in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    # A loss that diverged is a fact of the run, not an error of its writing.
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _is_tensor(value: object) -> bool:
    """Whether it is a tensor; where torch is not loaded, nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


# --- tables -----------------------------------------------------------------------------------------


def encoding_of(file: Path) -> str:
    """How a table that a user gives is written: UTF-16 where its first bytes say so, as some spreadsheet
    programs write it, and otherwise UTF-8, without its byte order mark."""
    with file.open("rb") as opened:
        if opened.read(2) in UTF_16:
            return "utf-16"
    return "utf-8-sig"


def csv_text(header: Sequence[object], rows: Iterable[Sequence[object]], end: str = "\r\n") -> str:
    """A table as CSV, in which no cell is a formula for a spreadsheet.

    Example:
        >>> csv_text(["name", "gain"], [["=1+1", -0.5], ["ann", "-0.5"]], end=";")
        "name,gain;'=1+1,-0.5;ann,-0.5;"
    """
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator=end)
    writer.writerow([safe_cell(name) for name in header])
    writer.writerows([safe_cell(value) for value in row] for row in rows)
    return lines.getvalue()


def safe_cell(value: object) -> object:
    """A value as a cell: text that a spreadsheet would execute begins with an apostrophe."""
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    # A number in letters, as the values of a grid are.
    return value


def markdown_lines(
    header: Sequence[str], rows: Iterable[Sequence[str]], align: str = ""
) -> list[str]:
    """A table as lines of Markdown.

    Args:
        align: a letter for each column, ``l`` or ``r``; default all left.

    Example:
        >>> print(*markdown_lines(["name", "gain"], [["a|b", "0.5"]], "lr"), sep=chr(10))
        | name | gain |
        | --- | ---: |
        | a\\|b | 0.5 |
    """
    rules = ["---:" if letter == "r" else "---" for letter in align.ljust(len(header), "l")]
    escaped = [[escape_cell(text) for text in row] for row in rows]
    cells = [[escape_cell(name) for name in header], rules, *escaped]
    return [f"| {' | '.join(row)} |" for row in cells]


def escape_cell(text: str) -> str:
    """Text for a cell of a Markdown table.

    Example:
        >>> print(escape_cell("a|b <i> *c* _d_ my_mod:e"))
        a\\|b &lt;i> \\*c\\* \\_d\\_ my_mod:e
    """
    # Within a word an underscore is one in Markdown, too.
    escaped = re.sub(r"([\\|*`\[\]]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", text.replace("\n", " "))
    return escaped.replace("&", "&amp;").replace("<", "&lt;")
