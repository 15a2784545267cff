"""Expected failures: one line for the user, and the exit code of the command line."""

from __future__ import annotations


class CoterieError(Exception):
    """An expected failure: one line for the user, and the exit code of the command line."""

    # Scripts rely on these codes (docs/exit-codes.md). This one is EX_SOFTWARE of sysexits.h: an
    # error without a kind of its own is a bug of ours.
    code = 70


class ConfigError(CoterieError):
    """The configuration, or an argument, cannot be used."""

    code = 2


class DataError(CoterieError):
    """The data cannot be read, or do not hold what was asked of them."""

    code = 3


class CheckpointError(CoterieError):
    """A run folder that is damaged, of another configuration, or cannot be written."""

    code = 4


class QuorumError(CoterieError):
    """Too few clients answered for too long."""

    code = 5


class PrivacyError(CoterieError):
    """A run would spend more privacy than its budget allows."""

    code = 6


class RemoteError(CoterieError):
    """A run elsewhere failed, or could not be reached."""

    code = 7


class SweepError(CoterieError):
    """Some runs of a sweep failed; the others are done."""

    code = 8


class ExposedError(CoterieError):
    """A federation is open to strangers."""

    code = 9


class InUseError(CoterieError):
    """Another process writes the run folder."""

    code = 10


def first_line(error: BaseException) -> str:
    """The first line of what an exception says, or its name if it says nothing.

    Example:
        >>> first_line(ValueError("no such file")), first_line(KeyError())
        ('no such file', 'KeyError')
    """
    lines = str(error).strip().splitlines()
    if lines:
        return lines[0]
    return type(error).__name__


def install_command(extra: str) -> str:
    """Return how to install an optional part of Coterie, to end the message of an error.

    Coterie is installed from a clone: no package index has it.

    Args:
        extra: a name in ``[project.optional-dependencies]`` of ``pyproject.toml``.

    Example:
        >>> install_command("ray")
        "pip install '.[ray]' in a clone of Coterie"
    """
    return f"pip install '.[{extra}]' in a clone of Coterie"
