"""The closed form's arithmetic, compiled by Numba: one call for a client's whole training.

With ten samples in a batch, what a library call costs is more than its arithmetic, and matrix
products of ten rows, or convolutions of a few channels, run at a quarter of the processor's rate.
Here sums of five inputs for two outputs at a time stay in registers. Machine code is kept on disk
where there is room for it, so that only the first process compiles.

Nothing here is parallel: an engine has one process a core.

All kernels are in one file, long as it is: Numba keeps a function's machine code with that of the
functions it calls, and makes it anew only when the function's own file has changed. A kernel that
called one in another file could run the other's old code after an edit.

Names are short, as in the formulas: ``h`` is what a layer is given, ``w`` its kernel, ``z`` what it
puts out before the relu, ``b`` the samples of a batch, ``o`` an output, ``i`` or ``f`` an input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
Real = float | np.floating[Any]
_F = TypeVar("_F", bound=Callable[..., Any])
_ZERO = np.float32(0)
_ONE = np.float32(1)
_CACHED = 2**16  # values of a kernel that stay in a processor's second cache beside the samples


def compiled(signature: str | None = None, *, in_order: bool = False) -> Callable[[_F], _F]:
    """Compile, now for these types or with the caller. What is not finite stays so.

    Sums may be reordered, unless they are to be taken ``in_order``: of a function whose caller gets
    a copy of its own, the compiler may reorder the two in two ways, and which one runs depends on
    what was compiled before.
    """
    # `reassoc` lets the compiler reorder a sum, which is what makes vectors of it; `contract` joins
    # a product and a sum; `nsz` forgets the sign of zero. Left out are `nnan` and `ninf`, by which
    # numbers are taken to be finite: a client that diverged would not be seen.
    options = {
        "fastmath": {"contract", "nsz"} if in_order else {"reassoc", "contract", "nsz"},
        # Without the interpreter's lock, so that scoring may take threads.
        "nogil": True,
        # A division by zero gives infinity and no exception, which would cost a test each time.
        "error_model": "numpy",
        "no_cfunc_wrapper": True,
    }

    def wrap(function: _F) -> _F:
        try:
            made: _F = numba.njit(signature, cache=True, **options)(function)
        except (RuntimeError, OSError):  # nowhere to keep the machine code
            made = numba.njit(signature, **options)(function)
        return made

    return wrap


@compiled("void(f4[:, ::1], f4[:, ::1], f4[::1], f4[:, ::1])")
def multiply(h: F32, w: F32, bias: F32, out: F32) -> None:
    """``out = h w^T + bias``: ``[b, i] x [o, i] -> [b, o]``."""
    b = len(h)
    outputs = len(w)
    n = h.shape[1]
    # Five samples times two outputs are ten sums, which stay in registers while seven values are
    # read for them: that is what makes it fast. Batches have ten samples more often than not, so
    # that five divides them. What is left over is done one by one below.
    fives = b - b % 5
    twos = outputs - outputs % 2
    # rows of w that stay in the cache while all samples pass by
    block = max(2, _CACHED // (2 * n) * 2)
    for first in range(0, twos, block):
        for s in range(0, fives, 5):
            h0 = h[s]
            h1 = h[s + 1]
            h2 = h[s + 2]
            h3 = h[s + 3]
            h4 = h[s + 4]
            for o in range(first, min(twos, first + block), 2):
                w0 = w[o]
                w1 = w[o + 1]
                a0 = a1 = a2 = a3 = a4 = c0 = c1 = c2 = c3 = c4 = _ZERO
                for f in range(n):
                    u = w0[f]
                    v = w1[f]
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
                out[s, o] = a0
                out[s + 1, o] = a1
                out[s + 2, o] = a2
                out[s + 3, o] = a3
                out[s + 4, o] = a4
                out[s, o + 1] = c0
                out[s + 1, o + 1] = c1
                out[s + 2, o + 1] = c2
                out[s + 3, o + 1] = c3
                out[s + 4, o + 1] = c4
    for s in range(fives, b):
        h0 = h[s]
        for o in range(0, twos, 2):
            w0 = w[o]
            w1 = w[o + 1]
            a0 = c0 = _ZERO
            for f in range(n):
                a0 += h0[f] * w0[f]
                c0 += h0[f] * w1[f]
            out[s, o] = a0
            out[s, o + 1] = c0
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
    b = len(h)
    outputs = len(w)
    n = h.shape[1]
    # As in `multiply`, but here the sums run over samples: two rows of w pass through the
    # registers once for five samples, instead of once for each.
    fives = b - b % 5
    twos = outputs - outputs % 2
    for o in range(0, twos, 2):
        w0 = w[o]
        w1 = w[o + 1]
        for s in range(0, fives, 5):
            h0 = h[s]
            h1 = h[s + 1]
            h2 = h[s + 2]
            h3 = h[s + 3]
            h4 = h[s + 4]
            a0 = rate * delta[s, o]
            c0 = rate * delta[s, o + 1]
            a1 = rate * delta[s + 1, o]
            c1 = rate * delta[s + 1, o + 1]
            a2 = rate * delta[s + 2, o]
            c2 = rate * delta[s + 2, o + 1]
            a3 = rate * delta[s + 3, o]
            c3 = rate * delta[s + 3, o + 1]
            a4 = rate * delta[s + 4, o]
            c4 = rate * delta[s + 4, o + 1]
            for f in range(n):
                w0[f] += a0 * h0[f] + a1 * h1[f] + a2 * h2[f] + a3 * h3[f] + a4 * h4[f]
                w1[f] += c0 * h0[f] + c1 * h1[f] + c2 * h2[f] + c3 * h3[f] + c4 * h4[f]
        for s in range(fives, b):
            h0 = h[s]
            a0 = rate * delta[s, o]
            c0 = rate * delta[s, o + 1]
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


@compiled("f4(f4[:, ::1], i8[::1], b1)", in_order=True)
def errors(z: F32, y: I64, record: bool) -> Real:
    """``z <- softmax(z) - onehot(y)``, the gradient of the cross-entropy; returns the summed
    cross-entropy of the logits where it is to be recorded, else 0."""
    # Sums are taken in order: this one is compiled into its callers too, and reordered sums there
    # need not be reordered as they are here, so that a loss would depend on the caller.
    loss = _ZERO
    for s in range(len(z)):
        row = z[s]
        # The largest logit is taken off first, since the exponential of 89 is beyond float32.
        top = row[0]
        for o in range(1, len(row)):
            top = max(top, row[o])
        label = row[y[s]] - top
        total = _ZERO
        for o in range(len(row)):
            row[o] = np.exp(row[o] - top)
            total += row[o]
        for o in range(len(row)):
            row[o] /= total
        if record:
            loss += np.log(total) - label
        row[y[s]] -= _ONE
    return loss


@compiled("void(f4[:, ::1], f4[::1], i8[::1], f4[:, ::1])")
def convolve(w: F32, x: F32, taps: I64, out: F32) -> None:
    """``out[o, p] += sum_t w[o, t] x[taps[t] + p]``.

    A convolution of stride 1 over images that lie row after row in ``x``. Every tap of the kernel
    multiplies the same image, begun at another place, so that the inner loop is one long run over
    neighbouring values and needs no test for the end of a row. Places ``p`` that would straddle
    two rows are computed too, and never read.
    """
    outputs, n = out.shape
    # Five taps at once, so that the sums pass through the registers once for five products.
    fives = len(taps) - len(taps) % 5
    twos = outputs - outputs % 2
    for o in range(0, twos, 2):
        z0 = out[o]
        z1 = out[o + 1]
        for t in range(0, fives, 5):
            h0 = x[taps[t] :][:n]
            h1 = x[taps[t + 1] :][:n]
            h2 = x[taps[t + 2] :][:n]
            h3 = x[taps[t + 3] :][:n]
            h4 = x[taps[t + 4] :][:n]
            a0 = w[o, t]
            a1 = w[o, t + 1]
            a2 = w[o, t + 2]
            a3 = w[o, t + 3]
            a4 = w[o, t + 4]
            o1 = o + 1
            c0 = w[o1, t]
            c1 = w[o1, t + 1]
            c2 = w[o1, t + 2]
            c3 = w[o1, t + 3]
            c4 = w[o1, t + 4]
            for p in range(n):
                z0[p] += a0 * h0[p] + a1 * h1[p] + a2 * h2[p] + a3 * h3[p] + a4 * h4[p]
                z1[p] += c0 * h0[p] + c1 * h1[p] + c2 * h2[p] + c3 * h3[p] + c4 * h4[p]
        for t in range(fives, len(taps)):
            h0 = x[taps[t] :][:n]
            a0 = w[o, t]
            c0 = w[o + 1, t]
            for p in range(n):
                z0[p] += a0 * h0[p]
                z1[p] += c0 * h0[p]
    for o in range(twos, outputs):
        z0 = out[o]
        for t in range(len(taps)):
            h0 = x[taps[t] :][:n]
            a0 = w[o, t]
            for p in range(n):
                z0[p] += a0 * h0[p]


@compiled("void(f4[::1], i8[::1], i8, f4[::1], i8[::1], f4[:, ::1])")
def correlate(delta: F32, rows: I64, n: int, x: F32, taps: I64, out: F32) -> None:
    """``out[o, t] += sum_p delta[rows[o] + p] x[taps[t] + p]``, ``p < n``: the gradient of a
    convolution's kernel."""
    # Five taps times two outputs are ten sums in registers, as in `multiply`. Places that straddle
    # two rows add nothing, since their errors are zero.
    fives = len(taps) - len(taps) % 5
    twos = len(rows) - len(rows) % 2
    for o in range(0, twos, 2):
        d0 = delta[rows[o] :][:n]
        d1 = delta[rows[o + 1] :][:n]
        for t in range(0, fives, 5):
            h0 = x[taps[t] :][:n]
            h1 = x[taps[t + 1] :][:n]
            h2 = x[taps[t + 2] :][:n]
            h3 = x[taps[t + 3] :][:n]
            h4 = x[taps[t + 4] :][:n]
            a0 = a1 = a2 = a3 = a4 = c0 = c1 = c2 = c3 = c4 = _ZERO
            for p in range(n):
                u = d0[p]
                v = d1[p]
                a0 += u * h0[p]
                a1 += u * h1[p]
                a2 += u * h2[p]
                a3 += u * h3[p]
                a4 += u * h4[p]
                c0 += v * h0[p]
                c1 += v * h1[p]
                c2 += v * h2[p]
                c3 += v * h3[p]
                c4 += v * h4[p]
            for k, a in enumerate((a0, a1, a2, a3, a4)):
                out[o, t + k] += a
            for k, c in enumerate((c0, c1, c2, c3, c4)):
                out[o + 1, t + k] += c
        for t in range(fives, len(taps)):
            h0 = x[taps[t] :][:n]
            a0 = c0 = _ZERO
            for p in range(n):
                a0 += d0[p] * h0[p]
                c0 += d1[p] * h0[p]
            out[o, t] += a0
            out[o + 1, t] += c0
    for o in range(twos, len(rows)):
        d0 = delta[rows[o] :][:n]
        for t in range(len(taps)):
            h0 = x[taps[t] :][:n]
            a0 = _ZERO
            for p in range(n):
                a0 += d0[p] * h0[p]
            out[o, t] += a0


