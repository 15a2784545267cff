"""What goes between a server and its clients, as plain records: work, identities, and the words for
refusals."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from coterie.core.objective import Objective
from coterie.core.vectors import Layout
from coterie.core.work import Describe, Evaluate, SelectGroup, Train, Work
from coterie.errors import ConfigError

PROTOCOL = 1
LONGEST = 64  # letters of a client's name
FAILURES = (
    "config",
    "data",
    "missing",
    "work",
)  # all that a client says of a failure; its log has the rest


@dataclass(frozen=True, slots=True)
class Request:
    """What one client is asked.

    Args:
        work: what to do.
        models: float32 ``[r, d]``.
        round: of the run.
        purpose: of the request.
        seed: of the run.
        client: the client's number.
        placement: how often the client was placed, see ``coterie.core.engine.DriftReports``.
        run: a name of the run, under which the client keeps what it caches.
    """

    work: Work
    models: Tensor
    round: int
    purpose: str
    seed: int
    client: int
    placement: int
    run: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What one client sends back: the fields of its work, and whether its data drifted since that
    placement.

    ``drifted`` is ``None`` where the method does not ask.
    """

    fields: Mapping[str, NDArray[Any]]
    drifted: bool | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """What a client says of itself before it takes part.

    Args:
        client: its name.
        version: of Coterie.
        model: `signature` of its network.
        shape: of one input.
        classes: how many, or their names.
        trains: whether it holds training samples.
        tests: whether it holds test samples.
    """

    client: str
    version: str
    model: str
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    trains: bool = True
    tests: bool = True

    def dumps(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> Identity:
        """What a client sent, which may be anything.

        Raises:
            ValueError: if it is no identity.

        Example:
            >>> one = Identity("hospital-3", "0.1.0", "ab", (8, 8), ("cat", "dog"))
            >>> Identity.loads(one.dumps()) == one
            True
            >>> Identity.loads("[]")
            Traceback (most recent call last):
            ValueError: no identity
        """
        try:
            told = json.loads(text)
            if not isinstance(told, dict) or set(told) != {field.name for field in fields(cls)}:
                raise ValueError("no identity")
            shape = tuple(told["shape"])
            classes = tuple(told["classes"])
        except (TypeError, RecursionError):
            raise ValueError("no identity") from None
        good = (
            all(isinstance(told[name], str) for name in ("client", "version", "model"))
            and all(isinstance(told[name], bool) for name in ("trains", "tests"))
            and all(type(n) is int for n in shape)
            and all(isinstance(name, str) for name in classes)
            and 0 < len(told["client"]) <= LONGEST
            and told["client"].isprintable()
        )
        if not good:
            raise ValueError("no identity")
        return cls(**{**told, "shape": shape, "classes": classes})


def unlike(told: Identity, ours: Identity) -> str | None:
    """Why a client cannot take part, as one line; ``None`` where it can.

    Example:
        >>> ours = Identity("server", "0.2.0", "ab", (8, 8), ("cat", "dog"))
        >>> unlike(Identity("hospital-3", "0.1.0", "ab", (8, 8), ("cat", "dog")), ours)
        "client 'hospital-3': another version of Coterie, got '0.1.0'; expected '0.2.0', as on the server"
    """
    pairs = (
        ("another version of Coterie", told.version, ours.version, ", as on the server"),
        ("another class list", list(told.classes), list(ours.classes), " in this order"),
        ("inputs of another shape", list(told.shape), list(ours.shape), ""),
        ("another model", told.model, ours.model, ", the signature of the server's layers"),
    )
    for what, got, expected, more in pairs:
        if got != expected:
            return f"client {told.client!r}: {what}, got {_short(got)}; expected {_short(expected)}{more}"
    return None


def _short(value: Any) -> str:
    text = repr(value)
    if len(text) <= 160:
        return text
    return f"{text[:150]}... ({len(text)} letters)"


def signature(layout: Layout) -> str:
    """Sixteen letters that stand for the names and shapes of a network's tensors.

    Example:
        >>> from torch import nn
        >>> signature(Layout.of(nn.Linear(3, 2))) == signature(Layout.of(nn.Linear(2, 3)))
        False
    """
    text = json.dumps(
        [list(layout.names), [list(shape) for shape in layout.shapes], layout.trainable]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest(vector: Tensor) -> str:
    """The name of a model's content.

    Example:
        >>> import torch
        >>> digest(torch.zeros(3)) == digest(torch.zeros(3)), digest(torch.zeros(3)) == digest(torch.ones(3))
        (True, False)
    """
    return hashlib.blake2b(vector.contiguous().numpy().tobytes(), digest_size=16).hexdigest()


def dumps(work: Work, objective: Objective) -> str:
    """A work record as JSON. What clients minimise is no part of it: they know it from the run's
    configuration.

    Args:
        work: what to do.
        objective: that of the run.

    Raises:
        ConfigError: if the work has another objective than the run.

    Example:
        >>> from coterie.objectives import plain
        >>> work = SelectGroup(Train(plain, steps=50))
        >>> loads(dumps(work, plain), plain) == work
        True
    """
    if isinstance(work, SelectGroup):
        return json.dumps({"kind": "place", "train": json.loads(dumps(work.train, objective))})
    values = {field.name: getattr(work, field.name) for field in fields(work)}
    if values.pop("keep", None) is not None:
        raise ConfigError(
            "algorithm.name: keeps a part of the model with its clients, got 'keep'; "
            "expected a method that shares the whole model, as clients of a deployment do so far"
        )
    if isinstance(work, Train) and values.pop("objective") != objective:
        raise ConfigError(
            f"algorithm.name: trains with an objective of its own, got {work.objective!r}; expected that of the run, "
            "which is all that clients of a deployment know"
        )
    return json.dumps({"kind": type(work).__name__.lower(), **values})


def loads(text: str, objective: Objective) -> Work:
    """The work record of `dumps`.

    Raises:
        ValueError: if it is none.
    """
    told = json.loads(text)
    kind = told.pop("kind", None) if isinstance(told, dict) else None
    try:
        match kind:
            case "place":
                train = loads(json.dumps(told["train"]), objective)
                if isinstance(train, Train):
                    return SelectGroup(train)
            case "train":
                upload = told.pop("upload")
                if told.get("choose") not in (None, "least_loss"):
                    raise ValueError(f"no work record (choose {told['choose']!r})")
                return Train(
                    objective,
                    upload=None if upload is None else (int(upload[0]), int(upload[1])),
                    **told,
                )
            case "evaluate":
                return Evaluate(**told)
            case "describe":
                return Describe(**told)
    except (TypeError, KeyError, IndexError) as error:
        raise ValueError(f"no work record ({error})") from None
    raise ValueError("no work record")
