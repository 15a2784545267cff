"""What a client says of itself before it takes part, and whether it fits."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from coterie.core.vectors import Layout
from coterie.files import read_json

LONGEST = 64  # letters of a client's name
_SHOWN = 150  # letters of a value in a message
_NONE = "no identity"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a client says of itself before it takes part.

    Args:
        model: `signature` of its network.
        classes: how many, or their names.
        labelled: whether its samples have labels; without them it neither trains nor tests.
    """

    client: str
    version: str
    model: str
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    trains: bool = True
    tests: bool = True
    labelled: bool = True

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> Identity:
        """What a client sent, which may be anything.

        Example:
            >>> one = Identity("hospital-3", "0.1.0", "ab", (8, 8), ("cat", "dog"))
            >>> Identity.loads(one.dumps()) == one
            True
            >>> Identity.loads("[]")
            Traceback (most recent call last):
            ValueError: no identity
        """
        try:
            reported = read_json(text)
            if not isinstance(reported, dict):
                raise ValueError(_NONE)
            if set(reported) != {field.name for field in fields(cls)}:
                raise ValueError(_NONE)
            shape = tuple(reported.pop("shape"))
            classes = tuple(reported.pop("classes"))
        except TypeError:
            raise ValueError(_NONE) from None
        identity = cls(**reported, shape=shape, classes=classes)
        if not identity._has_right_types():
            raise ValueError(_NONE)
        return identity

    def _has_right_types(self) -> bool:
        """Whether every field is what its annotation says: JSON may hold anything."""
        texts = (self.client, self.version, self.model, *self.classes)
        if not all(isinstance(text, str) for text in texts):
            return False
        marks = (self.trains, self.tests, self.labelled)
        if not all(isinstance(mark, bool) for mark in marks):
            return False
        # A bool is an int in Python, and no length.
        if not all(type(length) is int for length in self.shape):
            return False
        # A name is shown in a terminal, so it must not move its cursor.
        return 0 < len(self.client) <= LONGEST and self.client.isprintable()


def mismatch(identity: Identity, expected: Identity) -> str | None:
    """Why a client cannot take part, as one line; ``None`` where it can.

    Example:
        >>> server = Identity("server", "0.2.0", "ab", (8, 8), ("cat", "dog"))
        >>> mismatch(Identity("site-3", "0.1.0", "ab", (8, 8), ("cat", "dog")), server)
        "client 'site-3': a different version of Coterie, got '0.1.0'; expected '0.2.0', as on the server"
    """
    pairs = (
        # The version first: another one may be why the rest differs.
        (
            "a different version of Coterie",
            identity.version,
            expected.version,
            ", as on the server",
        ),
        (
            "a different class list",
            list(identity.classes),
            list(expected.classes),
            " in this order",
        ),
        ("inputs of a different shape", list(identity.shape), list(expected.shape), ""),
        ("another model", identity.model, expected.model, ", the signature of the server's layers"),
    )
    for what, found, wanted, more in pairs:
        if found != wanted:
            return (
                f"client {identity.client!r}: {what}, got {_short(found)}; "
                f"expected {_short(wanted)}{more}"
            )
    return None


def _short(value: Any) -> str:
    text = repr(value)
    # Nothing is cut for a few letters: the note of the cut would be as long as they are.
    if len(text) <= _SHOWN + 10:
        return text
    return f"{text[:_SHOWN]}... ({len(text)} letters)"


def signature(layout: Layout, frozen: str = "") -> str:
    """Sixteen letters that stand for the names and shapes of a network's tensors.

    Args:
        frozen: digest of what does not move, which has to be the same on every node.

    Example:
        >>> from torch import nn
        >>> signature(Layout.of(nn.Linear(3, 2))) == signature(Layout.of(nn.Linear(2, 3)))
        False
    """
    parts = [list(layout.names), [list(shape) for shape in layout.shapes], layout.trainable]
    if frozen:
        parts.append(frozen)
    text = json.dumps(parts)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
