"""pfl-research: its simulated backend, one process, so many torch threads."""

import os
import sys

import numpy as np
import torch
from networks import NETWORKS
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from recipe_file import Recipe, report

torch.set_num_threads(int(os.environ["THREADS"]))
torch.manual_seed(0)
np.random.seed(0)  # noqa: NPY002 - pfl samples users from this stream
recipe = Recipe(sys.argv[1])
found = {}


class Net(torch.nn.Module):
    """A network with pfl's two methods."""

    def __init__(self) -> None:
        super().__init__()
        self.net = NETWORKS[recipe.network](recipe.x.shape[1:], recipe.classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def loss(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
        self.eval() if eval else self.train()
        return torch.nn.functional.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor, eval: bool = True) -> dict:
        self.eval() if eval else self.train()
        right = (self(x).argmax(1) == y).sum().item()
        return {"accuracy": Weighted(right, len(y))}


class Noted(CentralEvaluationCallback):
    """Keeps the last test's accuracy, and tests after a round rather than before it."""

    def on_train_begin(self, *, model):
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        if (central_iteration + 1) % recipe.every:
            return False, Metrics()
        _, metrics = self._eval(model)
        values = metrics.to_simple_dict()
        (found["accuracy"],) = [v for name, v in values.items() if "accuracy" in name]
        return False, metrics


def make(number: int) -> PyTorchTensorDataset:
    rows = recipe.client(number)
    tensors = (torch.from_numpy(recipe.x[rows]), torch.from_numpy(recipe.y[rows]))
    return PyTorchTensorDataset(tensors, user_id=str(number))


module = Net()
model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
users = list(range(recipe.clients))
data = FederatedDataset(make, get_user_sampler("minimize_reuse", users))
test = recipe.test
central = Dataset((torch.from_numpy(recipe.x[test]), torch.from_numpy(recipe.y[test])))
central = PyTorchTensorDataset(central.raw_data)
params = NNAlgorithmParams(
    central_num_iterations=recipe.rounds,
    evaluation_frequency=10**9,
    train_cohort_size=recipe.cohort,
    val_cohort_size=0,
)
local = NNTrainHyperParams(
    local_num_epochs=recipe.epochs,
    local_learning_rate=recipe.lr,
    local_batch_size=recipe.batch,
)
backend = SimulatedBackend(training_data=data, val_data=None, postprocessors=[WeightByDatapoints()])
FederatedAveraging().run(
    params,
    backend,
    model,
    local,
    callbacks=[Noted(central, model_eval_params=NNEvalHyperParams(local_batch_size=500))],
    send_metrics_to_platform=False,
)
report(found["accuracy"])
