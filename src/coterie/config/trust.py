"""Code that the configuration of a run folder names: it runs only if the user trusts the folder.

A configuration that the user gives on the command line is the user's own, and so is a folder that
was made from it. A folder of a stranger may name any function as ``module:factory``, or a Ray
cluster, which may send any code. What was trusted is remembered outside the folder, by the
folder's path and by the digest of the code and of the files that it imports: code that has changed
has to be trusted again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from coterie.config.own_code import NamedCode, changed_code, file_digest, named_code
from coterie.errors import ConfigError, shown
from coterie.files import read_json

# More imported files than these are counted in a refusal.
MOST_NAMED = 5


def require_trust(
    folder: Path, tables: Mapping[str, Any], before: Mapping[str, str], *, trusted: bool
) -> None:
    """Refuse the configuration of a run folder that names code, unless the user trusts it.

    Args:
        before: the digests of that code when the run began, where they are known.
    """
    if trusted:
        remember(folder, tables)
        return
    if is_trusted(folder, tables):
        return
    found = list(named_code(tables))
    changed = changed_code(tables, before)
    # Code of the user's own: nothing but these files differs from what was trusted.
    if changed and _remembered(folder).get("named") == _named(found):
        what = "code has changed since the run began"
        do = (
            "restore it, start a new run, repeat the comparison, or add --trust to use the code "
            "as it is now"
        )
        raise ConfigError("differs", folder, what, found=", ".join(changed), do=do)
    named = "; ".join(_described(code) for code in found)
    what = "its configuration runs code that is not part of Coterie"
    do = "read that code, then add --trust"
    raise ConfigError("not-trusted", folder, what, found=named, do=do)


def is_trusted(folder: Path, tables: Mapping[str, Any]) -> bool:
    """Whether the configuration of a run folder names no code, or only such as the user trusts."""
    found = list(named_code(tables))
    # A list; a text in files of earlier versions.
    return not found or _digest(found) in _remembered(folder).get("code", ())


def remember(folder: Path, tables: Mapping[str, Any]) -> None:
    """Trust the code that the configuration of a folder names, from now on."""
    found = list(named_code(tables))
    if not found:
        return
    file = _file_of(folder)
    before = _remembered(folder)
    # Code that is restored needs no new answer.
    trusted = list(before.get("code", ())) if before.get("named") == _named(found) else []
    # A home that cannot be written: the user is asked again next time.
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        record = {
            "folder": str(folder.resolve()),
            "code": [*trusted, _digest(found)],
            "named": _named(found),
        }
        file.write_text(json.dumps(record) + "\n", encoding="utf-8")


def _described(code: NamedCode) -> str:
    """What would run, the file that it stands in, and those that it imports."""
    where = ""
    if code.files:
        where = f" in {code.files[-1]}"
    if code.imported:
        named = ", ".join(str(file) for file in code.imported[:MOST_NAMED])
        more = len(code.imported) - MOST_NAMED
        where += f", which imports {named}" + (f", and {more} more files" if more > 0 else "")
    return f"{code.key} = {shown(code.value)}{where}"


# --- what is trusted ------------------------------------------------------------------------------


def _digest(found: Sequence[NamedCode]) -> str:
    """The same as long as the same code would run."""
    total = hashlib.sha256()
    for code in found:
        files = [(str(file), file_digest(file)) for file in (*code.files, *code.imported)]
        total.update(json.dumps([code.key, code.value, files]).encode())
    return total.hexdigest()


def _file_of(folder: Path) -> Path:
    """The file of the user that says what is trusted of a folder."""
    base = os.environ.get("XDG_STATE_HOME")
    state = Path(base) if base else Path("~/.local/state").expanduser()
    name = hashlib.sha256(str(folder.resolve()).encode("utf-8", "surrogateescape")).hexdigest()
    return state / "coterie" / "trusted" / f"{name[:32]}.json"


def _named(found: Sequence[NamedCode]) -> list[list[str]]:
    return [[code.key, code.value] for code in found]


def _remembered(folder: Path) -> Mapping[str, Any]:
    """What is trusted of a folder: the digest of the code, and what named it; empty where nothing is."""
    try:
        return dict(read_json(_file_of(folder)))
    except (OSError, ValueError, TypeError, RuntimeError):
        return {}
