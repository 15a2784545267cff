"""What is said of an exchange that lasts: who is awaited, and until when."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coterie.terminal import counted, duration

SILENT = 30.0  # seconds of waiting before the first line; each later one comes after twice the time
_NAMED = 5  # clients


@dataclass(slots=True)
class LongWait:
    """Says whom an exchange waits for, now and then.

    Args:
        say: what to do with a line.
        round: from 0.
        asked: how many clients were asked.
        end: when the exchange is closed, on the monotonic clock.
        next: when there is something to say.
        pause: seconds to the line after that.
    """

    say: Callable[[str], None]
    round: int
    asked: int
    end: float
    next: float
    pause: float

    @classmethod
    def begin(cls, say: Callable[[str], None], round: int, asked: int, end: float) -> LongWait:
        """An exchange begins; arguments as of the class."""
        return cls(say, round, asked, end, time.monotonic() + SILENT, SILENT)

    def look(self, awaited: Sequence[str]) -> None:
        """Say who is awaited, if it is time.

        Args:
            awaited: the names of clients that have not answered.
        """
        now = time.monotonic()
        if now < self.next or not awaited:
            return
        self.pause *= 2
        self.next = now + self.pause
        left = duration(max(0.0, self.end - now))
        names = _some(awaited)
        who = f"{names} ({len(awaited)} of {counted(self.asked, 'client')})"
        self.say(f"round {self.round + 1}: waiting for {who}, for at most {left}")


def _some(names: Sequence[str]) -> str:
    """The first names in order, and how many more there are.

    Example:
        >>> _some(["b", "a"]), _some(list("fedcba"))
        ('a, b', 'a, b, c, d, e and 1 more')
    """
    ordered = sorted(names)
    text = ", ".join(ordered[:_NAMED])
    if len(ordered) > _NAMED:
        text += f" and {len(ordered) - _NAMED} more"
    return text
