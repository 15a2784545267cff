"""The closed form's arithmetic, compiled by Numba: one call for a client's whole training.

With ten samples in a batch, what a library call costs is more than its arithmetic, and matrix
products of ten rows, or convolutions of a few channels, run at a quarter of the processor's rate.
Here sums of five inputs for two outputs at a time stay in registers. The six inner loops that do
so stand first; the layers are made of them. Machine code is kept on disk where there is room for
it, so that only the first process compiles.

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


def compiled(signature: Any = None, *, in_order: bool = False) -> Callable[[_F], _F]:
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


def inlined(function: _F) -> _F:
    """Make a function part of each kernel that uses it, with the kernel's own rules for sums."""
    made: _F = numba.njit(inline="always")(function)
    return made


# --- inner loops ----------------------------------------------------------------------------------
#
# Five rows times two are ten sums, which stay in registers while seven values are read for them:
# that is what makes it fast. Batches have ten samples more often than not, so that five divides
# them. What is left over is done one row at a time. All of it becomes part of the kernel that uses
# it, as if it were written there: a call would cost more than a short loop.


@inlined
def five_rows(x: F32, s: int) -> Any:
    """Rows ``s`` to ``s + 4`` of a matrix, or values of a vector."""
    return x[s], x[s + 1], x[s + 2], x[s + 3], x[s + 4]


@inlined
def ten_sums(h: Any, w0: F32, w1: F32, n: int) -> Any:
    """``sum_f h_k[f] w0[f]`` of five rows ``h_k``, and the same with ``w1``, ``f < n``."""
    h0, h1, h2, h3, h4 = h
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
    return (a0, a1, a2, a3, a4), (c0, c1, c2, c3, c4)


@inlined
def two_sums(h: F32, w0: F32, w1: F32, n: int) -> Any:
    """``sum_f h[f] w0[f]``, and the same with ``w1``, ``f < n``."""
    a = c = _ZERO
    for f in range(n):
        a += h[f] * w0[f]
        c += h[f] * w1[f]
    return a, c


@inlined
def one_sum(h: F32, w: F32, n: int) -> Real:
    """``sum_f h[f] w[f]``, ``f < n``."""
    a = _ZERO
    for f in range(n):
        a += h[f] * w[f]
    return a


@inlined
def add_five(w0: F32, w1: F32, a: Any, c: Any, h: Any, n: int) -> None:
    """``w0[f] += sum_k a_k h_k[f]`` over five rows ``h_k``, and ``w1`` with ``c_k``, ``f < n``."""
    a0, a1, a2, a3, a4 = a
    c0, c1, c2, c3, c4 = c
    h0, h1, h2, h3, h4 = h
    for f in range(n):
        w0[f] += a0 * h0[f] + a1 * h1[f] + a2 * h2[f] + a3 * h3[f] + a4 * h4[f]
        w1[f] += c0 * h0[f] + c1 * h1[f] + c2 * h2[f] + c3 * h3[f] + c4 * h4[f]


@inlined
def add_to_two(w0: F32, w1: F32, a: Real, c: Real, h: F32, n: int) -> None:
    """``w0[f] += a h[f]`` and ``w1[f] += c h[f]``, ``f < n``."""
    for f in range(n):
        w0[f] += a * h[f]
        w1[f] += c * h[f]


@inlined
def add_to_one(w: F32, a: Real, h: F32, n: int) -> None:
    """``w[f] += a h[f]``, ``f < n``."""
    for f in range(n):
        w[f] += a * h[f]


# --- dense layers ---------------------------------------------------------------------------------


