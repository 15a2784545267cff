"""The Flower client: a module of its own, since Ray's actors import it."""

import functools

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from task import Task


@functools.cache
def held(path: str) -> Task:
    """The data, read once in each actor."""
    return Task(path)


client = ClientApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    import torch
    from nets import fit, net

    torch.set_num_threads(1)
    task = held(str(message.content["config"]["file"]))
    round = int(message.content["config"]["server-round"]) - 1
    number = int(context.node_config["partition-id"])
    _, x, y, order = task.client(round, number)
    module = net(task.model)
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    fit(module, x, y, order, task.lr, task.batch)
    metrics = MetricRecord({"num-examples": len(y)})
    content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)
