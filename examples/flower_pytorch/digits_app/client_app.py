"""An ordinary ClientApp: it trains and evaluates the model that it is sent."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import Net, load_data
from digits_app.task import test as test_fn
from digits_app.task import train as train_fn

app = ClientApp()


def loaders(context: Context):
    partition = context.node_config["partition-id"]
    partitions = context.node_config["num-partitions"]
    return load_data(partition, partitions, context.run_config["batch-size"])


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    loader, _ = loaders(context)
    loss = train_fn(net, loader, context.run_config["local-epochs"], msg.content["config"]["lr"])
    metrics = {"train_loss": loss, "num-examples": len(loader.dataset)}
    content = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord(metrics)}
    return Message(RecordDict(content), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model on local data."""
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    _, loader = loaders(context)
    loss, accuracy = test_fn(net, loader)
    metrics = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(loader.dataset)}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
