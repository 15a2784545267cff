"""pfl-research: its simulated backend, one process and one torch thread."""

import os
import sys
import time

import numpy as np
import torch
from nets import flat, load, net
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from task import Task, say, wait_for_round

torch.set_num_threads(int(os.environ["THREADS"]))
task = Task(sys.argv[1])
out = sys.argv[2]


class Net(torch.nn.Module):
    """A network with pfl's two methods."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net(task.model)
        load(self.net, task.w0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def loss(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
        self.eval() if eval else self.train()
        return torch.nn.functional.cross_entropy(self(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor, eval: bool = True) -> dict:
        return {"loss": Weighted(self.loss(x, y, eval).item() * len(y), len(y))}


class Shuffled(PyTorchTensorDataset):
    """A user's tensors in the given order of each epoch; pfl's own cuts the same batches in every
    epoch."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, order: torch.Tensor, user_id: str) -> None:
        super().__init__((x, y), user_id=user_id)
        self.order = order
        self.epoch = 0

    def iter(self, batch_size: int | None):
        if batch_size is None:
            yield self.raw_data
            return
        x, y = (tensor[self.order[self.epoch]] for tensor in self.raw_data)
        self.epoch = (self.epoch + 1) % len(self.order)
        yield from zip(x.split(batch_size), y.split(batch_size), strict=True)


asked = iter((t, k) for t in range(len(task._cohort)) for k in range(task.clients))


def make(user: tuple[int, int]) -> Shuffled:
    id, x, y, order = task.client(*user)
    return Shuffled(torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(order), str(id))


class Waits(TrainingProcessCallback):
    """Waits to be told before each round."""

    def on_train_begin(self, *, model):
        say("ready")
        self._wait(0)
        return super().on_train_begin(model=model)

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        say("done", time.perf_counter() - self.begun)
        if central_iteration == 0:
            np.save(out, flat(model.pytorch_model))
        self._wait(central_iteration + 1)
        return False, super().after_central_iteration(
            aggregate_metrics, model, central_iteration=central_iteration
        )[1]

    def _wait(self, round: int) -> None:
        if not wait_for_round(round):
            os._exit(0)
        self.begun = time.perf_counter()


module = Net()
model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
data = FederatedDataset(make, lambda: next(asked))
params = NNAlgorithmParams(
    central_num_iterations=len(task._cohort),
    evaluation_frequency=10**9,
    train_cohort_size=task.clients,
    val_cohort_size=0,
)
local = NNTrainHyperParams(
    local_num_epochs=task.epochs, local_learning_rate=task.lr, local_batch_size=task.batch
)
backend = SimulatedBackend(training_data=data, val_data=None, postprocessors=[WeightByDatapoints()])
FederatedAveraging().run(
    params, backend, model, local, callbacks=[Waits()], send_metrics_to_platform=False
)
