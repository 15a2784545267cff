"""An exception that is none of Coterie's own errors: a bug, or a mistake in the user's own code."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from coterie.errors import ConfigError, CoterieError, first_line

BUG = 70  # EX_SOFTWARE of sysexits.h

_PACKAGE = Path(__file__).parent
_LIBRARIES = tuple(
    Path(sysconfig.get_path(name)).resolve()
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


def exit_code(error: Exception) -> int:
    """The exit code of a command that an exception ended."""
    if isinstance(error, CoterieError):
        return error.code
    if users_frame(error) is not None:
        return ConfigError.code
    return BUG


def crash_line(error: Exception, where: str) -> str:
    """What failed, in one line, and ``where`` its traceback is."""
    what = f"{type(error).__name__} ({first_line(error)})"
    frame = users_frame(error)
    if frame is None:
        return f"coterie: a bug, got {what}; please report it; the traceback is {where}"
    place = f"{frame.filename}, line {frame.lineno}, in {frame.name}"
    return f"{place}: your code failed, got {what}; the traceback is {where}"


def kind_and_place(error: BaseException) -> str:
    """The kind of an exception, and the last line of the user's own code that it came through, as
    ``TypeError in net.py, line 7``."""
    kind = type(error).__name__
    frame = users_frame(error)
    if frame is None:
        return kind
    return f"{kind} in {Path(frame.filename).name}, line {frame.lineno}"


def users_frame(error: BaseException) -> traceback.FrameSummary | None:
    """The innermost call in the user's own code that Coterie made, if the exception passed one.

    Installed packages do not count as the user's: Coterie calls them as well.
    """
    found = None
    called = False
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if path.is_relative_to(_PACKAGE):
            called = True
        # A cell of a notebook has a name that is no file; generated code has one such as <string>.
        elif called and not frame.filename.startswith("<") and not _installed(path):
            found = frame
    return found


def _installed(path: Path) -> bool:
    resolved = path.resolve()
    return any(resolved.is_relative_to(folder) for folder in _LIBRARIES)
