"""Targets of a regression with mean 0 and standard deviation 1, as networks learn them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from coterie.core.task import Task


@dataclass(frozen=True, slots=True)
class TargetScaling:
    """With ``m`` the mean and ``s`` the standard deviation of a target over all training samples, a
    network learns ``z = (y - m) / s``, and predicts ``m + s z``.

    Args:
        center: ``m`` of each of ``t`` targets.
        scale: ``s`` of each, above 0.
    """

    center: tuple[float, ...]
    scale: tuple[float, ...]

    def to_outputs(self, targets: Tensor) -> Tensor:
        """Targets ``[n, t]`` as a network learns them."""
        return _by_target(targets, self, lambda y, m, s: (y - m) / s)

    def to_targets(self, outputs: Tensor) -> Tensor:
        """Outputs of a network, ``[n, t]`` or of one target ``[n]``, in the units of the targets."""
        return _by_target(outputs, self, lambda z, m, s: m + s * z)

    def times(self, values: Tensor, power: int = 1) -> Tensor:
        """Values ``[n, t]`` times ``s ** power``."""
        return _by_target(values, self, lambda value, m, s: value * s**power)

    def __call__(self, module: nn.Module, inputs: Any, outputs: Tensor) -> Tensor:
        """As a hook of a network: its outputs in the units of the targets."""
        return self.to_targets(outputs)

    def record(self) -> dict[str, list[float]]:
        """As plain values, for a file."""
        return {"center": list(self.center), "scale": list(self.scale)}

    @classmethod
    def read(cls, record: Mapping[str, Sequence[float]]) -> TargetScaling | None:
        """The scaling of `record`; ``None`` for one without targets."""
        if not record["center"]:
            return None
        center = tuple(map(float, record["center"]))
        return cls(center, tuple(map(float, record["scale"])))


def _by_target(
    values: Tensor, scaling: TargetScaling, rule: Callable[[Tensor, float, float], Tensor]
) -> Tensor:
    """Apply a rule to the values of each target, with its center and its scale."""
    # Numbers and no tensors, which would have to lie on the device of the values.
    each = list(zip(scaling.center, scaling.scale, strict=True))
    if len(each) == 1:
        return rule(values, *each[0])
    columns = [rule(values[..., at], *one) for at, one in enumerate(each)]
    return torch.stack(columns, dim=-1)


@runtime_checkable
class ScalesTargets(Task, Protocol):
    """A task whose networks may learn scaled targets."""

    @property
    def asks_for_scaling(self) -> bool:
        """Whether targets are to be scaled by what clients report of them."""
        ...

    @property
    def scaling(self) -> TargetScaling | None:
        """How they are scaled; ``None``: they are not."""
        ...

    def scaled_by(self, scaling: TargetScaling | None) -> ScalesTargets:
        """The task of networks that learn targets in this scale."""
        ...


def scaling_of(task: Task) -> TargetScaling | None:
    """How a task scales its targets; ``None`` where it does not."""
    if isinstance(task, ScalesTargets):
        return task.scaling
    return None


# --- networks that predict in the units of the targets --------------------------------------------


def in_units(module: nn.Module, scaling: TargetScaling | None) -> nn.Module:
    """A network that puts out predictions: a copy, or the same one where nothing is scaled."""
    if scaling is None:
        return module
    copied = deepcopy(module)
    copied.register_forward_hook(scaling)
    return copied


def without_units(module: nn.Module) -> nn.Module:
    """A network as it is trained, also if it is one of `in_units`, such as the model of a result."""
    hooks = module._forward_hooks
    if not any(isinstance(hook, TargetScaling) for hook in hooks.values()):
        return module
    copied = deepcopy(module)
    for number, hook in list(copied._forward_hooks.items()):
        if isinstance(hook, TargetScaling):
            del copied._forward_hooks[number]
    return copied
