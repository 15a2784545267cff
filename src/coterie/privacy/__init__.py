"""Privacy of updates: noised sums and their budget, and sums as secure aggregation computes them."""
