"""The run that is exported, or that predicts: its folder, its data and its models.

Of a run of real clients the folder says who they are and what they work on, and none of their
samples.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from coterie.core.arrays import FloatArray
from coterie.core.keep import Keep
from coterie.core.keys import Key
from coterie.core.vectors import Layout
from coterie.data import Partition, Population
from coterie.data.shifts import FederationSnapshot
from coterie.data.tabular.encoder import MISSING, CategoryRule, Encoder, Rule
from coterie.data.tabular.inputs import TableInputs
from coterie.data.tabular.raw import Column, Encode, Origin, RawTable
from coterie.errors import CheckpointError, ConfigError
from coterie.experiment import Experiment
from coterie.methods.algorithm import method_of
from coterie.runs.compose import Composed, HeldData, compose, compose_on
from coterie.runs.folder.checkpoints import Checkpoint
from coterie.runs.folder.digests import COLUMNS, NODES
from coterie.runs.folder.store import RunFolder, check_folder
from coterie.runs.progress import KEPT
from coterie.runs.resume import with_places

TRIED_INPUTS = 32
MISSING_SHARE = 0.1  # of the values of a random table


@dataclass(frozen=True, slots=True)
class ExportSource:
    """The run that is exported.

    Args:
        real: whether its clients were real ones, whose samples stay with them.
    """

    folder: RunFolder
    composed: Composed
    checkpoint: Checkpoint
    real: bool

    @classmethod
    def open(
        cls,
        run: Path | str,
        root: str | None,
        *,
        older: bool = False,
        trust: bool = False,
    ) -> ExportSource:
        """Read a run.

        Args:
            older: whether an older checkpoint is taken where the newest is damaged.
            trust: whether code that its configuration names is run.
        """
        folder = RunFolder.open(run)
        check_folder(folder)
        # Not `models/`, which is written at the end: a run that is not done is exported, too.
        checkpoint = folder.checkpoints.latest()
        if checkpoint is None:
            what = "no model yet, got no checkpoint"
            raise ConfigError(f"{folder.path}: {what}; expected a run that has saved one")
        if checkpoint.warnings and not older:
            what = f"the newest checkpoint is damaged, got one of round {checkpoint.round}"
            expected = "a whole one, or --older-checkpoint to export that one"
            raise CheckpointError(f"{folder.path}: {what}; expected {expected}")
        config = folder.config({"data.root": root}, trust=trust)
        nodes = folder.file(NODES)
        if nodes is not None:
            file = folder.path / NODES
            composed, checkpoint = prepare_real_run(config, file, checkpoint)
            return cls(folder, composed, checkpoint, real=True)
        composed = compose(config, folder.partition)
        # Of clients that joined after it was saved it has no places yet.
        clients = composed.population.clients
        checkpoint = with_places(checkpoint, clients, config.name("algorithm"))
        return cls(folder, composed, checkpoint, real=False)

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
        """What clients have beside the shared models, in words; empty where they have nothing."""
        if not self.keeps:
            return ""
        if self.composed.algorithm.serve(self.checkpoint.groups).personal is not None:
            return "a model of their own"
        return "layers of their own"

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


@dataclass(frozen=True, slots=True)
class Nodes:
    """The file ``nodes.json`` of a run; there are no labels where targets are numbers."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    labels: tuple[str, ...]
    target_shape: tuple[int, ...] = ()


def prepare_real_run(
    config: Experiment, file: Path, checkpoint: Checkpoint
) -> tuple[Composed, Checkpoint]:
    """The run, and its checkpoint cut to the clients that came.

    The clients' samples stay with them, so every client holds the same random inputs. The models
    are tried on those.
    """
    groups = checkpoint.groups
    try:
        nodes = _read_nodes(file, len(groups.member))
        encoder = _read_encoder(file.parent / COLUMNS)
    except (OSError, ValueError, LookupError, TypeError):
        got = "no clients, shape and classes that fit the run"
        what = f"damaged, got {got}"
        raise CheckpointError(f"{file}: {what}; expected all three") from None
    population, partition = _stand_in(nodes, config.seed)
    if encoder is not None:
        population = _with_table(population, encoder, config)
    composed = compose_on(config, HeldData(population, partition, nodes.labels))
    d = Layout.of(composed.module).d
    expected = groups.models.shape[1]
    # The network is made from names and numbers; its size is what the models can vouch for.
    if d != expected:
        what = f"of another network, got one of {d} parameters"
        raise CheckpointError(f"{file}: {what}; expected {expected}")
    clients = len(nodes.names)
    # A deployment reserves numbers for clients that may still come.
    known_groups = replace(groups, member=groups.member[:clients])
    extra = {**checkpoint.extra, "since": checkpoint.since[:clients]}
    return composed, replace(checkpoint, groups=known_groups, extra=extra)


