"""The events of a run, as marked lines in the server's log.

Flower shows a run's log to whoever started the run, and nothing else of it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

from coterie.runs.folder.files import plain

MARK = "@coterie "
# Called with a kind (start, round, say, waiting, error or done) and its value.
WriteEvent = Callable[[str, Any], None]


def event_writer() -> WriteEvent:
    """A function that prints events, numbered from 0: a log that is read twice shows each once."""
    numbers = itertools.count()

    def write(kind: str, value: Any) -> None:
        print(MARK + json.dumps({"number": next(numbers), kind: plain(value)}), flush=True)

    return write
