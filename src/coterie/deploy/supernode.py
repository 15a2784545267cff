"""Flower's SuperNode as ``python -m coterie.deploy.supernode``: it ends where it could not go on.

Flower 1.41's own command stays, without a connection, after an answer of the server that it does not
expect, such as a proxy's status 500. A process that ends is seen, and started again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from importlib.metadata import entry_points
from typing import NoReturn

_FAILED = 1  # the exit code


def main() -> NoReturn:
    """Run the command ``flower-supernode`` with this process's arguments.

    The process ends when the command does, and when one of its threads fails.
    """
    threading.excepthook = _end_with_thread
    (command,) = entry_points(group="console_scripts", name="flower-supernode")
    try:
        command.load()()
    except SystemExit:
        # Flower's own way to end, which closes what it opened.
        raise
    except BaseException:  # noqa: BLE001 - whatever it was, the process has to end
        traceback.print_exc()
    else:
        print("the connection to the server was lost for good", file=sys.stderr, flush=True)
    # Not `sys.exit`, which waits for Flower's threads: one of them serves for ever.
    os._exit(_FAILED)


def _end_with_thread(failure: threading.ExceptHookArgs) -> None:
    """End the process with a thread of it: without the one of its signs of life, the server takes
    the node for gone, and the node does not know."""
    threading.__excepthook__(failure)
    # Not at once: Flower takes its leave of the server first, so that the next process is let in.
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
