"""The run that is exported, or that predicts: its folder, its data and its models.

Of a run of real clients the folder says who they are and what they work on, and none of their
samples. Those of a simulation on a table are read where they are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from coterie.core.keep import Keep
from coterie.core.vectors import Layout
from coterie.data import Population, load_partition
from coterie.data.shifts import FederationSnapshot
from coterie.errors import CheckpointError, DataError
from coterie.experiment import Experiment
from coterie.files import read_json, refuse_malformed
from coterie.measures.verdict import VERDICT, Verdict
from coterie.methods.algorithm import method_of
from coterie.runs.compose import Composed, compose, compose_stand_in
from coterie.runs.data import read_record
from coterie.runs.folder.checkpoints import Checkpoint
from coterie.runs.folder.digests import NODES
from coterie.runs.folder.store import RunFolder, check_folder
from coterie.runs.progress import KEPT
from coterie.runs.resume import with_places
from coterie.runs.stored import compose_recorded, needs_samples
from coterie.runs.target_scaling import stored_scaling
from coterie.terminal import warn

ONE_RUN = (
    "this needs runs of fedavg, of local and of a method with groups, such as those of `coterie "
    "compare`"
)


def _newest_checkpoint(folder: RunFolder, older: bool) -> Checkpoint:
    # Not `models/`, which is written at the end: a run that is not done is exported, too.
    checkpoint = folder.checkpoints.saved()
    if checkpoint.warnings and not older:
        what = "the latest checkpoint is damaged"
        got = f"the newest undamaged one is of round {checkpoint.round}"
        expected = "--older-checkpoint to export that one"
        raise CheckpointError("damaged", folder.path, what, found=got, allowed=expected)
    return checkpoint


@dataclass(frozen=True, slots=True)
class ExportSource:
    """The run that is exported.

    Args:
        real: whether its clients were real ones, whose samples stay with them.
        record: the record of its table, see `coterie.runs.stored`; ``None`` for other data.
        has_rows: whether the clients' samples are at hand, and no stand-in for them.
    """

    folder: RunFolder
    composed: Composed
    checkpoint: Checkpoint
    real: bool
    record: Mapping[str, Any] | None = None
    has_rows: bool = True

    @classmethod
    def open(
        cls,
        run: Path | str | RunFolder,
        root: str | None,
        *,
        older: bool = False,
        trust: bool = False,
        rows: bool = False,
    ) -> ExportSource:
        """Read a run; with ``older``, from an older checkpoint if the newest is damaged. ``rows``:
        the samples of a table are read though models do not need them, with a warning where they
        have changed or are gone."""
        folder = RunFolder.open(run)
        check_folder(folder)
        checkpoint = _newest_checkpoint(folder, older)
        config = folder.config({"data.root": root}, trust=trust)
        record = read_record(folder.path)
        nodes = folder.file(NODES)
        if nodes is not None:
            file = folder.path / NODES
            most = max(len(checkpoint.groups.member), load_partition(folder.partition).clients)
            composed, checkpoint = prepare_real_run(config, file, checkpoint, most)
            return cls(folder, composed, checkpoint, real=True, record=record, has_rows=False)

        def made(composed: Composed, has_rows: bool) -> ExportSource:
            # Of clients that joined after it was saved it has no places yet.
            clients = composed.population.clients
            grown = with_places(checkpoint, clients, config.name("algorithm"))
            return cls(folder, composed, grown, False, record, has_rows)

        alone = None
        if record is not None and not needs_samples(config):
            alone = made(compose_recorded(config, folder.partition, record), has_rows=False)
            if not rows and not alone.needs_rows:
                return alone
        try:
            return made(compose(config, folder.partition), has_rows=True)
        except DataError as error:
            if alone is None or alone.needs_rows:
                raise
            warn(f"{error}; figures are those that clients reported in the run")
            return alone

    @property
    def needs_rows(self) -> bool:
        """Whether predictions follow from samples of the run, and not from its models alone."""
        held_out = self.composed.experiment.train.hold_out is not None
        return held_out or self.keeps or bool(self.checkpoint.snapshot)

    @property
    def keeps(self) -> bool:
        """Whether clients predict by something that they have of their own, so that the models of
        the groups are not what serves them."""
        served = self.composed.algorithm.serve(self.checkpoint.groups)
        # What real clients keep is on their nodes, and in no checkpoint.
        method = method_of(self.composed.algorithm)
        on_nodes = self.real and method is not None and method.local.keep is not None
        return KEPT[0] in self.checkpoint.extra or served.personal is not None or on_nodes

    @property
    def own_part(self) -> str:
        """What clients have in addition to the shared models, in words; empty where they have nothing."""
        if not self.keeps:
            return ""
        if self.composed.algorithm.serve(self.checkpoint.groups).personal is not None:
            return "their own model"
        return "their own layers"

    @property
    def private(self) -> bool:
        """Whether the run has ``[privacy]``."""
        return self.composed.experiment.privacy is not None

    @property
    def verdict(self) -> str:
        """Whether grouping is worth it on these data: what the comparison says that the run is part of,
        or in one line that it takes one."""
        file = self.folder.path.parent / VERDICT
        if file.is_file():
            with refuse_malformed(file):
                record = read_json(file)
                if self.folder.path.name in record["runs"]:
                    return str(record["text"])
        return Verdict("unknown", missing=ONE_RUN).title

    @property
    def shares_nothing(self) -> bool:
        """Whether clients keep the whole model."""
        method = method_of(self.composed.algorithm)
        if method is None or not isinstance(method.local.keep, Keep):
            return False
        return method.local.keep.size == Layout.of(self.composed.module).d

    @property
    def population(self) -> Population:
        """Who held what after the last round."""
        start = self.composed.population
        if self.checkpoint.snapshot:
            return FederationSnapshot.restore(start, self.checkpoint.snapshot).population
        return start


class Nodes(BaseModel):
    """The file ``nodes.json`` of a run; there are no classes where targets are numbers."""

    model_config = ConfigDict(strict=True)

    clients: list[str] = Field(min_length=1)
    shape: list[PositiveInt] = Field(min_length=1)
    classes: list[str]
    target_shape: list[PositiveInt]


def prepare_real_run(
    config: Experiment, file: Path, checkpoint: Checkpoint, most: int
) -> tuple[Composed, Checkpoint]:
    """The run, and its checkpoint for the clients that came, ``most`` of them. Their samples stay
    with them, so every client holds the same random inputs, on which the models are tried."""
    groups = checkpoint.groups
    try:
        nodes = Nodes.model_validate(read_json(file))
        if len(nodes.clients) > most:
            raise ValueError(f"{len(nodes.clients)} clients")
    except (OSError, ValueError):
        got = "clients, a shape or classes that do not fit the run"
        raise CheckpointError("damaged", file, found=got, allowed="those of the run") from None
    scaling = stored_scaling(file.parent)
    names = tuple(nodes.clients)
    labels = tuple(nodes.classes)
    composed = compose_stand_in(config, names, nodes.shape, labels, nodes.target_shape, scaling)
    d = Layout.of(composed.module).d
    expected = groups.models.shape[1]
    # The network is made from names and numbers; its size is what the models can vouch for.
    if d != expected:
        what = "belongs to a different network"
        got = f"one of {d} parameters"
        raise CheckpointError("differs", file, what, found=got, allowed=f"{expected} parameters")
    clients = len(names)
    # A deployment reserves numbers for clients that may still come, and others came later.
    grown = with_places(checkpoint, clients, config.name("algorithm"))
    return composed, grown.with_clients(clients)
