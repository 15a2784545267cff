"""What is said when a client's own code fails."""

from __future__ import annotations

from coterie.core.keys import Key
from coterie.errors import CoterieError


class ClientError(CoterieError):
    """A client's own code raised: which client, at what, in which round."""

    # That of a configuration: the network that raised is part of it.
    code = 2


def failure_line(client: int, key: Key, error: Exception) -> str:
    """The line that says whose code failed in which round."""
    return f"model.name: client {client}: training failed in round {key.round}: {error}"
