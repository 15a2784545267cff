"""Losses of a batch, and their gradient for the outputs of the network: its errors."""

from __future__ import annotations

import numpy as np

from coterie.local.kernels.compilation import F32, I64, ONE, ZERO, Real, compiled


@compiled("f4(f4[:, ::1], i8[::1], b1)", in_order=True)
def errors(z: F32, y: I64, record: bool) -> Real:
    """``z <- softmax(z) - onehot(y)``, the gradient of the cross-entropy; returns the summed
    cross-entropy of the logits where it is to be recorded, else 0."""
    # Sums are taken in order: this one is compiled into its callers too, and reordered sums there
    # need not be reordered as they are here, so that a loss would depend on the caller.
    loss = ZERO
    for s in range(len(z)):
        row = z[s]
        # The largest logit is taken off first, since the exponential of 89 is beyond float32.
        top = row[0]
        for o in range(1, len(row)):
            top = max(top, row[o])
        label = row[y[s]] - top
        total = ZERO
        for o in range(len(row)):
            row[o] = np.exp(row[o] - top)
            total += row[o]
        for o in range(len(row)):
            row[o] /= total
        if record:
            loss += np.log(total) - label
        row[y[s]] -= ONE
    return loss


@compiled(in_order=True)
def squared_errors(z: F32, y: F32, record: bool) -> Real:
    """``z <- 2 (z - y) / t``, the gradient of the mean squared error of each sample's ``t`` targets;
    returns its sum over samples where it is to be recorded, else 0."""
    loss = ZERO
    targets = np.float32(y.shape[1])
    for s in range(len(z)):
        squares = ZERO
        for o in range(z.shape[1]):
            error = z[s, o] - y[s, o]
            squares += error * error
            z[s, o] = 2 * error / targets
        if record:
            loss += squares / targets
    return loss
