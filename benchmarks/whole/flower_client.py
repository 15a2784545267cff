"""The Flower client: a module of its own, since Ray's actors import it."""

import functools

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from recipe_file import Recipe


@functools.cache
def held(path: str) -> Recipe:
    """The data, read once in each actor."""
    return Recipe(path)


client = ClientApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    import torch
    from networks import NETWORKS, fit

    torch.set_num_threads(1)
    recipe = held(str(message.content["config"]["file"]))
    rows = recipe.client(int(context.node_config["partition-id"]))
    module = NETWORKS[recipe.network](recipe.x.shape[1:], recipe.classes)
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x = torch.from_numpy(recipe.x[rows])
    y = torch.from_numpy(recipe.y[rows])
    fit(module, x, y, recipe.epochs, recipe.batch, recipe.lr)
    metrics = MetricRecord({"num-examples": len(rows)})
    content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)
