"""What a client does: local SGD, evaluation, description of its own data."""

from coterie.client.bench import Bench
from coterie.client.closed import Stack
from coterie.client.sgd import Trained, batches

__all__ = ["Bench", "Stack", "Trained", "batches"]
