"""What a client does: local SGD, evaluation, description of its own data."""

from coterie.local.compiled import Stack
from coterie.local.runner import LocalRunner
from coterie.local.sgd import Trained, batches

__all__ = ["LocalRunner", "Stack", "Trained", "batches"]
