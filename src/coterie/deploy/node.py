"""What a client does with its own data: the same work as in a simulation, for one client, in its
own process."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from coterie.clients.identity import Identity, signature
from coterie.clients.wire import Answer, Request, digest
from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.core.threads import one_thread
from coterie.core.vectors import Layout
from coterie.core.work import Describe, SelectGroup, Train
from coterie.data import Population
from coterie.deploy.built import Built
from coterie.engines.serial import ClientError, SerialEngine
from coterie.errors import DataError
from coterie.local import LocalRunner
from coterie.rules.migration import distance

KEPT_RUNS = 3
Split = tuple[Any, Any]


@dataclass(frozen=True)
class Holding:
    """A client's own samples.

    Args:
        train: inputs float32 ``[n, ...]`` and labels int64 ``[n]``.
        test: the same, to be scored on; may be empty.
    """

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, train: Split, test: Split | None, shape: Sequence[int], classes: int) -> Holding:
        """What the user's ``load_client`` gave, checked.

        Args:
            train: inputs and labels, tensors or arrays.
            test: the same, or ``None``.
            shape: of one input.
            classes: number of classes.

        Raises:
            DataError: if it cannot be used, naming what was got and what is expected.

        Example:
            >>> own = Holding.of((np.zeros((3, 4)), [0, 1, 1]), None, (4,), 2)
            >>> own.train[0].dtype, len(own.test[1])
            (torch.float32, 0)
        """
        none = (np.zeros((0, *shape), np.float32), np.zeros(0, np.int64))
        own = cls(
            _split("train", train, shape, classes),
            _split("test", none if test is None else test, shape, classes),
        )
        if not len(own.train[1]) + len(own.test[1]):
            raise DataError(
                "load_client: no samples, got none to train and none to test; expected some"
            )
        return own

    def population(self, client: int, classes: int) -> Population:
        """A population in which only the client with this number holds anything."""
        (x, y), (tx, ty) = self.train, self.test
        none: IntArray = np.empty(0, np.int64)
        # a population needs one who trains
        before = (none,) * client
        some = none if len(y) else np.zeros(1, np.int64)
        return Population(
            torch.cat([x, tx]),
            torch.cat([y, ty]),
            (*before, np.arange(len(y)), some),
            (*before, np.arange(len(y), len(y) + len(ty)), none),
            classes,
        )

    def histogram(self, classes: int) -> NDArray[np.int64]:
        """Training samples of each class, int64 ``[c]``."""
        return np.bincount(self.train[1].numpy(), minlength=classes).astype(np.int64)


def _split(name: str, given: Any, shape: Sequence[int], classes: int) -> tuple[Tensor, Tensor]:
    try:
        x, y = given
        x = torch.as_tensor(np.asarray(x))
        y = torch.as_tensor(np.asarray(y)).to(torch.int64)
        x = x if x.dtype == torch.int64 else x.to(torch.float32)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"load_client: {name}: no inputs and labels, got {error}; expected a pair of arrays"
        ) from None
    if tuple(x.shape[1:]) != tuple(shape) or y.ndim != 1 or len(x) != len(y):
        got = f"inputs {list(x.shape)} and labels {list(y.shape)}"
        want = f"[n, {', '.join(map(str, shape))}] and [n]"
        raise DataError(f"load_client: {name}: shapes do not fit, got {got}; expected {want}")
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < classes:
        got = f"{int(y.min())} to {int(y.max())}"
        raise DataError(
            f"load_client: {name}: labels out of range, got {got}; expected 0 to {classes - 1}"
        )
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise DataError(
            f"load_client: {name}: inputs not finite, got NaN or infinity; expected numbers"
        )
    return x, y


class Cache:
    """What a client keeps on its disk: models it will need again, histograms it was placed with,
    and its own secret.

    Args:
        root: folder of this client.
        run: name of the run; those of the last few runs stay.
    """

    def __init__(self, root: Path, run: str) -> None:
        self.root = root
        self.folder = root / ("run-" + re.sub(r"[^0-9a-zA-Z-]", "_", run)[:64])
        if not self.folder.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._tidy()

    def _tidy(self) -> None:
        """Forget the oldest runs."""
        runs = sorted(self.root.glob("run-*"), key=lambda path: path.stat().st_mtime)
        for old in runs[:-KEPT_RUNS]:
            shutil.rmtree(old, ignore_errors=True)

    def model(self, name: str) -> Tensor | None:
        """A model by its digest; ``None`` where it is not here, or damaged."""
        if not re.fullmatch(r"[0-9a-f]{32}", name):
            return None
        file = self.folder / f"{name}.safetensors"
        try:
            vector = load_file(file)["w"]
        except (OSError, SafetensorError, KeyError):
            return None
        if digest(vector) == name:
            return vector
        return None

    def keep_models(self, models: Tensor) -> None:
        """Keep these models, and no others."""
        named = {digest(vector): vector for vector in models}
        for name, vector in named.items():
            if self.model(name) is None:
                _replace(
                    self.folder / f"{name}.safetensors",
                    lambda path, v=vector: save_file({"w": v.clone()}, path),
                )
        for file in self.folder.glob("*.safetensors"):
            if file.stem not in named:
                file.unlink(missing_ok=True)

    def reference(self, assignment_version: int, now: NDArray[np.int64]) -> NDArray[np.int64]:
        """The histogram that the client had when it was first asked after its last assignment.

        Where there is none for that assignment, as after a loss of the disk, it is the one of now.
        """
        file = self.folder / "reference.json"
        try:
            kept = json.loads(file.read_bytes())
            past = np.asarray(kept["histogram"], np.int64)
            if kept["placement"] == assignment_version and past.shape == now.shape:
                return past
        except (OSError, ValueError, KeyError, TypeError):
            pass
        text = json.dumps({"placement": assignment_version, "histogram": now.tolist()})
        _replace(file, lambda path: path.write_text(text))
        return now

    def secret(self) -> int:
        """A seed of the client's own for the noise of its statistics; drawn once, and never
        told."""
        file = self.root / "secret"
        if not file.exists():
            _replace(file, lambda path: _private(path, str(secrets.randbits(62))))
        return int(file.read_text())


def _private(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def _replace(path: Path, write: Any) -> None:
    hidden = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    write(hidden)
    hidden.replace(path)


def cache_root(config: Mapping[str, Any], name: str) -> Path:
    """Where a client keeps its cache: the node's ``cache``, ``COTERIE_CACHE``, or
    ``~/.cache/coterie``."""
    given = (
        config.get("cache") or os.environ.get("COTERIE_CACHE") or Path.home() / ".cache" / "coterie"
    )
    return Path(str(given)).expanduser() / hashlib.sha256(name.encode()).hexdigest()[:16]


class Node:
    """One client: answers what it is asked from its own data.

    Args:
        built: network and method, as the run's configuration says.
        holding: its data.
        cache: on its disk.
    """

    def __init__(self, built: Built, holding: Holding, cache: Cache) -> None:
        self.built = built
        self.holding = holding
        self.cache = cache

    def answer(self, request: Request) -> Answer:
        """Do the work; see ``coterie.core.work.Work``."""
        work = request.work
        client = request.client
        population = self.holding.population(client, self.built.classes)
        runner = LocalRunner(population, self.built.module, self.built.solver, self.built.decay)
        key = Key(request.seed, request.purpose, request.round)
        if isinstance(work, Describe):
            key = Key(self.cache.secret() if work.privacy != "none" else request.seed)
        if isinstance(work, SelectGroup):
            self.cache.keep_models(request.models)
        # The same code as in a simulation, for one client that is sent all models of the request.
        ids = np.array([client])
        which = np.arange(len(request.models))[None]
        if isinstance(work, Train) and work.choose is None:
            which = np.zeros(1, np.int64)
        with one_thread():
            try:
                (reply,) = SerialEngine(runner).run(work, ids, request.models, which, key=key)
            except ClientError as error:
                # The client is this process, so what its code raised is shown as it was raised.
                raise (error.__cause__ or error) from None
        fields = {name: np.asarray(values[0]) for name, values in reply.fields.items()}
        return Answer(fields, self.drifted(request.assignment_version))

    def drifted(self, assignment_version: int) -> bool | None:
        """Whether the client's labels moved too far since it was placed; ``None`` where the method
        does not ask."""
        rule = self.built.drifting
        if rule is None:
            return None
        now = self.holding.histogram(self.built.classes)
        kept = self.cache.reference(assignment_version, now)
        limit = rule.tau * kept.sum() / self.built.classes
        return bool(distance(now[None], kept[None], rule.detector)[0] > limit)

    def identity(self, name: str, classes: Sequence[str]) -> Identity:
        """What the client says of itself."""
        trains, tests = (bool(len(split[1])) for split in (self.holding.train, self.holding.test))
        layout = signature(Layout.of(self.built.module))
        return Identity(
            name, version("coterie"), layout, self.built.shape, tuple(classes), trains, tests
        )
