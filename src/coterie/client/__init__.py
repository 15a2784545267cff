"""What a client does: local SGD, evaluation, description of its own data."""

from coterie.client.bench import Bench
from coterie.client.dense import DenseStack
from coterie.client.sgd import Trained, batches

__all__ = ["Bench", "DenseStack", "Trained", "batches"]
