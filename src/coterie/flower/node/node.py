"""What a client does with its own data: the same work as in a simulation, for one client, in its
own process."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.clients.identity import Identity, signature
from coterie.clients.wire import Answer, Request
from coterie.core.arrays import IntArray
from coterie.core.describe import Describe
from coterie.core.keys import Key
from coterie.core.process import threads
from coterie.core.task import CORRECT, SumShapes
from coterie.core.vectors import Layout, flatten, frozen_digest
from coterie.core.work import Deliver, Score, SelectGroup, Train, Work
from coterie.engines.keeping import KeepingEngine
from coterie.engines.own_models import OwnModelEngine
from coterie.engines.simulation import ClientError, SerialEngine
from coterie.errors import ConfigError, DataError
from coterie.flower.federation_spec import FederationSpec
from coterie.flower.kept import (
    KEPT_FILE,
    SERVED_FILE,
    KeptFile,
    KeptRounds,
    KeptStores,
    ServedModel,
)
from coterie.flower.node.cache import NodeCache
from coterie.flower.node.client_data import ClientData
from coterie.flower.node.client_table import ClientTable
from coterie.local import LocalRunner
from coterie.rules.migration import distance
from coterie.tasks.scaling import target_report

log = logging.getLogger("flwr")  # the log of the node
_TOO_OLD = (
    "the server continues from before round {}, but the values of this client are from round {} "
    "or later; it starts again from initial values"
)


class Node:
    """One client: it answers requests from its own data."""

    def __init__(self, spec: FederationSpec, data: ClientData, cache: NodeCache) -> None:
        self.spec = spec
        self.data = data
        for _, targets in (data.train, data.test):
            if len(targets) and data.labelled:
                spec.task.fitted(targets, spec.classes)
        self.cache = cache

    @property
    def local(self) -> Train:
        return self.spec.local

    @property
    def sums(self) -> SumShapes:
        return self.spec.task.sums

    def kept_model(self, name: str) -> Tensor | None:
        """A model that the client was sent before, by its digest; ``None`` where it has none."""
        return self.cache.model(name)

    def answer(self, request: Request) -> Answer:
        """Do the work of a request; see ``coterie.core.work.Work``."""
        work = request.work
        self._check_labels(work)
        network = self.spec.network
        population = self.data.population(request.client, self.spec.classes)
        runner = LocalRunner(
            population, network.module, self.spec.solver, network.decay, task=self.spec.task
        )
        if isinstance(work, SelectGroup):
            # The models are sent once, and named by their digests from then on.
            self.cache.keep_models(request.models)
        models = self._whole_models(request)
        if isinstance(work, Deliver):
            self._keep_served(work, models[0], request.round)
        which = _rows(work, len(models))
        key = self._key(request)
        # The engine of a simulation, for one client. One thread, as there: the sums come in the
        # same order, so the bits are the same.
        with threads(1), self._kept_vectors(request) as kept:
            engine = KeepingEngine(OwnModelEngine(SerialEngine(runner), kept.own), kept.parts)
            try:
                (reply,) = engine.run(work, np.array([request.client]), models, which, key=key)
            except ClientError as error:
                # The client is this process, so what its code raised is shown as it was raised.
                raise (error.__cause__ or error) from None
        fields = {name: np.asarray(values[0]) for name, values in reply.fields.items()}
        if isinstance(work, Train) and work.clip is not None:
            fields = clipped(fields, work.clip)
        return Answer(fields, self.has_drifted(request.assignment_version))

    def _check_labels(self, work: Work) -> None:
        """Refuse work that would read labels which are not there."""
        inputs_alone = isinstance(work, Describe) and not work.labelled
        if self.data.labelled or inputs_alone or isinstance(work, Deliver):
            return
        what = f"the data have no labels, and {type(work).__name__} needs them"
        expected = "a request that needs only the inputs"
        raise ConfigError("does-not-fit", "node", what, allowed=expected)

    def _keep_served(self, work: Deliver, model: Tensor, round: int) -> None:
        """Write the model that serves this client to its file."""
        layout = Layout.of(self.spec.network.module)
        path = self.cache.folder / SERVED_FILE
        ServedModel.of(layout, model, work.group, work.by, round).write(path)
        group = "no group" if work.group < 0 else f"group {work.group}"
        log.info("coterie: served by the model of %s (%s), in %s", group, work.by, path)

    def _whole_models(self, request: Request) -> Tensor:
        """The models with the coordinates that are not sent: all clients begin with those of the
        first model, which follows from the configuration."""
        stays = self.spec.local.stays
        if stays is None or not len(request.models):
            return request.models
        start = flatten(self.spec.network.module)
        whole = start.repeat(len(request.models), 1)
        if isinstance(request.work, SelectGroup):
            # All but the first are directions of groups, which do not move there.
            whole[1:] = 0
        whole[:, torch.from_numpy(stays.shared(len(start)))] = request.models
        return whole

    @contextmanager
    def _kept_vectors(self, request: Request) -> Iterator[KeptStores]:
        """What the client keeps of its model, and what it stores for a model of its own; what a
        training changes of it is written to the client's file before the reply leaves."""
        stores = KeptStores.of(self.spec.local.stays, self.spec.kept_own)
        keep = self.spec.kept
        if keep is None:
            yield stores
            return
        path = self.cache.folder / KEPT_FILE
        file = KeptFile(path, request.run, keep, self.spec.kept_parts)
        try:
            kept = file.read(request.server)
        except DataError as error:
            # What it holds must not be mixed into this run, and the run has to go on.
            log.warning("coterie: %s; this client starts again from initial values", error)
            kept = KeptRounds.none(request.server, keep.size)
        trained = isinstance(request.work, Train) and not request.work.trial
        # As many rounds back as the server may go, which keeps the last checkpoints.
        most = self.spec.config.checkpoint.keep + 1
        newest = kept
        kept = kept.for_server(request.server, request.since)
        if len(kept.rounds):
            stores.put(request.client, kept.vectors[-1])
        elif trained and len(newest.rounds) >= most:
            # The server was restored from a backup.
            log.warning("coterie: %s", _TOO_OLD.format(request.since + 1, newest.rounds[0] + 1))
        yield stores
        vector = stores.vector(request.client)
        if trained and vector is not None:
            file.write(kept.after(request.round, vector, most))

    def _key(self, request: Request) -> Key:
        """The key of the random streams of a request, that of the simulation."""
        if not isinstance(request.work, Describe) or request.work.privacy == "none":
            return Key(request.seed, request.purpose, request.round)
        # The server knows the run's seed, and could take noise drawn from it off again.
        return Key(self.cache.secret())

    def has_drifted(self, assignment_version: int) -> bool | None:
        """Whether the client's labels moved too far since it was assigned to its group; ``None`` where the
        method does not ask."""
        rule = self.spec.migration
        if rule is None or not self.data.labelled:
            return None
        histogram = self.data.histogram(self.spec.classes)
        reference = self.cache.reference(assignment_version, histogram)
        limit = rule.tau * reference.sum() / self.spec.classes
        moved = distance(histogram[None], reference[None], rule.detector)[0]
        return bool(moved > limit)

    def identity(self, name: str, classes: Sequence[str]) -> Identity:
        """What the client says of itself before it takes part."""
        module = self.spec.network.module
        return Identity(
            client=name,
            version=version("coterie"),
            model=signature(Layout.of(module), frozen_digest(module)),
            shape=self.spec.form.shape,
            classes=tuple(classes),
            trains=self.data.trains,
            tests=self.data.tests,
            labelled=self.data.labelled,
        )


