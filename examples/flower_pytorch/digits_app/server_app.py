"""The ServerApp: all that knows of groups is the strategy."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

import coterie as ct
from coterie.flower import ClusteredStrategy
from digits_app.task import TURNS, Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train a model for each group of nodes, and save them."""
    torch.manual_seed(0)
    strategy = ClusteredStrategy(ct.fedgroup(groups=TURNS, alpha=5))
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        num_rounds=context.run_config["num-server-rounds"],
        train_config=ConfigRecord({"lr": context.run_config["learning-rate"]}),
    )
    for group, metrics in result.evaluate_metrics_groups[len(result.rows)].items():
        nodes = sorted(node for node, of in result.groups.items() if of == group)
        print(f"group {group}: {len(nodes)} nodes, accuracy {metrics['eval_acc']:.2f}")
    for group, arrays in enumerate(result.models):
        torch.save(arrays.to_torch_state_dict(), f"group-{group}.pt")
