"""FedJAX: ``for_each_client`` with its jit backend (default), or its pmap backend over so many
devices of the CPU."""

import os
import sys

CORES = int(os.environ["CORES"])
BACKEND = os.environ["BACKEND"]
if BACKEND == "pmap":
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={CORES}"

import haiku as hk  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from fedjax.core import for_each_client as fec  # noqa: E402
from task import Task, serve  # noqa: E402

task = Task(sys.argv[1])
out = sys.argv[2]


def forward(x: jnp.ndarray) -> jnp.ndarray:
    """The same networks in haiku."""
    if task.model == "mclr":
        return hk.Linear(10)(hk.Flatten()(x))
    if task.model == "mlp":
        return hk.nets.MLP([128, 10])(hk.Flatten()(x))
    for channels in (6, 16):
        x = jax.nn.relu(hk.Conv2D(channels, 5, padding="VALID")(x))
        x = hk.MaxPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID")(x)
    return hk.nets.MLP([120, 84, 10])(hk.Flatten()(x))


network = hk.without_apply_rng(hk.transform(forward))
inputs = np.ascontiguousarray(task.x.transpose(0, 2, 3, 1)) if task.model == "lenet5" else task.x
template = network.init(jax.random.PRNGKey(0), inputs[:1])


def structured(vector: np.ndarray) -> dict:
    """From the flat vector: kernels are transposed, and the first dense one after images counts
    channels last."""
    found = {}
    at = 0
    for layer, named in template.items():
        shape = named["w"].shape
        if len(shape) == 4:
            w = (
                vector[at : at + named["w"].size]
                .reshape(shape[3], shape[2], shape[0], shape[1])
                .transpose(2, 3, 1, 0)
            )
        else:
            w = vector[at : at + named["w"].size].reshape(shape[1], shape[0]).T
            if shape[0] == 400:
                w = w.reshape(16, 5, 5, -1).transpose(1, 2, 0, 3).reshape(400, -1)
        at += named["w"].size
        found[layer] = {"w": jnp.asarray(w), "b": jnp.asarray(vector[at : at + named["b"].size])}
        at += named["b"].size
    return found


def flat(params: dict) -> np.ndarray:
    """The way back."""
    parts = []
    for layer in template:
        w = np.asarray(params[layer]["w"])
        if w.ndim == 4:
            w = w.transpose(3, 2, 0, 1)
        else:
            w = (
                w.reshape(5, 5, 16, -1).transpose(2, 0, 1, 3).reshape(400, -1)
                if w.shape[0] == 400
                else w
            )
            w = w.T
        parts += [w.ravel(), np.asarray(params[layer]["b"])]
    return np.concatenate(parts)


def loss(params: dict, batch: dict) -> jnp.ndarray:
    """Mean cross-entropy of the samples that are not padding."""
    scores = jax.nn.log_softmax(network.apply(params, batch["x"]))
    each = -jnp.take_along_axis(scores, batch["y"][:, None], axis=1)[:, 0]
    return jnp.sum(each * batch["m"]) / jnp.sum(batch["m"])


def client_step(params: dict, batch: dict) -> tuple[dict, tuple]:
    grads = jax.grad(loss)(params, batch)
    return jax.tree_util.tree_map(lambda w, g: w - task.lr * g, params, grads), ()


def batches(number: int, round: int) -> list[dict]:
    """The batches of a client, the last of an epoch padded, so that one shape is compiled."""
    start, stop = task._at[round, number]
    mine = task._rows[start:stop]
    b = task.batch
    x = inputs[mine]
    y = task.y[mine]
    order = task._order[start * task.epochs : stop * task.epochs].reshape(task.epochs, stop - start)
    made = []
    for epoch in order:
        for at in range(0, len(y), b):
            rows = epoch[at : at + b]
            pad = [(0, b - len(rows))]
            mask = np.pad(np.ones(len(rows), np.float32), pad)
            padded = np.pad(x[rows], pad + [(0, 0)] * (x.ndim - 1)) if len(rows) < b else x[rows]
            made.append({"x": padded, "y": np.pad(y[rows], pad), "m": mask})
    return made


backend = fec.ForEachClientPmapBackend() if BACKEND == "pmap" else fec.ForEachClientJitBackend()
for_each_client = backend(lambda shared, own: shared, client_step, lambda shared, state: state)
params = structured(task.w0)


def run(round: int) -> np.ndarray:
    global params
    sizes = np.diff(task._at[round])[:, 0].tolist()
    own = jnp.zeros(1)
    clients = ((k, batches(k, round), own) for k in range(task.clients))
    total = None
    for k, trained, _ in for_each_client(params, clients):
        if (
            BACKEND == "pmap"
        ):  # of newer jax: on its own device, with an axis of length one in front
            trained = jax.tree_util.tree_map(
                lambda x, w: np.asarray(x).reshape(w.shape), trained, params
            )
        weighted = jax.tree_util.tree_map(lambda w, share=sizes[k] / sum(sizes): w * share, trained)
        total = weighted if total is None else jax.tree_util.tree_map(jnp.add, total, weighted)
    params = jax.block_until_ready(total)
    return flat(params)


serve(run, out)
