"""What a client minimises: the batch loss, and what pulls on the parameters beside it."""

from collections.abc import Callable
from types import MappingProxyType

from coterie.core.objective import Objective
from coterie.objectives.cross_entropy import CrossEntropy, cross_entropy, plain, proximal
from coterie.objectives.fusion import Fused, Fusion, fuse, fusion
from coterie.objectives.mmd import Mmd, mmd, squared_mmd

OBJECTIVES: MappingProxyType[str, Callable[..., Objective]] = MappingProxyType(
    {"plain": cross_entropy, "proximal": proximal, "mmd": mmd, "fusion": fusion}
)

__all__ = [
    "OBJECTIVES",
    "CrossEntropy",
    "Fused",
    "Fusion",
    "Mmd",
    "cross_entropy",
    "fuse",
    "fusion",
    "mmd",
    "plain",
    "proximal",
    "squared_mmd",
]
