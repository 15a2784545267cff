"""What an optimiser remembers from step to step, as one vector: velocities, moments, counts of steps.

A client stores it between two trainings where ``keep_state`` says so. The first value of the vector
is 1 once a step was taken; before that the others mean nothing, and the optimiser begins anew. They
are what it remembers of each parameter, in the order of parameters and of the names that torch gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from coterie.core.solver import Solver
from coterie.local.optimizer_step import make_rule
from coterie.local.step import UpdateRule

Shape = tuple[int, ...]
# Of each parameter, the names of what is remembered, and their shapes.
Form = tuple[tuple[tuple[str, Shape], ...], ...]


def memory_size(solver: Solver, shapes: Sequence[Shape]) -> int:
    """How many values an optimiser remembers, with the one that says whether it took a step.

    Args:
        solver: whose optimiser.
        shapes: of the parameters that it moves.

    Example:
        >>> adam = Solver(optimizer="adam")
        >>> memory_size(adam, [(3, 2), (2,)])  # two moments of 8 values, and a count of steps for each
        19
        >>> memory_size(Solver(momentum=0.9), [(3, 2), (2,)])
        9
    """
    form = _form(solver, tuple(shapes))
    return 1 + sum(math.prod(shape) for of_one in form for _, shape in of_one)


def load_memory(
    rule: UpdateRule, params: list[Tensor], velocity: list[Tensor], memory: Tensor
) -> None:
    """Let an optimiser that took no step yet go on from what it remembered.

    Args:
        rule: of the training.
        params: that it moves.
        velocity: of the momentum, changed in place; empty without one.
        memory: float32 ``[m]``.
    """
    if not memory[0]:
        return
    form = _form(rule.solver, tuple(tuple(param.shape) for param in params))
    sizes = [math.prod(shape) for of_one in form for _, shape in of_one]
    # Copies: the optimiser changes them in place, and the vector is the caller's.
    values = iter(part.clone() for part in memory[1:].split(sizes))
    state = [{name: next(values).reshape(shape) for name, shape in of_one} for of_one in form]
    rule.recall(params, velocity, state)


def store_memory(
    rule: UpdateRule, params: list[Tensor], velocity: list[Tensor], memory: Tensor
) -> None:
    """Write what an optimiser remembers into a vector; nothing where it took no step.

    Args:
        rule: of the training that is over.
        params: that it moved.
        velocity: of the momentum; empty without one.
        memory: float32 ``[m]``, changed in place.
    """
    state = rule.remembered(params, velocity)
    values = [value.reshape(-1) for of_one in state for value in of_one.values()]
    if values:
        memory[0] = 1
        torch.cat(values, out=memory[1:])


@lru_cache(maxsize=64)
def _form(solver: Solver, shapes: tuple[Shape, ...]) -> Form:
    """What is remembered of parameters of these shapes.

    Torch says it nowhere, so a step is taken.
    """
    params = [torch.zeros(shape) for shape in shapes]
    velocity = [torch.zeros(shape) for shape in shapes]
    rule = make_rule(solver, 0.0, (), 1)
    rule.apply(params, [torch.zeros(shape) for shape in shapes], [], velocity)
    state = rule.remembered(params, velocity)
    return tuple(
        tuple((name, tuple(value.shape)) for name, value in of_one.items()) for of_one in state
    )
