"""What a run's configuration makes on every machine alike: network, method, solver. It needs no
data."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from coterie.config import RunConfig
from coterie.core.keys import Key
from coterie.core.objective import Objective
from coterie.core.solver import Solver
from coterie.errors import ConfigError
from coterie.methods.method import Method
from coterie.methods.override import fit_to_model
from coterie.methods.step import Algorithm, Clustered, as_algorithm
from coterie.models import build, decay_for
from coterie.rules.migration import Drifting
from coterie.runs.run import make_method


@dataclass(frozen=True)
class Built:
    """A configuration's network and method.

    Args:
        config: the configuration.
        shape: of one input.
        labels: the names of the classes, in order.
        module: the network with its first weights.
        decay: kernels that carry L2.
        method: the method.
    """

    config: RunConfig
    shape: tuple[int, ...]
    labels: tuple[str, ...]
    module: nn.Module
    decay: tuple[str, ...]
    method: Method

    @classmethod
    def of(cls, config: RunConfig, shape: tuple[int, ...], labels: tuple[str, ...]) -> Built:
        """Build both.

        Raises:
            ConfigError: if they do not go together, or cannot run on real clients.
        """
        if config.shift is not None:
            raise ConfigError(
                "shift.kind: real data move by themselves, got a shift; expected no [shift]"
            )
        if config.train.measures:
            got = ", ".join(config.train.measures)
            raise ConfigError(f"train.measures: what no client sends, got {got}; expected none")
        name = config.model.name
        options = config.options("model")
        key = Key(config.seed).of("model")
        module = build(name, shape, len(labels), key, **options)
        decay = decay_for(name, module, config.local.l2, **options)
        made, module = fit_to_model(make_method(config), module, key)
        method = made.method if isinstance(made, Clustered) else made
        if not isinstance(method, Method):
            raise ConfigError(
                f"algorithm.name: has a step of its own, got {config.algorithm.name!r}; expected a method of six slots"
            )
        return cls(config, shape, labels, module, decay, method)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.labels)

    @property
    def solver(self) -> Solver:
        """Local SGD."""
        return Solver(**self.config.local.model_dump())

    @property
    def objective(self) -> Objective:
        """What clients minimise."""
        return self.method.local.objective

    @property
    def algorithm(self) -> Algorithm:
        """The method, to be run."""
        return as_algorithm(self.method)

    @property
    def drifting(self) -> Drifting | None:
        """How clients notice that their data drifted, where the method asks."""
        if isinstance(self.method.assign, Drifting):
            return self.method.assign
        return None