class UndescribedNode:
    """A client with a table, or with targets that are scaled, before the server knows what becomes of
    them: it only reports of them."""

    local = Train()
    sums = CORRECT

    def __init__(self, data: ClientTable | ClientData, scales: bool) -> None:
        self.data = data
        self.scales = scales

    def kept_model(self, name: str) -> Tensor | None:
        """Nothing: it was sent no model."""
        return None

    def answer(self, request: Request) -> Answer:
        """What the client reports of the columns and the targets of its training rows."""
        if not isinstance(request.work, Describe) or request.work.statistic != "columns":
            what = f"{type(request.work).__name__}: the columns have not been described yet"
            raise ConfigError("does-not-fit", "node", what, do="request a report on them first")
        targets = np.asarray(self.data.train[1])
        reports = []
        if isinstance(self.data, ClientTable):
            reports.append(self.data.report())
        if self.scales:
            reports.append(target_report(targets))
        size = np.array(float(len(targets)))
        return Answer({"columns": np.concatenate(reports), "size": size})

    def identity(self, name: str, classes: Sequence[str]) -> Identity:
        """What the client says of itself: its network follows from the description."""
        return Identity(
            client=name,
            version=version("coterie"),
            model="",
            shape=(),
            classes=tuple(classes),
            trains=self.data.labelled and len(self.data.train[1]) > 0,
            tests=self.data.labelled and len(self.data.test[1]) > 0,
            labelled=self.data.labelled,
        )


def _rows(work: Work, models: int) -> IntArray:
    """Which of the sent models the work is on, as an engine needs it for one client."""
    match work:
        case Train(own_model=None, mixture=None, choose=None) | Score(served_by=Train()):
            return np.zeros(1, np.int64)
    return np.arange(models)[None]


def clipped(fields: Mapping[str, NDArray[Any]], clip: float) -> dict[str, NDArray[Any]]:
    """The fields of a training with its update cut to a length, and whether it was longer.

    Example:
        >>> found = clipped({"delta": np.array([3.0, 4.0], np.float32)}, clip=1.0)
        >>> found["delta"].round(3).tolist(), float(found["clipped"])
        ([0.6000000238418579, 0.800000011920929], 1.0)
    """
    delta = fields["delta"].astype(np.float64)
    length = float(np.linalg.norm(delta))
    longer = length > clip
    if longer:
        delta *= clip / length
    return {**fields, "delta": delta.astype(np.float32), "clipped": np.array(float(longer))}
