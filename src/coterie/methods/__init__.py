"""The machinery of a round: a method, its step, local training, streaming aggregation, serving."""
