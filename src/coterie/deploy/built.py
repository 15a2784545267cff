"""What a run's configuration makes on every machine alike: network, method, solver. It needs no
data."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from coterie.config import RunConfig
from coterie.core.objective import Objective
from coterie.core.solver import Solver
from coterie.errors import ConfigError
from coterie.methods.method import Method
from coterie.methods.step import Clustered
from coterie.rules.migration import Drifting
from coterie.runs.prepare import make_method, make_network, make_solver
from coterie.runs.spec import Network, fit


@dataclass(frozen=True)
class Built:
    """A configuration's network and method.

    Args:
        config: the configuration.
        shape: of one input.
        labels: the names of the classes, in order.
        network: with its first weights.
        algorithm: the method, to be run.
    """

    config: RunConfig
    shape: tuple[int, ...]
    labels: tuple[str, ...]
    network: Network
    algorithm: Clustered

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
        network = make_network(config, shape, len(labels))
        algorithm, network = fit(make_method(config), network, config.seed)
        if not isinstance(algorithm, Clustered):
            raise ConfigError(
                f"algorithm.name: has a step of its own, got {config.algorithm.name!r}; expected a method of six slots"
            )
        return cls(config, shape, labels, network, algorithm)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.labels)

    @property
    def solver(self) -> Solver:
        """Local SGD."""
        return make_solver(self.config)

    @property
    def objective(self) -> Objective:
        """What clients minimise."""
        return self.method.local.objective

    @property
    def module(self) -> nn.Module:
        """The network with its first weights."""
        return self.network.module

    @property
    def decay(self) -> tuple[str, ...]:
        """Kernels that carry L2."""
        return self.network.decay

    @property
    def method(self) -> Method:
        """The method."""
        return self.algorithm.method

    @property
    def drifting(self) -> Drifting | None:
        """How clients notice that their data drifted, where the method asks."""
        if isinstance(self.method.assign, Drifting):
            return self.method.assign
        return None
