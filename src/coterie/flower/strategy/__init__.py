"""Coterie's methods in anybody's Flower app: a strategy that groups its nodes."""

from coterie.flower.strategy.result import ClusteredResult
from coterie.flower.strategy.strategy import ClusteredStrategy

__all__ = ["ClusteredResult", "ClusteredStrategy"]