@compiled("void(f4[:, ::1], i8, i8, i8, f4[::1], i8[::1])")
def max_pool(z: F32, width: int, down: int, across: int, out: F32, spots: I64) -> None:
    """``out = relu(maxpool(z))`` over squares of two; ``spots``: where each value came from, -1
    where nothing passed.

    Args:
        z: ``[o, n]``, images whose rows of ``width`` lie side by side.
        width: of these rows.
        down: rows of ``out``.
        across: columns of ``out``.
        out: ``[o down across]``.
        spots: of the same length.
    """
    at = 0
    for o in range(len(z)):
        image = z[o]
        for y in range(down):
            for x in range(across):
                spot = 2 * y * width + 2 * x
                best = image[spot]
                # A NaN wins, as in torch: what diverged must be seen to have diverged.
                for other in (spot + 1, spot + width, spot + width + 1):
                    if image[other] > best or np.isnan(image[other]):
                        best = image[other]
                        spot = other
                nothing = best <= 0
                out[at] = _ZERO if nothing else best
                spots[at] = -1 if nothing else spot
                at += 1


@compiled("void(f4[::1], i8, i8, i8, i8, f4[::1], b1)")
def frame(
    image: F32, channels: int, down: int, across: int, pad: int, framed: F32, out_of: bool
) -> None:
    """Images ``[c, down, across]`` into their frames of ``pad`` zeros on each side, or out of
    them."""
    width = across + 2 * pad
    at = 0
    for c in range(channels):
        for y in range(down):
            to = (c * (down + 2 * pad) + y + pad) * width + pad
            if out_of:
                image[at : at + across] = framed[to : to + across]
            else:
                framed[to : to + across] = image[at : at + across]
            at += across


