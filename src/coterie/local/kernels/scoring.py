"""Samples scored under a model: what it predicts, and its cross-entropy."""

from __future__ import annotations

import numba
import numpy as np

from coterie.local.kernels.compilation import F32, I64, ZERO, on_demand
from coterie.local.kernels.inner_loops import copy_row
from coterie.local.kernels.network import Layers, forward, make_buffers

_F4 = numba.float32
_I8 = numba.int64


@on_demand(
    lambda layers: numba.void(
        _F4[::1], layers, _F4[:, ::1], _I8[::1], _I8[::1], _I8[::1], _F4[::1], _I8
    )
)
def score(
    vector: F32,
    layers: Layers,
    x: F32,
    y: I64,
    rows: I64,
    best: I64,
    loss: F32,
    block: int,
) -> None:
    """The class with the largest logit and the cross-entropy of samples ``rows``, into ``best`` and
    ``loss``.

    All blocks are computed as if they were full, so that a sample's figures have the same bits in
    any block and on any number of threads. ``block`` is a multiple of five, which `multiply` takes
    at once; as a constant it would have the network compiled once more.
    """
    buffers = make_buffers(layers, block)
    given = buffers.given
    inputs = given[0]
    logits = given[-1]
    for first in range(0, len(rows), block):
        b = min(block, len(rows) - first)
        for s in range(b):
            copy_row(x[rows[first + s]], inputs[s])
        forward(vector, layers, buffers, block, None)
        for s in range(b):
            z = logits[s]
            label = y[rows[first + s]]
            # Of equal logits the first, as torch's argmax.
            top = 0
            total = ZERO
            for o in range(1, len(z)):
                top = o if z[o] > z[top] else top
            for o in range(len(z)):
                total += np.exp(z[o] - z[top])
            best[first + s] = top
            loss[first + s] = np.log(total) + z[top] - z[label]
