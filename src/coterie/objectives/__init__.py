"""What a client minimises: the batch loss, and what pulls on the parameters beside it."""

from coterie.objectives.cross_entropy import CrossEntropy, plain, proximal

__all__ = ["CrossEntropy", "plain", "proximal"]
