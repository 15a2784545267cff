"""What a client does: local SGD, evaluation, description of its own data."""

from coterie.local.runner import LocalRunner
from coterie.local.training.batches import batches
from coterie.local.training.sgd import Trained
from coterie.local.training.stack import Stack

__all__ = ["LocalRunner", "Stack", "Trained", "batches"]
