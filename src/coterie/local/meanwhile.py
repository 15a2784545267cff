"""Something done in a process of its own beside this one."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_LONGEST_WAIT = 120  # seconds


@contextmanager
def meanwhile(action: Callable[[], None]) -> Iterator[None]:
    """Do something in a forked process while this one does what is inside; leaving waits for it, two
    minutes at most.

    What it leaves on disk is there then, as compiled code is. If it fails, nothing is said: this
    process does it again, and sees why.

    Args:
        action: what to do.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> folder = Path(tempfile.mkdtemp())
        >>> with meanwhile((folder / "other").touch):
        ...     (folder / "mine").touch()
        >>> sorted(file.name for file in folder.iterdir())
        ['mine', 'other']
    """
    # A daemon: it ends with this process, whatever happens here.
    process = multiprocessing.get_context("fork").Process(
        target=_quietly, args=(action,), daemon=True
    )
    process.start()
    try:
        yield
        # A fork may find a lock taken by a thread that it does not have.
        process.join(_LONGEST_WAIT)
    finally:
        process.kill()
        process.join()


def _quietly(action: Callable[[], None]) -> None:
    # An interrupt from the terminal goes to all processes; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A fork inherits the parent's handler, which is about what only the parent can save.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with suppress(Exception):
        action()
