"""What SIGINT and SIGTERM do while a command runs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

Handler = Callable[[int, FrameType | None], None]


class StopRequest:
    """Whether a signal asked the command to stop.

    While rounds run, the first signal ends the run after the current round, and the second one ends
    it at once. Before the first round there is nothing to save, so the first one ends it at once.
    """

    def __init__(self) -> None:
        self.caught = 0
        self.running = False
        self.owner = os.getpid()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        # A worker process inherits this handler. It has no state to save and ends at once.
        if os.getpid() != self.owner:
            os._exit(128 + number)
        if self.caught or not self.running:
            # As shells have it: 128 and the number of the signal.
            raise SystemExit(128 + number)
        # Only noted. The run looks at it after each round, where its state is whole.
        self.caught = number
        # The terminal may be gone, and a signal may come in the middle of another write.
        with suppress(OSError, RuntimeError):
            sys.stderr.write("stopping after this round; a second signal stops immediately\n")

    @contextmanager
    def while_running(self) -> Iterator[Callable[[], int]]:
        """Rounds run inside; gives the function that says which signal came, or 0."""
        self.running = True
        try:
            yield lambda: self.caught
        finally:
            self.running = False


class FirstSignal:
    """Ends the command at the first signal; later ones do not disturb what it takes down."""

    def __init__(self) -> None:
        self.caught = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.caught:
            self.caught = True
            raise SystemExit(128 + number)


@contextmanager
def stop_after_round() -> Iterator[StopRequest]:
    """Signals stop the run inside after its current round."""
    request = StopRequest()
    with _handled_by(request):
        yield request


@contextmanager
def stop_once() -> Iterator[None]:
    """The first signal ends what runs inside, which then takes down what it started."""
    with _handled_by(FirstSignal()):
        yield


@contextmanager
def _handled_by(handler: Handler) -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM)
    # Put back afterwards, for tests and for programs that call a command's function.
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
