"""Which code trains a network: compiled where shape, objective and solver allow it, else
autograd."""

from __future__ import annotations

import copy

from torch import nn

from coterie.core import Keep, Solver
from coterie.core.objective import (
    AddsToTask,
    Objective,
    is_cross_entropy,
    is_squared_error,
    target_scaling,
)
from coterie.core.task import SMOOTHED
from coterie.core.vectors import Layout, copy_module
from coterie.local.device import Device
from coterie.local.training.batches import convolves
from coterie.local.training.compiled import CompiledTrainer, compiles
from coterie.local.training.sgd import CPU, Autograd, Trainer
from coterie.local.training.stack import Stack


class Trainers:
    """The trainers of a network, one for each objective, since they keep buffers and a copy of it.
    Compiled code, own models and phases are for the CPU alone."""

    def __init__(self, module: nn.Module, decay: tuple[str, ...], device: Device = CPU) -> None:
        self.module = module
        self.decay = decay
        self.device = device
        # Of the network once, since each client of a method with models of its own asks for them.
        self.layout = Layout.of(module)
        self.convolves = convolves(module)
        self.stack: Stack | None = None
        if device == CPU:
            self.stack = Stack.of(module, decay)
        self._autograd: dict[tuple[Objective, float], Autograd] = {}
        self._compiled: dict[tuple[Objective, float], Trainer] = {}
        self._masked: dict[tuple[Objective, Keep], Trainer] = {}

    def copy(self) -> nn.Module:
        """A copy of the network, to be moved to the device. One for the CPU shares what is frozen."""
        if self.device.name == "cpu":
            return copy_module(self.module)
        return copy.deepcopy(self.module)

    def compiled(self, solver: Solver, *, squared: bool) -> CompiledTrainer | None:
        """The compiled code that trains by a solver, if this network has any."""
        if self.stack is None or not compiles(solver):
            return None
        return CompiledTrainer(self.stack, squared=squared)

    def of_phase(self, objective: Objective, moves: Keep, solver: Solver) -> Trainer:
        """The trainer of some coordinates: by autograd, since compiled steps move all of them."""
        _check_smoothing(objective, solver)
        known = (objective, moves)
        if known not in self._masked:
            module = self.copy()
            self._masked[known] = Autograd(module, objective, self.decay, moves, device=self.device)
        return self._masked[known]

    def of(self, objective: Objective, solver: Solver, mu: float | None = None) -> Trainer:
        """The trainer for an objective, compiled where possible; ``mu`` overrides its proximal
        weight.

        Raises:
            ConfigError: for smoothed labels in an objective that is a whole loss by itself.
        """
        _check_smoothing(objective, solver)
        mu = objective.mu if mu is None else mu
        squared = is_squared_error(objective)
        known = squared or is_cross_entropy(objective)
        if self.stack is None or not known or not compiles(solver):
            return self.autograd(objective, solver, mu)
        if (objective, mu) not in self._compiled:
            scaling = target_scaling(objective)
            self._compiled[objective, mu] = CompiledTrainer(self.stack, mu, squared, scaling)
        return self._compiled[objective, mu]

    def autograd(self, objective: Objective, solver: Solver, mu: float | None = None) -> Autograd:
        """The trainer for an objective by autograd; the arguments are those of `of`."""
        _check_smoothing(objective, solver)
        mu = objective.mu if mu is None else mu
        if (objective, mu) not in self._autograd:
            module = self.copy()
            self._autograd[objective, mu] = Autograd(
                module, objective, self.decay, mu=mu, device=self.device
            )
        return self._autograd[objective, mu]


def _check_smoothing(objective: Objective, solver: Solver) -> None:
    """Refuse smoothed labels in an objective that is a whole loss by itself."""
    if solver.label_smoothing and not isinstance(objective, AddsToTask):
        raise SMOOTHED.refusal("whole_loss", type(objective).__name__)
