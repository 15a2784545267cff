"""What a run's configuration makes, the same on every machine of a federation: task, network, method,
local solver.

It needs no data, so the server and every node build it for themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from coterie.config.toml_text import parse_toml
from coterie.core.keep import Keep
from coterie.core.solver import Solver
from coterie.core.task import Task
from coterie.core.vectors import Layout
from coterie.core.work import Train
from coterie.data import Population
from coterie.data.sources.files import DataForm
from coterie.errors import ConfigError
from coterie.experiment import Experiment, check
from coterie.experiment.exclusions import Excluded, excluded_from
from coterie.experiment.objects import make_choice
from coterie.flower.kept import Parts
from coterie.methods.fit_to_model import check_solver, check_task
from coterie.methods.method import Clustered
from coterie.methods.traits import Feature, traits_of
from coterie.rules.migration import Migrating, Migration
from coterie.runs.compose import make_method, make_network
from coterie.runs.features import check_over_selection
from coterie.runs.fitting import fit
from coterie.runs.spec import Network
from coterie.tasks import CLASSIFICATION, check_network

_ALL_ROWS = "nodes train on all their rows"
# Tables and keys that real clients have no use for.
ONLY_SIMULATED = (
    Excluded("shift", "real data move by themselves", "no [shift]"),
    Excluded("availability", "real clients come and go by themselves", "no [availability]"),
    Excluded(
        "reply_times",
        "real clients take the time that they take",
        "none (deploy.toml: reply_wait)",
    ),
    Excluded(
        "asynchronous",
        "rounds of real clients wait for their replies so far",
        "no [asynchronous]",
    ),
    Excluded(
        "secure", "only simulated, as Flower's secure aggregation hides no updates", "no [secure]"
    ),
    Excluded("attack", "only a simulation makes clients attack", "no [attack]"),
    Excluded(
        "evaluate.local",
        "nodes do not remember the networks that they trained",
        "false",
        (False,),
    ),
    Excluded("evaluate.training", "nodes score their test samples alone", "false", (False,)),
    Excluded("evaluate.adapt", "nodes adapt no models before they score them yet"),
    Excluded("evaluate.unseen", "only a simulation knows clients that never train"),
    Excluded("evaluate.validation", _ALL_ROWS),
    Excluded("train.hold_out", _ALL_ROWS),
    Excluded("train.measures", "what no client sends", "none", ([],)),
)


def check_real(config: Experiment) -> None:
    """Refuse what only a simulation can do, all of it at once."""
    found = excluded_from(config.resolved(), ONLY_SIMULATED, "in a deployment")
    if found:
        raise ConfigError.of(found)


# --- what is trained ------------------------------------------------------------------------------

_REAL_CLIENTS = Feature(
    "algorithm.name",
    "a federated method: a method made of slots",
    {
        # A node has to know what clients do; of a step of its own nothing is known.
        "own_step": "has a step of its own",
        "data": "brings all training data to one place",
    },
)


@dataclass(frozen=True)
class FederationSpec:
    """The task, the network and the method of a federation."""

    config: Experiment
    form: DataForm
    task: Task
    network: Network
    algorithm: Clustered

    @classmethod
    def of(cls, config: Experiment, form: DataForm) -> FederationSpec:
        """Build task, network and method."""
        check_real(config)
        task = (make_choice(config, "task") or CLASSIFICATION).fitted(
            form.targets(1), len(form.classes)
        )
        network = make_network(config, form.shape, task.outputs)
        method = make_method(config)
        check_task(method, task)
        algorithm, network = fit(method, network, config.solver, config.seed)
        check_network(task, network.module, _one_sample(form, network.module))
        check_solver(method, config.solver, network.module)
        _REAL_CLIENTS.check(traits_of(algorithm), config.name("algorithm"))
        assert isinstance(algorithm, Clustered)
        check_over_selection(algorithm, config.train.over_selection, config.name("algorithm"))
        return cls(config, form, task, network, algorithm)

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
        return self.config.solver

    @property
    def local(self) -> Train:
        """The training of the method: what clients minimise, and what stays with them."""
        return self.algorithm.method.local

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
        one         behind the other; ``None``: it stores nothing."""
        layers = self.local.stays
        own = self.kept_own
        if layers is None or own is None:
            return layers or own
        d = Layout.of(self.network.module).d
        return Keep((*layers.spans, (d, d + own.size)))

    @property
    def migration(self) -> Migration | None:
        """How clients notice that their data drifted; ``None`` where the method does not ask."""
        rule = self.algorithm.method.assign
        if isinstance(rule, Migrating):
            return rule.migration
        return None


def _one_sample(form: DataForm, module: nn.Module) -> Population:
    """A made-up sample, on which a network is tried: of zeros, which are tokens where it embeds
    them."""
    x = torch.zeros(1, *form.shape)
    if any(isinstance(layer, nn.Embedding) for layer in module.modules()):
        x = x.long()
    held = (np.zeros(1, np.int64),)
    return Population(x, form.targets(1), held, (np.empty(0, np.int64),), len(form.classes))


def parse_config(text: str) -> Experiment:
    """The configuration of a run, from the TOML that the app was started with."""
    if not text:
        expected = "an app that `coterie deploy run` started"
        raise ConfigError(f"coterie-config: empty, got ''; expected {expected}")
    return check(parse_toml(text), "run.toml")
