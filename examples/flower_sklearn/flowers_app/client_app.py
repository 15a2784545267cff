"""An ordinary ClientApp: it trains and evaluates the model that it is sent."""

import warnings

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.metrics import log_loss

from flowers_app.task import CLASSES, create_model, get_params, load_data, set_params

app = ClientApp()


def received(msg: Message, context: Context):
    """The model that the node was sent, and its data."""
    model = create_model(context.run_config["local-epochs"])
    set_params(model, msg.content["arrays"].to_numpy_ndarrays())
    partition = context.node_config["partition-id"]
    return model, load_data(partition, context.node_config["num-partitions"])


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    model, (x, y, _, _) = received(msg, context)
    with warnings.catch_warnings():
        # A few steps are not meant to converge.
        warnings.simplefilter("ignore")
        model.fit(x, y)
    loss = log_loss(y, model.predict_proba(x), labels=range(CLASSES))
    metrics = {"num-examples": len(y), "train_logloss": loss}
    content = {"arrays": ArrayRecord(get_params(model)), "metrics": MetricRecord(metrics)}
    return Message(RecordDict(content), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model on local data."""
    model, (_, _, x, y) = received(msg, context)
    loss = log_loss(y, model.predict_proba(x), labels=range(CLASSES))
    metrics = {"num-examples": len(y), "test_logloss": loss, "accuracy": model.score(x, y)}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