def _stand_in(nodes: Nodes, seed: int) -> tuple[Population, Partition]:
    """Clients with these names that all hold the same random inputs, and no test samples."""
    clients = len(nodes.names)
    train = (np.arange(TRIED_INPUTS),) * clients
    test = (np.empty(0, np.int64),) * clients
    generator = Key(seed).of("export").torch()
    inputs = torch.randn(TRIED_INPUTS, *nodes.shape, generator=generator)
    # Nothing is scored with these: the card has what the clients reported.
    targets = torch.zeros(TRIED_INPUTS, *nodes.target_shape)
    if nodes.labels:
        targets = targets.long()
    scaling = "as every client's own code does it."
    population = Population(
        inputs, targets, train, test, len(nodes.labels), nodes.names, scaling=scaling
    )
    return population, Partition(train, test, nodes.names)


def _with_table(population: Population, encoder: Encoder, config: Experiment) -> Population:
    """The same clients with random rows of a table in the place of their inputs."""
    options = config.options("source")
    rng = Key(config.seed).of("export").of("table").generator()
    columns = tuple(_column(rule) for rule in encoder.rules)
    values = np.stack([_values(rule, rng) for rule in encoder.rules], axis=1)
    origin = Origin(options.get("label") or "label", options.get("client") or "client")
    raw = RawTable(columns, values, options.get("encode") or Encode(), origin)
    table = TableInputs(
        encoder, raw, np.arange(TRIED_INPUTS), np.zeros(population.clients, np.int64)
    )
    return replace(population, x=torch.from_numpy(encoder.encode(raw)), table=table)


def _column(rule: Rule) -> Column:
    """The column that a rule is of; a missing value is no category of its file."""
    if isinstance(rule, CategoryRule):
        known = sorted({*rule.common, *rule.rare} - {MISSING})
        return Column(rule.name, "category", tuple(known))
    return Column(rule.name, rule.kind)


def _values(rule: Rule, rng: np.random.Generator) -> FloatArray:
    """Random values of a column, some of which are missing, float64 ``[TRIED_INPUTS]``."""
    if isinstance(rule, CategoryRule):
        made = rng.integers(len(_column(rule).categories), size=TRIED_INPUTS).astype(np.float64)
    elif rule.kind == "boolean":
        made = rng.integers(2, size=TRIED_INPUTS).astype(np.float64)
    else:
        # Without scaling a rule does not know how far values spread.
        made = rule.fill + rule.scale * rng.standard_normal(TRIED_INPUTS)
    made[rng.random(TRIED_INPUTS) < MISSING_SHARE] = np.nan
    return made


def _read_encoder(file: Path) -> Encoder | None:
    """What clients were told of their columns; ``None`` where their data are no tables.

    Raises:
        OSError, ValueError, LookupError, TypeError: if the file is damaged.
    """
    if not file.exists():
        return None
    return Encoder.read(json.loads(file.read_bytes()))


def _read_nodes(file: Path, most: int) -> Nodes:
    """What ``nodes.json`` says of the clients, of which there are at most so many.

    Raises:
        OSError, ValueError, LookupError, TypeError: if the file is damaged.
    """
    record = json.loads(file.read_bytes())
    names = record["clients"]
    shape = record["shape"]
    labels = record["classes"]
    target_shape = record["target_shape"]
    if not all(isinstance(value, list) for value in (names, shape, labels, target_shape)):
        raise ValueError("no lists")
    if not 0 < len(names) <= most or not shape:
        raise ValueError("too few or too many")
    # `type`, since `true` of JSON is an int of Python.
    if not all(type(size) is int and size > 0 for size in (*shape, *target_shape)):
        raise ValueError("no shape")
    if not all(isinstance(name, str) for name in (*names, *labels)):
        raise ValueError("no names")
    return Nodes(tuple(names), tuple(shape), tuple(labels), tuple(target_shape))
