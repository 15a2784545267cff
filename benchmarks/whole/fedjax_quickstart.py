"""FedJAX: its own federated averaging on the default backend, as its quick start has it."""

import sys

import jax

jax.tree_map = jax.tree_util.tree_map  # FedJAX 0.0.17 calls it by its old name

import fedjax  # noqa: E402
import haiku as hk  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from recipe_file import Recipe, report  # noqa: E402

recipe = Recipe(sys.argv[1])
images = recipe.x.ndim == 4 and recipe.network != "mclr"
# JAX has channels last.
inputs = np.ascontiguousarray(recipe.x.transpose(0, 2, 3, 1)) if images else recipe.x


def forward(batch: dict) -> jnp.ndarray:
    """The same networks in haiku."""
    x = batch["x"]
    if recipe.network == "mclr":
        return hk.Linear(recipe.classes)(hk.Flatten()(x))
    if recipe.network == "pfl_cnn":
        for channels in (32, 64):
            x = jax.nn.relu(hk.Conv2D(channels, 3, padding="VALID")(x))
        x = hk.MaxPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID")(x)
        return hk.nets.MLP([128, recipe.classes])(hk.Flatten()(x))
    assert recipe.network == "blazefl_cnn", recipe.network
    for channels in (32, 64):
        x = jax.nn.relu(hk.Conv2D(channels, 5, padding="VALID")(x))
        x = hk.MaxPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID")(x)
    return hk.nets.MLP([512, recipe.classes])(hk.Flatten()(x))


model = fedjax.create_model_from_haiku(
    transformed_forward_pass=hk.transform(forward),
    sample_batch={"x": inputs[:1], "y": recipe.y[:1]},
    train_loss=lambda batch, scores: fedjax.metrics.unreduced_cross_entropy_loss(
        batch["y"], scores
    ),
    eval_metrics={"accuracy": fedjax.metrics.Accuracy()},
)
grad = fedjax.model_grad(model)
algorithm = fedjax.algorithms.fed_avg.federated_averaging(
    grad,
    fedjax.optimizers.sgd(learning_rate=recipe.lr),
    fedjax.optimizers.sgd(learning_rate=1.0),
    fedjax.ShuffleRepeatBatchHParams(batch_size=recipe.batch, num_epochs=recipe.epochs, seed=0),
)


def samples(rows: np.ndarray) -> dict:
    return {"x": inputs[rows], "y": recipe.y[rows]}


clients = {f"{number}".encode(): samples(recipe.client(number)) for number in range(recipe.clients)}
sampler = fedjax.client_samplers.UniformGetClientSampler(
    fedjax.InMemoryFederatedData(clients), num_clients=recipe.cohort, seed=0
)
test = fedjax.ClientDataset(samples(recipe.test))
state = algorithm.init(model.init(jax.random.PRNGKey(0)))
last = 0.0
for round in range(1, recipe.rounds + 1):
    state, _ = algorithm.apply(state, sampler.sample())
    if round % recipe.every == 0:
        batches = test.padded_batch(batch_size=500)
        last = float(fedjax.evaluate_model(model, state.params, batches)["accuracy"])
report(last)
