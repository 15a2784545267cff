"""What is said when a client's own code fails, and when a process ends."""

from __future__ import annotations

import signal
import traceback
from pathlib import Path

import torch

from coterie.core.keys import Key
from coterie.errors import CoterieError

# Code of these packages raises for what others hand them.
_NOT_TO_BLAME = (str(Path(__file__).parents[1]), str(Path(torch.__file__).parent))

# What batch normalisation says of a batch of one sample, whose variance is unknown.
_ONE_SAMPLE = "Expected more than 1 value per channel"
_NO_BATCH_OF_ONE = (
    "batch normalisation cannot train on a single sample, which the last batch of a client may have; "
    "expected another local.batch_size, or GroupNorm, which takes any batch"
)


class ClientError(CoterieError):
    """A client's own code raised: which client, at what, in which round."""

    # That of a configuration: the network that raised is part of it.
    code = 2


def failure_line(client: int, key: Key, error: Exception) -> str:
    """The line that says which client failed in which round, and where in the user's own code.

    What is a line for the user already keeps its words.
    """
    if isinstance(error, CoterieError):
        return f"{error} (client {client}, round {key.round})"
    line = f"client {client}: training failed in round {key.round}: {error}"
    line = f"{line} ({type(error).__name__}{_place(error)})"
    if _ONE_SAMPLE in str(error):
        return f"{line}; {_NO_BATCH_OF_ONE}"
    return line


def _place(error: Exception) -> str:
    """The last line of the user's own code that the error came through, as ``" in net.py, line 7"``;
    nothing if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_NOT_TO_BLAME)]
    if not own:
        return ""
    return f" in {Path(own[-1].filename).name}, line {own[-1].lineno}"


def ending(code: int) -> str:
    """How a process ended, in words.

    Args:
        code: its exit code; minus the number of the signal that ended it.

    Example:
        >>> ending(-9)
        'was ended by SIGKILL, as the system does where memory is short'
        >>> ending(1)
        'ended with code 1'
    """
    if code >= 0:
        return f"ended with code {code}"
    names = {one.value: one.name for one in signal.Signals}
    # Some signals have no name.
    name = names.get(-code, f"signal {-code}")
    found = f"was ended by {name}"
    if name == "SIGKILL":
        found += ", as the system does where memory is short"
    return found
