"""The ServerApp: all that knows of groups is the strategy."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

import coterie as ct
from coterie.flower import ClusteredStrategy
from flowers_app.task import create_model, get_params

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train a model for each group of nodes, and save them."""
    model = create_model(context.run_config["local-epochs"])
    strategy = ClusteredStrategy(ct.fedgroup(groups=2, alpha=5))
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(get_params(model)),
        num_rounds=context.run_config["num-server-rounds"],
    )
    for group, metrics in result.evaluate_metrics_groups[len(result.rows)].items():
        nodes = sorted(node for node, of in result.groups.items() if of == group)
        print(f"group {group}: {len(nodes)} nodes, accuracy {metrics['accuracy']:.2f}")
    for group, arrays in enumerate(result.models):
        coefficients, intercept = arrays.to_numpy_ndarrays()
        np.savez(f"group-{group}.npz", coef=coefficients, intercept=intercept)
