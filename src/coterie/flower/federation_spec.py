"""The run of a federation, put together without its data: the server and every node do so for
themselves, and find the same task, network, method and local solver.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace

from coterie.config.toml_text import parse_toml
from coterie.core.keep import Keep
from coterie.core.solver import Solver
from coterie.core.target_scaling import TargetScaling
from coterie.core.task import Task
from coterie.core.traits import Excluded, Feature, of_traits
from coterie.core.vectors import Layout
from coterie.core.work import Train
from coterie.data.sources.files import DataForm
from coterie.data.tabular.encoder import Encoder
from coterie.data.tabular.raw import Column
from coterie.errors import ConfigError
from coterie.experiment import Experiment, check
from coterie.experiment.traits import refuse_conflicts
from coterie.files import read_json
from coterie.flower.kept import Parts
from coterie.methods.method import Clustered, Method
from coterie.models import Network, zeros_for
from coterie.rules.migration import Migrating, Migration
from coterie.runs.compose import compose_stand_in
from coterie.runs.fitting import make_method
from coterie.runs.schedule import Participation
from coterie.runs.spec import RunSpec
from coterie.runs.target_scaling import asks_for_scaling
from coterie.tasks import check_network

_ALL_ROWS = "nodes train on all their rows"
# What real clients have no use for, and what they cannot do.
DEPLOYMENT = Feature(
    "in a deployment",
    {},
    (
        Excluded("shift", "the data of real clients change on their own", "no [shift]"),
        Excluded("availability", "real clients come and go on their own", "no [availability]"),
        Excluded(
            "reply_times",
            "real clients have their own reply times",
            "none (deploy.toml: reply_wait)",
        ),
        Excluded(
            "asynchronous", "rounds of real clients always wait for replies", "no [asynchronous]"
        ),
        Excluded(
            "secure",
            "can only be simulated, because Flower's secure aggregation does not hide updates",
            "no [secure]",
        ),
        Excluded("attack", "attacks are supported only in a simulation", "no [attack]"),
        Excluded(
            "evaluate.local", "nodes do not store the networks that they trained", "false", (False,)
        ),
        Excluded("evaluate.training", "nodes score only their test samples", "false", (False,)),
        Excluded("evaluate.adapt", "nodes cannot yet adapt models before scoring"),
        Excluded("evaluate.unseen", "only a simulation has clients that never train"),
        Excluded("evaluate.validation", _ALL_ROWS),
        Excluded("train.hold_out", _ALL_ROWS),
        Excluded("train.measures", "needs values that clients do not send", "none", ([],)),
        Excluded("data.window", "nodes cannot create series from tables yet"),
        Excluded("data.encode.noise", "nodes cannot yet describe columns with noise"),
        *of_traits(
            "algorithm.name",
            "a federated method: a method made of slots",
            {
                # A node has to know what clients do; it does not know the step of such an algorithm.
                "own_step": "has its own step",
                "data": "brings all training data to one place",
            },
        ),
    ),
)
PRIVATE_DEPLOYMENT = Feature(
    "with [privacy] in a deployment",
    {"privacy": ()},
    (
        # A fixed number of those who happen to be connected is a larger share of them than of all
        # clients, and one client more makes room for another one less.
        Excluded(
            "train.sampler",
            "cohorts of a fixed size depend on which clients are connected",
            "'poisson'",
            ("poisson",),
        ),
    ),
)


def refuse_in_deployment(config: Experiment) -> None:
    """Refuse what does not work together, or not in a deployment."""
    refuse_conflicts(config, make_method(config), more=(DEPLOYMENT, PRIVATE_DEPLOYMENT))


@dataclass(frozen=True)
class DataDescription:
    """What follows from what clients report of their data, and all of them are sent.

    Args:
        encoder: what becomes of the columns of tables; ``None`` for other data.
        scaling: how the targets of a regression are scaled; ``None``: they are not.
    """

    encoder: Encoder | None
    scaling: TargetScaling | None

    def text(self) -> str:
        """As JSON."""
        rules = None if self.encoder is None else self.encoder.record()
        targets = None if self.scaling is None else self.scaling.record()
        return json.dumps({"rules": rules, "targets": targets})

    @classmethod
    def read(cls, text: str) -> DataDescription:
        """From JSON; empty text says nothing."""
        record = read_json(text) if text else {"rules": None, "targets": None}
        rules = record["rules"]
        targets = record["targets"]
        encoder = None if rules is None else Encoder.read(rules)
        return cls(encoder, None if targets is None else TargetScaling.read(targets))

    def form(self, form: DataForm) -> DataForm:
        """The form of samples, with the inputs that are made of the columns."""
        return form if self.encoder is None else form.encoded(self.encoder)


def target_columns(config: Experiment, form: DataForm) -> tuple[Column, ...]:
    """The targets of which clients report moments, as columns; none where they are not scaled."""
    if not asks_for_scaling(config):
        return ()
    return tuple(Column(f"target {at}", "number") for at in range(math.prod(form.target_shape)))


@dataclass(frozen=True)
class FederationSpec:
    """The run of a federation whose data are with its clients.

    Args:
        run: the run with placeholder samples, and without the noise that the server adds.
    """

    config: Experiment
    form: DataForm
    run: RunSpec

    @classmethod
    def of(
        cls, config: Experiment, form: DataForm, clients: int, scaling: TargetScaling | None = None
    ) -> FederationSpec:
        """The run for so many clients at most; ``scaling``: of the targets of a regression."""
        refuse_in_deployment(config)
        # Scored as they are sent for training, which takes no exchange more.
        experiment = config.with_table("evaluate", order=config.evaluate.order or "before")
        experiment = replace(experiment, privacy=None)
        names = tuple(map(str, range(clients)))
        data = (form.shape, form.classes, form.target_shape)
        run = compose_stand_in(experiment, names, *data, scaling).spec
        module = run.network.module
        check_network(run.task, module, zeros_for(module, 1, form.shape), form.targets(1))
        # Real clients come and go, and take their time, by themselves.
        schedule = replace(run.schedule, participation=Participation())
        return cls(config, form, replace(run, schedule=schedule))

    @property
    def task(self) -> Task:
        """What is learned and measured."""
        return self.run.task

    @property
    def network(self) -> Network:
        """The network with its first weights."""
        return self.run.network

    @property
    def method(self) -> Method:
        """What runs."""
        assert isinstance(self.run.algorithm, Clustered)
        return self.run.algorithm.method

    @property
    def classes(self) -> int:
        """Number of classes; 0 where targets are numbers."""
        return len(self.form.classes)

    @property
    def kept_parts(self) -> Parts:
        """Names and shapes of the tensors that a client stores, in their order."""
        return (*self._layer_parts(), *self._own_parts())

    def _layer_parts(self) -> Parts:
        """Those of the layers that stay with it."""
        stays = self.local.stays
        if stays is None:
            return ()
        layout = Layout.of(self.network.module)
        kept = []
        for name, shape in zip(layout.names, layout.shapes, strict=True):
            span = layout.span(name)
            if stays.overlaps(span.start, span.stop):
                kept.append((name, shape))
        # A method of the user's own may keep a part of a tensor, which has no name.
        if sum(math.prod(shape) for _, shape in kept) != stays.size:
            return (("kept", (stays.size,)),)
        return tuple(kept)

    def _own_parts(self) -> Parts:
        """Those of what it has of its own in addition to the model that it is sent."""
        if self.local.own_model is None:
            return ()
        layout = Layout.of(self.network.module)
        found: list[tuple[str, tuple[int, ...]]] = []
        for name, length in self.local.own_model.lengths(layout.d).items():
            if length == layout.d:
                tensors = zip(layout.names, layout.shapes, strict=True)
                found += [(f"{name}/{tensor}", shape) for tensor, shape in tensors]
            else:
                found.append((name, (length,)))
        return tuple(found)

    @property
    def solver(self) -> Solver:
        """Local SGD."""
        return self.run.local

    @property
    def local(self) -> Train:
        """The training of the method: what clients minimise, and what stays with them."""
        return self.method.local

    @property
    def kept_own(self) -> Keep | None:
        """Which coordinates a client stores of what it has of its own; ``None``: none."""
        if self.local.own_model is None:
            return None
        stored = sum(self.local.own_model.lengths(Layout.of(self.network.module).d).values())
        if not stored:
            return None
        return Keep(((0, stored),))

    @property
    def kept(self) -> Keep | None:
        """Which coordinates a client stores: of its model, of what it has of its own, or of both,
        one behind the other; ``None``: it stores nothing."""
        layers = self.local.stays
        own = self.kept_own
        if layers is None or own is None:
            return layers or own
        d = Layout.of(self.network.module).d
        return Keep((*layers.spans, (d, d + own.size)))

    @property
    def migration(self) -> Migration | None:
        """How clients notice that their data drifted; ``None`` where the method does not ask."""
        rule = self.method.assign
        if isinstance(rule, Migrating):
            return rule.migration
        return None


def parse_config(text: str) -> Experiment:
    """The configuration of a run, from the TOML that the app was started with."""
    if not text:
        raise ConfigError("missing", "coterie-config", do="start the app with `coterie deploy run`")
    return check(parse_toml(text), "run.toml")
