"""The closed form's arithmetic, compiled by Numba: one call for a whole pass over a client's samples.

With ten samples in a batch, what a library call costs is more than its arithmetic, and matrix products of ten rows run
at a quarter of the processor's rate. Here a block of five samples and two outputs stays in registers, and the weights
of two outputs are read from memory once a step. Machine code is kept on disk, so that a process compiles only once.

Nothing here is parallel: an engine has one process a core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
Real = float | np.floating[Any]
_F = TypeVar("_F", bound=Callable[..., Any])
_ZERO, _ONE = np.float32(0), np.float32(1)


def compiled(signature: str) -> Callable[[_F], _F]:
    """Compile now, for these types. Sums may be reordered, as in any BLAS; what is not finite stays so."""
    options = {"fastmath": {"reassoc", "contract", "nsz"}, "nogil": True, "error_model": "numpy"}

    def wrap(function: _F) -> _F:
        try:
            made: _F = numba.njit(signature, cache=True, **options)(function)
        except RuntimeError:  # nowhere to keep the machine code
            made = numba.njit(signature, **options)(function)
        return made

    return wrap


@compiled("void(f4[:, ::1], f4[:, ::1], f4[::1], f4[:, ::1])")
def multiply(h: F32, w: F32, bias: F32, out: F32) -> None:
    """``out = h w^T + bias``: ``[b, i] x [o, i] -> [b, o]``."""
    b, outputs, n = len(h), len(w), h.shape[1]
    fives, twos = b - b % 5, outputs - outputs % 2
    for o in range(0, twos, 2):
        w0, w1 = w[o], w[o + 1]
        for s in range(0, fives, 5):
            h0, h1, h2, h3, h4 = h[s], h[s + 1], h[s + 2], h[s + 3], h[s + 4]
            a0 = a1 = a2 = a3 = a4 = c0 = c1 = c2 = c3 = c4 = _ZERO
            for f in range(n):
                u, v = w0[f], w1[f]
                a0 += h0[f] * u
                a1 += h1[f] * u
                a2 += h2[f] * u
                a3 += h3[f] * u
                a4 += h4[f] * u
                c0 += h0[f] * v
                c1 += h1[f] * v
                c2 += h2[f] * v
                c3 += h3[f] * v
                c4 += h4[f] * v
            out[s, o], out[s + 1, o], out[s + 2, o], out[s + 3, o], out[s + 4, o] = a0, a1, a2, a3, a4
            o1 = o + 1
            out[s, o1], out[s + 1, o1], out[s + 2, o1], out[s + 3, o1], out[s + 4, o1] = c0, c1, c2, c3, c4
        for s in range(fives, b):
            h0 = h[s]
            a0 = c0 = _ZERO
            for f in range(n):
                a0 += h0[f] * w0[f]
                c0 += h0[f] * w1[f]
            out[s, o], out[s, o + 1] = a0, c0
    for o in range(twos, outputs):
        w0 = w[o]
        for s in range(b):
            h0 = h[s]
            a0 = _ZERO
            for f in range(n):
                a0 += h0[f] * w0[f]
            out[s, o] = a0
    for s in range(b):
        out[s] += bias


@compiled("void(f4, f4[:, :], f4[:, ::1], f4[:, ::1])")
def accumulate(rate: Real, delta: F32, h: F32, w: F32) -> None:
    """``w <- w + rate delta^T h``: ``[b, o] x [b, i] -> [o, i]``."""
    b, outputs, n = len(h), len(w), h.shape[1]
    fives, twos = b - b % 5, outputs - outputs % 2
    for o in range(0, twos, 2):
        w0, w1 = w[o], w[o + 1]
        for s in range(0, fives, 5):
            h0, h1, h2, h3, h4 = h[s], h[s + 1], h[s + 2], h[s + 3], h[s + 4]
            a0, c0 = rate * delta[s, o], rate * delta[s, o + 1]
            a1, c1 = rate * delta[s + 1, o], rate * delta[s + 1, o + 1]
            a2, c2 = rate * delta[s + 2, o], rate * delta[s + 2, o + 1]
            a3, c3 = rate * delta[s + 3, o], rate * delta[s + 3, o + 1]
            a4, c4 = rate * delta[s + 4, o], rate * delta[s + 4, o + 1]
            for f in range(n):
                w0[f] += a0 * h0[f] + a1 * h1[f] + a2 * h2[f] + a3 * h3[f] + a4 * h4[f]
                w1[f] += c0 * h0[f] + c1 * h1[f] + c2 * h2[f] + c3 * h3[f] + c4 * h4[f]
        for s in range(fives, b):
            h0 = h[s]
            a0, c0 = rate * delta[s, o], rate * delta[s, o + 1]
            for f in range(n):
                w0[f] += a0 * h0[f]
                w1[f] += c0 * h0[f]
    for o in range(twos, outputs):
        w0 = w[o]
        for s in range(b):
            h0 = h[s]
            a0 = rate * delta[s, o]
            for f in range(n):
                w0[f] += a0 * h0[f]


@compiled("f4(f4[:, ::1], i8[::1], b1)")
def errors(z: F32, y: I64, record: bool) -> Real:
    """``z <- softmax(z) - onehot(y)``; the summed cross-entropy of the logits where it is to be recorded."""
    loss = _ZERO
    for s in range(len(z)):
        row = z[s]
        top = row[0]
        for o in range(1, len(row)):
            top = max(top, row[o])
        total = _ZERO
        for o in range(len(row)):
            row[o] = np.exp(row[o] - top)
            total += row[o]
        for o in range(len(row)):
            row[o] /= total
        if record:
            loss -= np.log(max(row[y[s]], np.float32(1e-30)))
        row[y[s]] -= _ONE
    return loss


@compiled("void(f4, f4, f4[::1], f4[::1])")
def pull(shrink: Real, back: Real, start: F32, w: F32) -> None:
    """``w <- shrink w + back w_start``: L2 and the proximal term of a step."""
    for f in range(len(w)):
        w[f] = shrink * w[f] + back * start[f]


@compiled("f4(f4[::1], f4[::1], i8[::1], b1[::1], f4[:, ::1], i8[::1], i8[::1], i8, f4, f4, f4, b1)")
def descend(
    vector: F32,
    start: F32,
    widths: I64,
    decayed: NDArray[np.bool_],
    x: F32,
    y: I64,
    order: I64,
    batch: int,
    lr: Real,
    l2: Real,
    mu: Real,
    record: bool,
) -> Real:
    """SGD steps over the samples ``order``; changes ``vector`` in place.

    Args:
        vector: ``[d]``, kernel ``[o, i]`` and bias ``[o]`` of each layer in turn.
        start: ``[d]``, what the proximal term pulls to.
        widths: from input to classes.
        decayed: which kernels have L2.
        x: ``[n, i]``.
        y: ``[n]``.
        order: samples of this pass.
        batch: samples a step.
        record: whether to return the summed loss.
    """
    layers, most = len(widths) - 1, min(batch, len(order))
    begins = np.zeros(layers + 1, np.int64)  # of the layers in the vector
    rows = np.zeros(layers + 2, np.int64)  # of the activations in their buffer
    for at in range(layers):
        begins[at + 1] = begins[at] + (widths[at] + 1) * widths[at + 1]
    for at in range(layers + 1):
        rows[at + 1] = rows[at] + most * widths[at]
    acts, deltas, loss = np.empty(rows[-1], np.float32), np.empty(rows[-1], np.float32), _ZERO
    for first in range(0, len(order), batch):
        b = min(batch, len(order) - first)
        h = acts[: b * widths[0]].reshape(b, widths[0])
        labels = np.empty(b, np.int64)
        for s in range(b):
            h[s], labels[s] = x[order[first + s]], y[order[first + s]]
        for at in range(layers):
            i, o, begin = widths[at], widths[at + 1], begins[at]
            kernel = vector[begin : begin + o * i].reshape(o, i)
            z = acts[rows[at + 1] : rows[at + 1] + b * o].reshape(b, o)
            multiply(h, kernel, vector[begin + o * i : begins[at + 1]], z)
            if at < layers - 1:
                for s in range(b):
                    for f in range(o):
                        z[s, f] = max(z[s, f], _ZERO)
            h = z
        loss += errors(h, labels, record)
        delta = h
        for back in range(layers):
            at = layers - 1 - back
            i, o, begin = widths[at], widths[at + 1], begins[at]
            kernel = vector[begin : begin + o * i].reshape(o, i)
            bias = vector[begin + o * i : begins[at + 1]]
            h = acts[rows[at] : rows[at] + b * i].reshape(b, i)
            below = deltas[rows[at] : rows[at] + b * i].reshape(b, i)
            if at:
                below[:] = 0
                accumulate(_ONE, delta.T, kernel, below)
                for s in range(b):
                    for f in range(i):
                        if not h[s, f] > 0:
                            below[s, f] = 0
            if mu or (l2 and decayed[at]):
                shrink, anchor = _ONE - lr * mu, start[begin : begins[at + 1]]
                pull(shrink - 2 * lr * l2 * decayed[at], lr * mu, anchor[: o * i], vector[begin : begin + o * i])
                pull(shrink, lr * mu, anchor[o * i :], bias)
            rate = -lr / np.float32(b)
            accumulate(rate, delta, h, kernel)
            for s in range(b):
                for f in range(o):
                    bias[f] += rate * delta[s, f]
            delta = below
    return loss
