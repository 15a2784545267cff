"""What a client does: local SGD, evaluation, description of its own data."""

from coterie.local.batches import batches
from coterie.local.runner import LocalRunner
from coterie.local.sgd import Trained
from coterie.local.stack import Stack

__all__ = ["LocalRunner", "Stack", "Trained", "batches"]
