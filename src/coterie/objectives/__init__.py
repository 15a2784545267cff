"""What a client minimises, `OBJECTIVES` by name: the batch loss, and what is added to it.

An objective is a frozen record of its hyper-parameters with a method ``loss``, see
``coterie.core.objective``. To add one, add a file to this package and list it in `OBJECTIVES`.
"""

from collections.abc import Callable
from types import MappingProxyType

from coterie.core.objective import CrossEntropy, Objective, plain
from coterie.objectives.cross_entropy import Balanced, class_prior, cross_entropy, proximal
from coterie.objectives.fusion import Fused, Fusion, fuse, fusion
from coterie.objectives.mmd import Mmd, mmd, squared_mmd

OBJECTIVES: MappingProxyType[str, Callable[..., Objective]] = MappingProxyType(
    {"plain": cross_entropy, "proximal": proximal, "mmd": mmd, "fusion": fusion}
)

__all__ = [
    "OBJECTIVES",
    "Balanced",
    "CrossEntropy",
    "Fused",
    "Fusion",
    "Mmd",
    "class_prior",
    "cross_entropy",
    "fuse",
    "fusion",
    "mmd",
    "plain",
    "proximal",
    "squared_mmd",
]
