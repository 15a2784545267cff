"""What models make of samples, outside an engine."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from coterie.core.vectors import Layout, state_dict

# Samples computed at once: all outputs of a convolutional network may not fit in memory.
CHUNK = 1024


class ModelOutputs:
    """What many models of one network make of samples. The network is copied once.

    Args:
        module: the network; its own parameters stay.
    """

    def __init__(self, module: nn.Module) -> None:
        # A copy: the network of a run has its first weights, from which it may be resumed.
        self._model = copy.deepcopy(module).eval()
        self._layout = Layout.of(module)

    @torch.no_grad()
    def of(self, vector: Tensor, x: Tensor) -> Tensor:
        """The outputs of a model in evaluation mode, ``[n, ...]``.

        Args:
            vector: float32 ``[d]``, the flat parameters of the model.
            x: ``[n, ...]``, the inputs; at least one.
        """
        # Frozen parameters and integer buffers are in no vector; the copy has them already.
        self._model.load_state_dict(state_dict(self._layout, vector), strict=False)
        return torch.cat([self._model(part) for part in x.split(CHUNK)])


def outputs_of(module: nn.Module, vector: Tensor, x: Tensor) -> Tensor:
    """The outputs of one model, see `ModelOutputs`."""
    return ModelOutputs(module).of(vector, x)
