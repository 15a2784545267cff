"""Local training and scoring in compiled code, for stacks of Linear and ReLU, behind convolutions
of a few channels or none.

With ``h_0 = x``, layer by layer, first convolutions, then dense ones:

    h_l = relu(maxpool(W_l * h_{l-1} + b_l)),   h_l = relu(W_l h_{l-1} + b_l)
    delta_L = (softmax(h_L) - onehot(y)) / B,   delta_{l-1} = W_l^T delta_l * [h_{l-1} > 0]
    W_l <- W_l - lr (delta_l h_{l-1}^T + 2 l2 W_l + mu (W_l - W_l^start))

The last layer has no relu. Under a squared error of ``t`` targets ``delta_L = 2 (h_L - y) / (t B)``.
Adam takes the whole gradient in place of the last line. It equals autograd to rounding, and is
chosen by the shape of the network (`coterie.local.training.stack.Stack`), the objective and the solver.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

# The library that kernels multiply by. It is loaded here and not by their first product: engines
# hold the libraries that are there to one thread before clients train, and one that came later
# would take more, with sums in another order.
import scipy.linalg.cython_blas  # noqa: F401
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.config.local_problems import optimizer_defaults
from coterie.core.arrays import IntArray, aligned_copy
from coterie.core.keys import Key
from coterie.core.solver import TAKEN_BY_ALL, Solver
from coterie.core.startup import starting_up
from coterie.core.target_scaling import TargetScaling
from coterie.local.training.batches import TrainingSamples, joined_batches
from coterie.local.training.sgd import NO_PULL, Pull, Trained
from coterie.local.training.stack import Stack

# The options of an optimiser that compiled steps know.
_OPTIONS: Mapping[str, frozenset[str]] = {
    "sgd": frozenset(),
    "adam": frozenset({"betas", "eps"}),
    "adamw": frozenset({"betas", "eps"}),
}
# Augmentation is not among them: it changes samples between passes, and compiled code takes all
# passes in one call.
_TAKEN = TAKEN_BY_ALL | {"optimizer", "optimizer_options", "step_schedule"}
_NOTHING = np.empty(0, np.float32)
_NO_NUMBERS = np.empty((0, 0), np.float32)


@cache
@starting_up()
def _kernels() -> Any:
    """The compiled code; a process that never needs it does not load it, which takes a second."""
    return import_module("coterie.local.kernels")


def compiles(solver: Solver) -> bool:
    """Whether compiled code takes the steps of a solver: those of SGD, Adam and AdamW, with any
    schedule and decay."""
    if solver.set_beyond(_TAKEN):
        return False
    known = _OPTIONS.get(solver.optimizer)
    return known is not None and set(solver.options) <= known


@contextmanager
def _denormals_flushed() -> Iterator[None]:
    """Inside, numbers below 1e-38 are zeros: moments that die out would otherwise end there, where a
    processor takes a hundred times as long."""
    flushed = torch.set_flush_denormal(True)
    try:
        yield
    finally:
        if flushed:
            torch.set_flush_denormal(False)


def flat_values(vector: Tensor) -> NDArray[np.float32]:
    """A model as the kernels take it. They are compiled for arrays whose values are side by side,
    and for nothing else."""
    return vector.contiguous().numpy()


def flat_rows(x: Tensor) -> NDArray[np.float32]:
    """Inputs ``[n, ...]`` as the kernels take them, ``[n, i]``, side by side in memory."""
    values = x.contiguous().numpy()
    # Of NumPy's shape: to ask a tensor for its length takes as long as all of the rest.
    return values.reshape(values.shape[0], math.prod(values.shape[1:]))


@dataclass(eq=False)
class CompiledTrainer:
    """Local training by compiled code, and scoring."""

    stack: Stack
    mu: float = 0.0
    squared: bool = False
    scaling: TargetScaling | None = None
    # The network as the kernels know it, by the shape of a sample.
    _layers_of: dict[tuple[int, ...], Any] = field(default_factory=dict, init=False)
    _loaded: dict[str, Any] = field(default_factory=dict, init=False)
    _penalties_of: dict[float, Any] = field(default_factory=dict, init=False)

    def load_training(self, solver: Solver) -> None:
        """Load what trains by a solver, or compile it, before worker processes fork."""
        self.kernel(self._descent(solver))

    def is_new(self, solver: Solver) -> bool:
        """Whether both what scores and what trains by a solver have to be compiled, for this process
        and later ones."""
        kernels = _kernels()
        names = ("score", self._descent(solver))
        return all(getattr(kernels, name).is_missing(self._kind) for name in names)

    def _descent(self, solver: Solver) -> str:
        """The name of the kernel that trains by a solver."""
        return "descend" if solver.is_plain_sgd and not self.squared else "descend_by_rule"

    def kernel(self, name: str) -> Any:
        """A kernel for networks of this kind."""
        if name not in self._loaded:
            with starting_up():
                self._loaded[name] = getattr(_kernels(), name).of(self._kind)
        return self._loaded[name]

    @property
    def _kind(self) -> Any:
        """The type of the record of this network's layers."""
        if self.stack.convs:
            return _kernels().CONV_LAYERS
        return _kernels().DENSE_LAYERS

    def train(
        self,
        samples: TrainingSamples,
        start: Tensor,
        out: Tensor,
        solver: Solver,
        key: Key,
        pull: Pull = NO_PULL,
    ) -> Trained:
        assert pull.memory is None, "compiled steps begin with moments of zero"
        x, y = samples
        kernels = _kernels()
        layers = self.layers(x.shape[1:])
        rows = flat_rows(x)
        targets = self._targets(y)
        # One call for the whole training: the batches of all passes, one after another.
        order, ends = joined_batches(len(y), solver, key.of("shuffle").generator())
        # The start is needed until the end, to make the update.
        begin = start.numpy()
        vector = aligned_copy(begin)
        anchor = begin if pull.anchor is None else pull.anchor.numpy()
        constant = _NOTHING if pull.constant is None else pull.constant.numpy()
        pulls = kernels.Pulls(anchor, constant)
        loss = 0.0
        if len(order):
            kept = kernels.Batches(order, ends, solver.batch_size)
            name = self._descent(solver)
            descend = self.kernel(name)
            if name == "descend":
                values = (solver.lr, solver.momentum, solver.l2, self.mu)
                sgd = _kernels().Sgd(*map(np.float32, values))
                summed = descend(vector, pulls, layers, rows, targets.labels, kept, sgd)
            else:
                rule = self._rule(solver, solver.count(len(y)))
                with _denormals_flushed():
                    summed = descend(vector, pulls, layers, rows, targets, kept, rule)
            of_last_pass = len(order) if len(ends) == 1 else ends[-1] - ends[-2]
            loss = float(summed / of_last_pass)
        np.subtract(vector, begin, out=out.numpy())
        return Trained(len(y), loss)

    def gradient(
        self, at: Tensor, sent: Tensor, x: Tensor, y: Tensor, l2: float
    ) -> tuple[Tensor, float]:
        """See `coterie.local.training.sgd.Trainer`."""
        kernels = _kernels()
        found = torch.empty_like(at)
        moments = (_NOTHING, _NOTHING)
        training = kernels.TrainingState(
            flat_values(at), flat_values(sent), found.numpy(), *moments
        )
        rule = self._penalties(l2)
        layers = self.layers(x.shape[1:])
        gradient = self.kernel("batch_gradient")
        targets = self._targets(y)
        summed = gradient(training, layers, flat_rows(x), targets, rule)
        return found, float(summed) / y.shape[0]

    def _penalties(self, l2: float) -> Any:
        """The rule of which a gradient reads only the weights of the penalties."""
        if l2 not in self._penalties_of:
            kernels = _kernels()
            none = np.float32(0)
            weights = (np.float32(l2), np.float32(self.mu))
            rule = kernels.Rule(kernels.SGD_RULE, _NOTHING, 0.0, 0.0, none, *weights, none)
            # Kept, as the layers are: a step may take no longer than making it.
            self._penalties_of[l2] = rule
        return self._penalties_of[l2]

    def _rule(self, solver: Solver, steps: int) -> Any:
        """The optimiser of so many steps as the kernels know it."""
        kernels = _kernels()
        factors = np.ones(steps)
        schedule = solver.step_schedule
        if schedule is not None:
            factors[:] = [schedule.factor(t, steps) for t in range(steps)]
        kind = kernels.SGD_RULE
        averages = (solver.momentum, 0.0)
        eps = 0.0
        if solver.optimizer != "sgd":
            kind = kernels.ADAM_RULE
            options = {**optimizer_defaults(solver.optimizer), **solver.options}
            averages = options["betas"]
            eps = options["eps"]
        rest = (eps, solver.l2, self.mu, solver.decoupled_decay)
        rates = (solver.lr * factors).astype(np.float32)
        return kernels.Rule(kind, rates, *map(float, averages), *map(np.float32, rest))

    def _targets(self, y: Tensor) -> Any:
        """What is learned, as the kernels know it."""
        if not self.squared:
            labels = y.numpy()
            self.check_labels(labels)
            return _kernels().Targets(labels, _NO_NUMBERS)
        y = y.reshape(len(y), -1)
        if self.scaling is not None:
            y = self.scaling.to_outputs(y)
        numbers = y.numpy().astype(np.float32, copy=False)
        if numbers.shape[1] != self.stack.widths[-1]:
            what = f"a model of {self.stack.widths[-1]} outputs, got {numbers.shape[1]} targets"
            raise IndexError(what)
        return _kernels().Targets(np.empty(0, np.int64), numbers)

    def layers(self, shape: tuple[int, ...]) -> Any:
        """The network as the kernels know it, for samples of a shape."""
        layers = self._layers_of.get(shape)
        if layers is None:
            widths = np.array(self.stack.widths)
            decayed = np.array(self.stack.decayed)
            convs = self.stack.table(shape)
            layers = _kernels().Layers(convs if self.stack.convs else None, widths, decayed)
            # Kept, since a small client's training takes hardly longer than making it.
            self._layers_of[shape] = layers
        return layers

    def check_labels(self, labels: IntArray) -> None:
        """Compiled code does not check its indices: a label too large would read beyond the end."""
        classes = self.stack.widths[-1]
        # Read as unsigned, a label below zero is larger than any class: one look for both ends.
        if len(labels) and not labels.view(np.uint64).max() < classes:
            got = f"{labels.min()} to {labels.max()}"
            raise IndexError(f"a model of {classes} classes, got labels from {got}")
