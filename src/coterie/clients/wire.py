"""What goes between a server and its clients, as plain records: work, requests, answers, and the
words for refusals."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from coterie.core import CORRECT, ClientShares, Describe, SumShapes
from coterie.core.training import (
    Budget,
    Epochs,
    FullGradient,
    How,
    Mixture,
    Phases,
    Steps,
    WithOwnModel,
)
from coterie.core.work import Deliver, Score, SelectGroup, Train, Work
from coterie.errors import ConfigError
from coterie.files import read_json

# 1: clients chose models in an exchange of its own; 2: they kept nothing of a model; 3: one request a
# message; 4: all clients had labels; 5: a training was one list of options.
PROTOCOL = 6

# All that a client says of a failure; its own log has the rest, which may name its data.
FAILURES = ("config", "data", "missing", "work")


@dataclass(frozen=True, slots=True)
class Request:
    """What one client is asked.

    Args:
        models: float32 ``[r, d]``, without the coordinates that stay with clients.
        assignment_version: how often the client was assigned to a group, see
            ``coterie.core.engine.DriftReports``.
        run: a name of the run, under which the client keeps what it caches.
        server: a name of the server's process.
        since: the first round of that process. What clients stored in this round or later, when they
            worked for an earlier process, is no part of the run.
    """

    work: Work
    models: Tensor
    round: int
    purpose: str
    seed: int
    client: int
    assignment_version: int
    run: str
    server: str
    since: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What one client sends back; ``drifted`` is ``None`` where the method does not ask."""

    fields: Mapping[str, NDArray[Any]]
    drifted: bool | None = None


def digest(vector: Tensor) -> str:
    """The name of a model's content."""
    return hashlib.blake2b(vector.contiguous().numpy().tobytes(), digest_size=16).hexdigest()


def dumps(work: Work, local: Train) -> str:
    """A work record as JSON. What a client knows from the run's configuration is no part of it, nor
    are the shares of clients: these travel in each client's own message."""
    return json.dumps(_plain(work, local))


def _plain(work: Work, local: Train) -> dict[str, Any]:
    """A work record as plain values."""
    if isinstance(work, SelectGroup):
        return {"kind": "select_group", "train": _plain(work.train, local)}
    values = {field.name: getattr(work, field.name) for field in fields(work)}
    if isinstance(work, Train):
        _check_configured(work, local)
        del values["objective"]
        values["keep"] = work.keep is not None
        values["how"] = _plain_how(work.how)
    if isinstance(work, Score):
        # Their shapes are known to clients from the run's task, as the objective is.
        values["sums"] = [name for name, _ in work.sums]
        values["shares"] = work.shares is not None
        values["served_by"] = work.served_by is not None
    return {"kind": type(work).__name__.lower(), **values}


def _plain_how(how: How) -> dict[str, Any]:
    """The kind of a training as plain values. What every client knows from the run's configuration,
    phases and the rule of an own model, is only named."""
    match how:
        case Epochs():
            return {"kind": "epochs", "number": how.number, "spent": how.spent}
        case Steps():
            return {"kind": "steps", "number": how.number}
        case FullGradient():
            return {"kind": "full_gradient"}
        case Phases():
            return {"kind": "phases"}
        case WithOwnModel():
            return {"kind": "own_model", "budget": _plain_how(how.budget)}
        case Mixture():
            shares = how.shares is not None
            return {"kind": "mixture", "shares": shares, "budget": _plain_how(how.budget)}
    raise AssertionError("engines set the weights of samples")


def _check_configured(work: Train, local: Train) -> None:
    """Refuse a training that a client could not know from the run's configuration."""
    configured: dict[str, tuple[object, object]] = {"objective": (work.objective, local.objective)}
    # Without any of these it is ordinary training of the whole model, which all clients know.
    if work.keep is not None:
        configured["keep"] = (work.keep, local.keep)
    if isinstance(work.how, Phases):
        configured["phases"] = (work.how, local.how)
    if work.own_model is not None:
        configured["own_model"] = (work.own_model, local.own_model)
    for name, (value, known) in configured.items():
        if value != known:
            what = f"{name} of a training request differs from the method's"
            expected = f"{known!r}, the only one that clients of a deployment know"
            raise ConfigError("differs", "algorithm.name", what, got=value, allowed=expected)


@dataclass(frozen=True, slots=True)
class Known:
    """What a client knows of work before it is asked: the sums of the run's task, and its shares,
    if its message has any."""

    local: Train
    sums: SumShapes = CORRECT
    shares: ClientShares | None = None


def loads(text: str, known: Known) -> Work:
    """The work record of `dumps`; a ``ValueError`` where the text is none."""
    return _work(read_json(text), known)


def _work(values: Any, known: Known) -> Work:
    if not isinstance(values, dict):
        raise ValueError("no work record")
    options = dict(values)
    kind = options.pop("kind", None)
    try:
        match kind:
            case "select_group":
                train = _work(options["train"], known)
                # Anything but a training is refused at the end, as every other record is.
                if isinstance(train, Train):
                    return SelectGroup(train)
            case "train":
                return _train(options, known)
            case "score":
                return _score(options, known)
            case "describe":
                return Describe(**options)
            case "deliver":
                return Deliver(int(options["group"]), str(options["by"]))
    except (TypeError, KeyError, IndexError) as error:
        raise ValueError(f"no work record ({error})") from None
    raise ValueError("no work record")


def _train(options: dict[str, Any], known: Known) -> Train:
    upload = options.pop("upload")
    if upload is not None:  # JSON has no tuples
        upload = (int(upload[0]), int(upload[1]))
    # A dataclass does not check its literals, and every other word would be taken as a choice.
    if options["choose"] not in (None, "least_loss"):
        raise ValueError(f"no work record (choose {options['choose']!r})")
    keep = None
    if options.pop("keep"):
        keep = known.local.keep
    how = _how(dict(options.pop("how")), known)
    return Train(known.local.objective, how, upload=upload, keep=keep, **options)


def _how(options: dict[str, Any], known: Known) -> How:
    match options.pop("kind"):
        case "full_gradient":
            return FullGradient()
        case "phases" if isinstance(known.local.how, Phases):
            return known.local.how
        case "own_model" if known.local.own_model is not None:
            return WithOwnModel(known.local.own_model, _budget(dict(options["budget"])))
        case "mixture":
            shares = _own_shares(options["shares"], known.shares)
            return Mixture(shares, _budget(dict(options["budget"])))
        case "epochs" | "steps" as kind:
            return _budget({"kind": kind, **options})
    raise ValueError("no work record (how)")


def _budget(options: dict[str, Any]) -> Budget:
    match options.pop("kind"):
        case "epochs":
            return Epochs(**options)
        case "steps":
            return Steps(**options)
    raise ValueError("not a valid work record (budget)")


def _score(options: dict[str, Any], known: Known) -> Score:
    served_by = None
    if options.pop("served_by"):
        served_by = known.local
    own = _own_shares(options.pop("shares"), known.shares)
    shapes = dict(known.sums)
    sums = tuple((name, shapes[name]) for name in options.pop("sums"))
    return Score(sums=sums, served_by=served_by, shares=own, **options)


def _own_shares(needed: bool, shares: ClientShares | None) -> ClientShares | None:
    """The shares of the client that is asked, for work that needs them."""
    if not needed:
        return None
    if shares is None:
        raise ValueError("no work record (shares are missing)")
    return shares