@compiled("void(f4[:, ::1], f4[:, ::1], f4[::1], f4[:, ::1])")
def multiply(h: F32, w: F32, bias: F32, out: F32) -> None:
    """``out = h w^T + bias``: ``[b, i] x [o, i] -> [b, o]``."""
    b = len(h)
    outputs = len(w)
    n = h.shape[1]
    fives = b - b % 5
    twos = outputs - outputs % 2
    # rows of w that stay in the cache while all samples pass by
    block = max(2, _CACHED // (2 * n) * 2)
    for first in range(0, twos, block):
        for s in range(0, fives, 5):
            rows = five_rows(h, s)
            for o in range(first, min(twos, first + block), 2):
                a, c = ten_sums(rows, w[o], w[o + 1], n)
                for k in range(5):
                    out[s + k, o] = a[k]
                    out[s + k, o + 1] = c[k]
    for s in range(fives, b):
        for o in range(0, twos, 2):
            a0, c0 = two_sums(h[s], w[o], w[o + 1], n)
            out[s, o] = a0
            out[s, o + 1] = c0
    for o in range(twos, outputs):
        for s in range(b):
            out[s, o] = one_sum(h[s], w[o], n)
    for s in range(b):
        out[s] += bias


@inlined
def five_errors(rate: Real, delta: F32, s: int, o: int) -> Any:
    """The errors of output ``o`` for samples ``s`` to ``s + 4``, times the rate."""
    return (
        rate * delta[s, o],
        rate * delta[s + 1, o],
        rate * delta[s + 2, o],
        rate * delta[s + 3, o],
        rate * delta[s + 4, o],
    )


@compiled("void(f4, f4[:, :], f4[:, ::1], f4[:, ::1])")
def accumulate(rate: Real, delta: F32, h: F32, w: F32) -> None:
    """``w <- w + rate delta^T h``: ``[b, o] x [b, i] -> [o, i]``."""
    b = len(h)
    outputs = len(w)
    n = h.shape[1]
    # The sums run over samples: two rows of w pass through the registers once for five samples,
    # instead of once for each.
    fives = b - b % 5
    twos = outputs - outputs % 2
    for o in range(0, twos, 2):
        w0 = w[o]
        w1 = w[o + 1]
        for s in range(0, fives, 5):
            a = five_errors(rate, delta, s, o)
            c = five_errors(rate, delta, s, o + 1)
            add_five(w0, w1, a, c, five_rows(h, s), n)
        for s in range(fives, b):
            add_to_two(w0, w1, rate * delta[s, o], rate * delta[s, o + 1], h[s], n)
    for o in range(twos, outputs):
        for s in range(b):
            add_to_one(w[o], rate * delta[s, o], h[s], n)


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


# --- convolutions ---------------------------------------------------------------------------------


@inlined
def five_runs(x: F32, taps: I64, t: int, n: int) -> Any:
    """The image as taps ``t`` to ``t + 4`` of a kernel see it, ``n`` values each."""
    return (
        x[taps[t] :][:n],
        x[taps[t + 1] :][:n],
        x[taps[t + 2] :][:n],
        x[taps[t + 3] :][:n],
        x[taps[t + 4] :][:n],
    )


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
            a = five_rows(w[o], t)
            c = five_rows(w[o + 1], t)
            add_five(z0, z1, a, c, five_runs(x, taps, t, n), n)
        for t in range(fives, len(taps)):
            add_to_two(z0, z1, w[o, t], w[o + 1, t], x[taps[t] :][:n], n)
    for o in range(twos, outputs):
        for t in range(len(taps)):
            add_to_one(out[o], w[o, t], x[taps[t] :][:n], n)


@compiled("void(f4[::1], i8[::1], i8, f4[::1], i8[::1], f4[:, ::1])")
def correlate(delta: F32, rows: I64, n: int, x: F32, taps: I64, out: F32) -> None:
    """``out[o, t] += sum_p delta[rows[o] + p] x[taps[t] + p]``, ``p < n``: the gradient of a
    convolution's kernel."""
    # Places that straddle two rows add nothing, since their errors are zero.
    fives = len(taps) - len(taps) % 5
    twos = len(rows) - len(rows) % 2
    for o in range(0, twos, 2):
        d0 = delta[rows[o] :][:n]
        d1 = delta[rows[o + 1] :][:n]
        for t in range(0, fives, 5):
            a, c = ten_sums(five_runs(x, taps, t, n), d0, d1, n)
            for k in range(5):
                out[o, t + k] += a[k]
                out[o + 1, t + k] += c[k]
        for t in range(fives, len(taps)):
            a0, c0 = two_sums(x[taps[t] :][:n], d0, d1, n)
            out[o, t] += a0
            out[o + 1, t] += c0
    for o in range(twos, len(rows)):
        d0 = delta[rows[o] :][:n]
        for t in range(len(taps)):
            out[o, t] += one_sum(x[taps[t] :][:n], d0, n)


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


@compiled()
def turn_kernel(w: F32, rows: I64, taps: I64, channels: int) -> tuple[F32, I64]:
    """A convolution's kernel turned around, with which ``convolve`` goes from errors to images.

    The gradient of the images, ``sum_o w[o, c, t] errors[o, q - t]``, is a convolution, too: of the
    errors, with the kernel turned around.

    Args:
        w: ``[o c t]``, the kernel.
        rows: ``[o]``, where the errors of each channel begin.
        taps: ``[c t]``, see ``taps_of``.
        channels: of the images, ``c``.

    Returns:
        ``[c, o t]``, and where each of its taps begins, ``[o t]``.
    """
    each = len(taps) // channels
    back = np.empty(len(rows) * each, np.int64)
    turned = np.empty((channels, len(back)), np.float32)
    for o in range(len(rows)):
        for t in range(each):
            back[o * each + t] = rows[o] - taps[t]
            for c in range(channels):
                turned[c, o * each + t] = w[(o * channels + c) * each + t]
    return turned, back


@compiled()
def spread_errors(delta: F32, spots: I64, rows: I64, spread: F32, bias: F32) -> None:
    """Each pooled value hands its error to the place that it came from; the others have none.

    Args:
        delta: ``[o h' w']``, the errors of the pooled values of a sample.
        spots: of that shape, see ``max_pool``.
        rows: ``[o]``, where each channel begins in ``spread``.
        spread: the errors before pooling.
        bias: ``[o]``, the sum of each channel's errors is added to it.
    """
    spread[:] = 0
    cells = len(delta) // len(rows)
    for o in range(len(rows)):
        for at in range(o * cells, (o + 1) * cells):
            if spots[at] >= 0:
                spread[rows[o] + spots[at]] = delta[at]
                bias[o] += delta[at]


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
    c, inner_height, inner_width, pad, k, o, begin = conv
    height = inner_height + 2 * pad
    width = inner_width + 2 * pad
    taps = taps_of(c, height * width, width, k)
    n = (height - k) * width + width - k + 1
    # The errors of each channel lie between two margins of zeros, so that a turned kernel may begin
    # before the first of them and end behind the last.
    margin = taps_of(1, 0, width, k)[-1]
    each = n + 2 * margin
    rows = np.arange(o) * each + margin
    spread = np.empty(o * each, np.float32)
    # Summed over the batch before anything is changed, since the images below need this kernel.
    gradient[:] = 0
    kernel = gradient[: o * len(taps)].reshape(o, len(taps))
    bias = gradient[o * len(taps) :]
    turned, back = turn_kernel(vector[begin : begin + o * len(taps)], rows, taps, c)
    framed = np.empty((c, height * width), np.float32)
    for s in range(len(images)):
        spread_errors(delta[s], spots[s], rows, spread, bias)
        correlate(spread, rows, n, images[s], taps, kernel)
        if below.shape[1]:
            framed[:] = 0
            convolve(turned, spread, back, framed)
            frame(below[s], c, inner_height, inner_width, pad, framed.ravel(), True)


# --- networks -------------------------------------------------------------------------------------


class Layers(NamedTuple):
    """The layers of a network, convolutions first.

    Args:
        convs: ``[l, 7]``, see ``conv_forward``; the images of one are what the one before gave.
        widths: of the dense layers, from input to classes.
        decayed: of all layers in turn, which kernels have L2.
    """

    convs: I64
    widths: I64
    decayed: NDArray[np.bool_]


class Batches(NamedTuple):
    """The samples of a training, one after another.

    Args:
        order: of all passes, the rows of samples.
        ends: where each pass ends in ``order``.
        size: samples a step; the last step of a pass may have fewer.
    """

    order: I64
    ends: I64
    size: int


class Sgd(NamedTuple):
    """The rule of a step, float32 each, see `coterie.local.step.SgdStep`.

    Args:
        lr: learning rate.
        momentum: ``v <- momentum v + gradient``, ``w <- w - lr v``.
        l2: of the decayed kernels.
        mu: of the proximal term.
    """

    lr: Real
    momentum: Real
    l2: Real
    mu: Real


# The types of these records in the signatures of the kernels that Python calls.
_F4 = numba.float32
_I8 = numba.int64
_LAYERS = numba.types.NamedTuple((_I8[:, ::1], _I8[::1], numba.boolean[::1]), Layers)
_BATCHES = numba.types.NamedTuple((_I8[::1], _I8[::1], _I8), Batches)
_SGD = numba.types.NamedUniTuple(_F4, 4, Sgd)


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
def make_buffers(layers: Layers, b: int) -> Buffers:
    """Room for ``b`` samples."""
    convs = layers.convs
    given = [np.zeros((b, c[0] * c[1] * c[2]), np.float32) for c in convs]
    for n in layers.widths:
        given.append(np.zeros((b, n), np.float32))
    images = [
        np.zeros((b, c[0] * (c[1] + 2 * c[3]) * (c[2] + 2 * c[3])), np.float32) for c in convs
    ]
    spots = [np.zeros(given[at + 1].shape, np.int64) for at in range(len(convs))]
    return Buffers(given, images, spots)


@compiled()
def forward(vector: F32, layers: Layers, buffers: Buffers, b: int) -> None:
    """From the samples in ``given[0]`` to the logits in ``given[-1]``, ``b`` of them."""
    convs = layers.convs
    widths = layers.widths
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


@inlined
def regularise(descent: Descent, begin: int, end: int, decays: bool) -> None:
    """L2, where the values decay, and the proximal term of a step:
    ``out <- out + rate (2 l2 w + mu (w - w_start))``."""
    out = descent.out
    vector = descent.vector
    start = descent.start
    rate = descent.rate
    mu = descent.mu
    l2 = descent.l2 if decays else _ZERO
    if mu or l2:
        for f in range(begin, end):
            out[f] += rate * (2 * l2 * vector[f] + mu * (vector[f] - start[f]))


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
    kernel_end = begin + o * i
    out = descent.out
    kernel = descent.vector[begin:kernel_end].reshape(o, i)
    bias = out[kernel_end:end]
    # First down, then the step: without momentum the step changes the kernel in place.
    if below.shape[1]:
        below[:] = 0
        accumulate(_ONE, delta.T, kernel, below)
        for s in range(b):
            for f in range(i):
                if h[s, f] <= 0:
                    below[s, f] = 0
    regularise(descent, begin, kernel_end, decays)
    regularise(descent, kernel_end, end, False)
    accumulate(share, delta, h, out[begin:kernel_end].reshape(o, i))
    for s in range(b):
        for f in range(o):
            bias[f] += share * delta[s, f]


@compiled()
def conv_step(descent: Descent, conv: I64, decays: bool, gradient: F32, share: Real) -> None:
    """Change a convolution.

    Args:
        descent: see `Descent`.
        conv: as for ``conv_forward``.
        decays: whether its kernel has L2.
        gradient: from ``conv_backward``.
        share: the rate, divided by the samples of the batch.
    """
    begin = conv[6]
    end = begin + len(gradient)
    kernel_end = end - conv[5]
    regularise(descent, begin, kernel_end, decays)
    regularise(descent, kernel_end, end, False)
    out = descent.out
    for f in range(len(gradient)):
        out[begin + f] += share * gradient[f]


@inlined
def backward(
    descent: Descent, layers: Layers, buffers: Buffers, wanted: Any, b: int, share: Real
) -> None:
    """From the errors of the logits in ``given[-1]`` to a step of every layer, the last one first.

    Args:
        descent: see `Descent`.
        layers: the network.
        buffers: as `forward` left them.
        wanted: room for the gradient of what each layer is given, ``[b, n]`` each; ``[b, 0]`` where
            it is not asked for.
        b: samples of the batch.
        share: the rate, divided by ``b``.
    """
    convs = layers.convs
    widths = layers.widths
    decayed = layers.decayed
    seen = len(convs)
    end = len(descent.vector)
    delta = buffers.given[-1][:b]
    for at in range(len(widths) - 2, -1, -1):
        h = buffers.given[seen + at][:b]
        below = wanted[seen + at][:b]
        dense_step(descent, end, decayed[seen + at], h, delta, below, share)
        end -= widths[at + 1] * (widths[at] + 1)
        delta = below
    for at in range(seen - 1, -1, -1):
        conv = convs[at]
        images = buffers.images[at][:b]
        spots = buffers.spots[at][:b]
        # The kernel's gradient, of c k^2 values for each of o channels, and that of its bias.
        gradient = np.empty(conv[5] * (conv[0] * conv[4] * conv[4] + 1), np.float32)
        vector = descent.vector
        conv_backward(vector, conv, images, wanted[at + 1][:b], spots, wanted[at][:b], gradient)
        conv_step(descent, conv, decayed[at], gradient, share)


@compiled(_F4(_F4[::1], _F4[::1], _LAYERS, _F4[:, ::1], _I8[::1], _BATCHES, _SGD))
def descend(
    vector: F32, start: F32, layers: Layers, x: F32, y: I64, batches: Batches, sgd: Sgd
) -> Real:
    """Local SGD; changes ``vector`` in place and returns the summed loss of the last pass.

    One call is a client's whole training, so that taking the records apart, some microseconds, is
    little beside it.

    Args:
        vector: ``[d]``, kernel and bias of each layer in turn.
        start: ``[d]``, what the proximal term pulls to.
        layers: the network.
        x: ``[n, i]``.
        y: ``[n]``.
        batches: of all passes.
        sgd: the rule of a step.
    """
    order = batches.order
    ends = batches.ends
    most = min(batches.size, len(x))
    buffers = make_buffers(layers, most)
    given = buffers.given
    # The gradient of each layer's input; that of the samples themselves is not needed.
    wanted = [
        np.empty((most, given[at].shape[1] * (at > 0)), np.float32) for at in range(len(given))
    ]
    labels = np.empty(most, np.int64)
    # Without momentum a layer is changed in place as soon as its errors are handed down. The
    # velocity is empty then, so that the loops over it do nothing.
    velocity = np.zeros(len(vector) if sgd.momentum else 0, np.float32)
    out, rate = (velocity, _ONE) if sgd.momentum else (vector, -sgd.lr)
    descent = Descent(vector, start, out, rate, sgd.l2, sgd.mu)
    loss = _ZERO
    first = 0
    turn = 0
    while first < len(order):
        b = min(batches.size, ends[turn] - first)
        for s in range(b):
            labels[s] = y[order[first + s]]
            given[0][s] = x[order[first + s]]
        forward(vector, layers, buffers, b)
        # Softmax and error overwrite the logits, which are not needed again. The loss counts only
        # in the last pass, whose mean is what a client reports.
        loss += errors(given[-1][:b], labels, turn == len(ends) - 1)
        for f in range(len(velocity)):
            velocity[f] *= sgd.momentum
        backward(descent, layers, buffers, wanted, b, rate / np.float32(b))
        for f in range(len(velocity)):
            vector[f] -= sgd.lr * velocity[f]
        first += b
        turn += first == ends[turn]
    return loss


@compiled(numba.void(_F4[::1], _LAYERS, _F4[:, ::1], _I8[::1], _I8[::1], _F4[::1], _F4[::1]))
def score(vector: F32, layers: Layers, x: F32, y: I64, rows: I64, correct: F32, loss: F32) -> None:
    """Of samples ``rows``, whether the largest logit is the label's, and the cross-entropy.

    All blocks are computed as if they were full, so that a sample's figures have the same bits
    whichever block it falls into, however samples are shared out among threads.

    Args:
        vector: ``[d]``.
        layers: the network.
        x: ``[S, i]``.
        y: ``[S]``.
        rows: samples to score.
        correct: of them, 0 or 1.
        loss: of them.
    """
    # A multiple of five, which `multiply` takes at once.
    block = 60
    buffers = make_buffers(layers, block)
    given = buffers.given
    for first in range(0, len(rows), block):
        b = min(block, len(rows) - first)
        for s in range(b):
            given[0][s] = x[rows[first + s]]
        forward(vector, layers, buffers, block)
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
