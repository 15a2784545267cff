"""What models make of samples, outside an engine."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from coterie.core.vectors import Layout, state_dict

# Samples computed at once: all outputs of a convolutional network may not fit in memory.
CHUNK = 1024


@torch.no_grad()
def outputs_of(module: nn.Module, vector: Tensor, x: Tensor) -> Tensor:
    """The outputs of a model in evaluation mode, ``[n, ...]``.

    Args:
        module: the network; its own parameters stay.
        vector: float32 ``[d]``, the flat parameters of the model.
        x: ``[n, ...]``, the inputs; at least one.
    """
    # A copy: the network of a run has its first weights, from which it may be resumed.
    model = copy.deepcopy(module).eval()
    # Frozen parameters and integer buffers are in no vector; the copy has them already.
    model.load_state_dict(state_dict(Layout.of(module), vector), strict=False)
    return torch.cat([model(part) for part in x.split(CHUNK)])