@compiled("i8[::1](i8, i8, i8, i8)")
def taps_of(channels: int, size: int, width: int, kernel: int) -> I64:
    """Where each tap of a kernel begins, in images of ``size`` values whose rows of ``width`` lie
    side by side."""
    taps = np.empty(channels * kernel * kernel, np.int64)
    at = 0
    for c in range(channels):
        for y in range(kernel):
            for x in range(kernel):
                taps[at] = c * size + y * width + x
                at += 1
    return taps


@compiled("void(f4[::1], i8[::1], f4[:, ::1], f4[:, ::1], i8[:, ::1])")
def conv_forward(vector: F32, conv: I64, images: F32, out: F32, spots: I64) -> None:
    """``out = relu(maxpool(conv(images)))`` of a batch.

    Args:
        vector: ``[d]``.
        conv: channels in, height, width, padding, kernel, channels out, place in the vector.
        images: ``[b, c h w]``, framed.
        out: ``[b, o h' w']``.
        spots: of that shape, see ``max_pool``.
    """
    c, height, width, pad, k, o, begin = conv
    height = height + 2 * pad
    width = width + 2 * pad
    down = height - k + 1
    across = width - k + 1
    taps = taps_of(c, height * width, width, k)
    w = vector[begin : begin + o * len(taps)].reshape(o, len(taps))
    bias = vector[begin + o * len(taps) : begin + o * (len(taps) + 1)]
    z = np.empty((o, (down - 1) * width + across), np.float32)
    for s in range(len(images)):
        for i in range(o):
            z[i] = bias[i]
        convolve(w, images[s], taps, z)
        max_pool(z, width, down // 2, across // 2, out[s], spots[s])


@compiled("void(f4[::1], i8[::1], f4[:, ::1], f4[:, ::1], i8[:, ::1], f4[:, ::1], f4[::1])")
def conv_backward(
    vector: F32, conv: I64, images: F32, delta: F32, spots: I64, below: F32, gradient: F32
) -> None:
    """The way back of ``conv_forward``: the gradient of its kernel and bias, and of its images
    where ``below`` has room.

    Args:
        vector: ``[d]``.
        conv: as for ``conv_forward``.
        images: ``[b, c h w]``, framed.
        delta: ``[b, o h' w']``, the gradient of what it gave.
        spots: from ``conv_forward``.
        below: ``[b, c h w]``, without a frame; ``[b, 0]``: not asked for.
        gradient: of this layer's part of the vector.
    """
    c, height, width, pad, k, o, begin = conv
    inner_height = height
    inner_width = width
    height = height + 2 * pad
    width = width + 2 * pad
    taps = taps_of(c, height * width, width, k)
    n = (height - k) * width + width - k + 1
    # The errors of each channel lie between two margins of zeros, so that a turned kernel may begin
    # before the first of them and end behind the last.
    margin = taps_of(1, 0, width, k)[-1]
    each = n + 2 * margin
    cells = delta.shape[1] // o
    rows = np.arange(o) * each + margin
    spread = np.zeros(o * each, np.float32)
    # Summed over the batch before anything is changed, since the images below need this kernel.
    gradient[:] = 0
    kernel = gradient[: o * len(taps)].reshape(o, len(taps))
    bias = gradient[o * len(taps) :]
    # The gradient of the images, sum_o w[o, c, t] errors[o, q - t], is a convolution, too: of the
    # errors, with the kernel turned around.
    back = np.empty(o * k * k, np.int64)
    turned = np.empty((c, len(back)), np.float32)
    for i in range(o):
        for t in range(k * k):
            back[i * k * k + t] = rows[i] - taps[t]
            for j in range(c):
                turned[j, i * k * k + t] = vector[begin + (i * c + j) * k * k + t]
    framed = np.empty((c, height * width), np.float32)
    for s in range(len(images)):
        # Each pooled value hands its error to the place that it came from; the others have none.
        spread[:] = 0
        for i in range(o):
            for at in range(i * cells, (i + 1) * cells):
                if spots[s, at] >= 0:
                    spread[rows[i] + spots[s, at]] = delta[s, at]
                    bias[i] += delta[s, at]
        correlate(spread, rows, n, images[s], taps, kernel)
        if below.shape[1]:
            framed[:] = 0
            convolve(turned, spread, back, framed)
            frame(below[s], c, inner_height, inner_width, pad, framed.ravel(), True)


@compiled("void(f4[::1], f4[::1], f4[::1], f4, i8, i8, f4, f4)")
def regularise(
    out: F32, vector: F32, start: F32, rate: Real, begin: int, end: int, l2: Real, mu: Real
) -> None:
    """L2 and the proximal term of a step: ``out <- out + rate (2 l2 w + mu (w - w_start))``."""
    if mu or l2:
        for f in range(begin, end):
            out[f] += rate * (2 * l2 * vector[f] + mu * (vector[f] - start[f]))


class Buffers(NamedTuple):
    """Room for a batch on its way through the layers.

    Args:
        given: what each layer is given, and last the logits: ``[b, n]`` each.
        images: what each convolution is given, in frames of zeros.
        spots: where pooled values came from, see ``max_pool``.
    """

    given: Any
    images: Any
    spots: Any


@compiled()
def make_buffers(convs: I64, widths: I64, b: int) -> Buffers:
    """Room for ``b`` samples."""
    given = [np.zeros((b, c[0] * c[1] * c[2]), np.float32) for c in convs]
    for n in widths:
        given.append(np.zeros((b, n), np.float32))
    images = [
        np.zeros((b, c[0] * (c[1] + 2 * c[3]) * (c[2] + 2 * c[3])), np.float32) for c in convs
    ]
    spots = [np.zeros(given[at + 1].shape, np.int64) for at in range(len(convs))]
    return Buffers(given, images, spots)


@compiled()
def forward(vector: F32, convs: I64, widths: I64, buffers: Buffers, b: int) -> None:
    """From the samples in ``given[0]`` to the logits in ``given[-1]``, ``b`` of them."""
    given = buffers.given
    images = buffers.images
    spots = buffers.spots
    # Dense layers end the vector, so their beginning is counted from its end.
    begin = len(vector)
    seen = len(convs)
    for at in range(len(widths) - 1):
        begin -= (widths[at] + 1) * widths[at + 1]
    for at in range(seen):
        for s in range(b):
            frame(
                given[at][s],
                convs[at, 0],
                convs[at, 1],
                convs[at, 2],
                convs[at, 3],
                images[at][s],
                False,
            )
        conv_forward(vector, convs[at], images[at][:b], given[at + 1][:b], spots[at][:b])
    for at in range(len(widths) - 1):
        i = widths[at]
        o = widths[at + 1]
        z = given[seen + at + 1][:b]
        kernel = vector[begin : begin + o * i].reshape(o, i)
        multiply(given[seen + at][:b], kernel, vector[begin + o * i : begin + o * (i + 1)], z)
        begin += o * (i + 1)
        if at < len(widths) - 2:
            for s in range(b):
                for f in range(o):
                    z[s, f] = max(z[s, f], _ZERO)


class Descent(NamedTuple):
    """What the layers' steps have in common.

    Args:
        vector: ``[d]``, the model.
        start: ``[d]``, what the proximal term pulls to.
        out: where steps go: into ``vector`` itself, or with momentum into the velocity.
        rate: what the gradient of a step is multiplied by on its way into ``out``.
        l2: of the kernels that decay.
        mu: of the proximal term.
    """

    vector: F32
    start: F32
    out: F32
    rate: Real
    l2: Real
    mu: Real


@compiled()
def dense_step(
    descent: Descent, end: int, decays: bool, h: F32, delta: F32, below: F32, share: Real
) -> None:
    """Hand the errors of a dense layer down, then change the layer.

    Args:
        descent: see `Descent`.
        end: where the layer ends in the vector.
        decays: whether its kernel has L2.
        h: ``[b, i]``, what it was given.
        delta: ``[b, o]``, the gradient of what it put out.
        below: ``[b, i]``, the gradient of what it was given; ``[b, 0]``: not asked for.
        share: the rate, divided by the samples of the batch.
    """
    b, i = h.shape
    o = delta.shape[1]
    begin = end - o * (i + 1)
    out = descent.out
    vector = descent.vector
    kernel = vector[begin : begin + o * i].reshape(o, i)
    bias = out[begin + o * i : end]
    # First down, then the step: without momentum the step changes the kernel in place.
    if below.shape[1]:
        below[:] = 0
        accumulate(_ONE, delta.T, kernel, below)
        for s in range(b):
            for f in range(i):
                if h[s, f] <= 0:
                    below[s, f] = 0
    l2 = descent.l2 * decays
    regularise(out, vector, descent.start, descent.rate, begin, begin + o * i, l2, descent.mu)
    regularise(out, vector, descent.start, descent.rate, begin + o * i, end, _ZERO, descent.mu)
    accumulate(share, delta, h, out[begin : begin + o * i].reshape(o, i))
    for s in range(b):
        for f in range(o):
            bias[f] += share * delta[s, f]


@compiled()
def conv_step(
    descent: Descent,
    conv: I64,
    decays: bool,
    images: F32,
    delta: F32,
    spots: I64,
    below: F32,
    share: Real,
) -> None:
    """The same for a convolution; ``conv``, ``images``, ``delta``, ``spots`` and ``below`` are
    those of `conv_backward`."""
    c = conv[0]
    k = conv[4]
    o = conv[5]
    begin = conv[6]
    kernel_end = begin + o * c * k * k
    end = kernel_end + o
    gradient = np.empty(end - begin, np.float32)
    conv_backward(descent.vector, conv, images, delta, spots, below, gradient)
    out = descent.out
    vector = descent.vector
    l2 = descent.l2 * decays
    regularise(out, vector, descent.start, descent.rate, begin, kernel_end, l2, descent.mu)
    regularise(out, vector, descent.start, descent.rate, kernel_end, end, _ZERO, descent.mu)
    for f in range(end - begin):
        out[begin + f] += share * gradient[f]


@compiled(
    "f4(f4[::1], f4[::1], i8[:, ::1], i8[::1], b1[::1], f4[:, ::1], "
    "i8[::1], i8[::1], i8[::1], i8, f4, f4, f4, f4)",
)
def descend(
    vector: F32,
    start: F32,
    convs: I64,
    widths: I64,
    decayed: NDArray[np.bool_],
    x: F32,
    y: I64,
    order: I64,
    ends: I64,
    batch: int,
    lr: Real,
    momentum: Real,
    l2: Real,
    mu: Real,
) -> Real:
    """Local SGD; changes ``vector`` in place and returns the summed loss of the last pass.

    The rule of a step is that of `coterie.local.step.SgdStep`. Arguments are plain arrays and
    numbers, since a record would be taken apart at every call from Python.

    Args:
        vector: ``[d]``, kernel and bias of each layer in turn.
        start: ``[d]``, what the proximal term pulls to.
        convs: ``[l, 7]``, see ``conv_forward``; the images of one are what the one before gave.
        widths: of the dense layers, from input to classes.
        decayed: of all layers in turn, which kernels have L2.
        x: ``[n, i]``.
        y: ``[n]``.
        order: samples of all passes, one after another.
        ends: where each pass ends.
        batch: samples a step.
        lr: learning rate.
        momentum: ``v <- momentum v + gradient``, ``w <- w - lr v``.
        l2: of the decayed kernels.
        mu: of the proximal term.
    """
    most = min(batch, len(x))
    seen = len(convs)
    layers = len(widths) - 1
    loss = _ZERO
    buffers = make_buffers(convs, widths, most)
    given = buffers.given
    # The gradient of what each layer is given; nobody asks for that of the samples.
    wanted = [
        np.empty((most, given[at].shape[1] * (at > 0)), np.float32) for at in range(len(given))
    ]
    labels = np.empty(most, np.int64)
    first = 0
    turn = 0
    # Without momentum a layer is changed in place as soon as its errors are handed down. The
    # velocity is empty then, so that the loops over it do nothing.
    velocity = np.zeros(len(vector) if momentum else 0, np.float32)
    out, rate = (velocity, _ONE) if momentum else (vector, -lr)
    descent = Descent(vector, start, out, rate, l2, mu)
    while first < len(order):
        b = min(batch, ends[turn] - first)
        for s in range(b):
            labels[s] = y[order[first + s]]
            given[0][s] = x[order[first + s]]
        forward(vector, convs, widths, buffers, b)
        # Softmax and error overwrite the logits: nobody asks for those again.
        delta = given[seen + layers][:b]
        # Only in the last pass, whose mean is the loss that a client reports.
        loss += errors(delta, labels, turn == len(ends) - 1)
        share = rate / np.float32(b)
        for f in range(len(velocity)):
            velocity[f] *= momentum
        end = len(vector)
        for at in range(layers - 1, -1, -1):
            h = given[seen + at][:b]
            below = wanted[seen + at][:b]
            dense_step(descent, end, decayed[seen + at], h, delta, below, share)
            end -= widths[at + 1] * (widths[at] + 1)
            delta = below
        for at in range(seen - 1, -1, -1):
            images = buffers.images[at][:b]
            spots = buffers.spots[at][:b]
            errors_of = wanted[at + 1][:b]
            below = wanted[at][:b]
            conv_step(descent, convs[at], decayed[at], images, errors_of, spots, below, share)
        for f in range(len(velocity)):
            vector[f] -= lr * velocity[f]
        first += b
        turn += first == ends[turn]
    return loss


@compiled("void(f4[::1], i8[:, ::1], i8[::1], f4[:, ::1], i8[::1], i8[::1], f4[::1], f4[::1])")
def score(
    vector: F32, convs: I64, widths: I64, x: F32, y: I64, rows: I64, correct: F32, loss: F32
) -> None:
    """Of samples ``rows``, whether the largest logit is the label's, and the cross-entropy.

    All blocks are computed as if they were full, so that a sample's figures have the same bits
    whichever block it falls into, however samples are shared out among threads.

    Args:
        vector: ``[d]``.
        convs: see ``descend``.
        widths: see ``descend``.
        x: ``[S, i]``.
        y: ``[S]``.
        rows: samples to score.
        correct: of them, 0 or 1.
        loss: of them.
    """
    # A multiple of five, which `multiply` takes at once.
    block = 60
    buffers = make_buffers(convs, widths, block)
    given = buffers.given
    for first in range(0, len(rows), block):
        b = min(block, len(rows) - first)
        for s in range(b):
            given[0][s] = x[rows[first + s]]
        forward(vector, convs, widths, buffers, block)
        for s in range(b):
            z = given[-1][s]
            label = y[rows[first + s]]
            # Of equal logits the first, as torch's argmax.
            best = 0
            total = _ZERO
            for o in range(1, len(z)):
                best = o if z[o] > z[best] else best
            for o in range(len(z)):
                total += np.exp(z[o] - z[best])
            correct[first + s] = best == label
            loss[first + s] = np.log(total) + z[best] - z[label]
