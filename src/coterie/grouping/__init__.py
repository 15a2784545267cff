"""The rules that say who trains from which model."""

from coterie.grouping.direction import ByDirection, ColdStartError, Pretrain
from coterie.grouping.stay import everyone

__all__ = ["ByDirection", "ColdStartError", "Pretrain", "everyone"]
