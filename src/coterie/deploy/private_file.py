"""Files that only their owner may read: keys, the seed of a client's noise, and what a client keeps of
its model."""

from __future__ import annotations

import os
from pathlib import Path

from coterie.runs.folder.files import sync_folder


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    # Made with these rights: to change them afterwards would leave a moment in which any user of
    # the machine can open the file.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        # The rights above are those of a new file; one that is there would keep its own.
        os.fchmod(descriptor, 0o600)
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def create_private(path: Path) -> None:
    """Create an empty file that only its owner may read, for a program that writes it; one that is there
    keeps its content.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "database"
        ...     bytes_written = file.write_bytes(b"42")
        ...     create_private(file)
        ...     oct(file.stat().st_mode & 0o777), file.read_bytes()
        ('0o600', b'42')
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def replace_private(path: Path, content: bytes) -> None:
    """The same so that the file is the old one or the new one, whole, at any moment.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "secret"
        ...     replace_private(file, b"42")
        ...     [one.name for one in Path(folder).iterdir()], file.read_bytes()
        (['secret'], b'42')
    """
    # Flower starts a process for each message, and two may write at once: hence a name for each.
    hidden = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    write_private(hidden, content)
    hidden.replace(path)
    sync_folder(path.parent)
