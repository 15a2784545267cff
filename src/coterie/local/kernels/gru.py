"""The recurrence of a GRU, one direction at a time, and its gradient.

    r = sigmoid(i_r + W_r h + b_r)
    z = sigmoid(i_z + W_z h + b_z)
    n = tanh(i_n + r (W_n h + b_n))
    h' = n + z (h - n)

with the gates in torch's order r, z, n. Shapes: ``T`` steps, ``B`` samples, ``H`` values of the
state. What inputs add to the gates was computed for all steps before, ``[T B, 3 H]``; which of its
rows belongs to a step and a sample is said by ``rows [T, B]``, so that no order of steps and samples
has to be copied into another.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from coterie.local.kernels.compilation import F32, I64, ONE, compile_together, compiled
from coterie.local.kernels.dense import multiply
from coterie.local.kernels.room import rows_of_zeros, zeros

_F4 = numba.float32
_I8 = numba.int64
TWO = np.float32(2)
HALF = np.float32(0.5)
# exp(a) = 2^k exp(b) with k = round(a / ln 2) and b = a - k ln 2. The logarithm is taken off in two
# parts, the first of which has few digits, so that k times it is exact.
_PER_LN2 = np.float32(1.44269504)
_LN2 = np.float32(0.693359375)
_LN2_REST = np.float32(-2.12194440e-4)
_LOWEST = np.float32(-87)  # the exponential of less is no normal float32
_LARGEST = np.float32(88)


class GruMemory(NamedTuple):
    """What a pass leaves for its gradient.

    Args:
        gates: ``[T, B, 2 H]``, r and z.
        new: ``[T, B, H]``, n.
        recurrent: ``[T, B, H]``, ``W_n h + b_n``.
        states: ``[T + 1, B, H]``, the first of them zero.
    """

    gates: F32
    new: F32
    recurrent: F32
    states: F32


# The type of the record in the signatures of the kernels that Python calls.
_MEMORY = numba.types.NamedUniTuple(_F4[:, :, ::1], 4, GruMemory)


@compiled("void(f4[::1], i4[::1], f4[::1])", in_order=True)
def sigmoid(x: F32, powers: NDArray[np.int32], as_floats: F32) -> None:
    """``1 / (1 + exp(-x))``, in place.

    The exponential is a polynomial of degree six, right to two units in the last place (Cephes,
    ``expf``): a library's is a call for each value, and this one is computed eight values at a time.

    Args:
        x: ``[n]``.
        powers: ``[n]``, room for powers of two, as the bits of float32.
        as_floats: ``[n]``, the same memory as float32.
    """
    for f in range(len(x)):
        # Written so that what is no number stays so.
        a = -x[f]
        a = _LARGEST if a > _LARGEST else a
        a = _LOWEST if a < _LOWEST else a
        k = np.floor(a * _PER_LN2 + HALF)
        b = a - k * _LN2 - k * _LN2_REST
        p = np.float32(1.9875691500e-4)
        p = p * b + np.float32(1.3981999507e-3)
        p = p * b + np.float32(8.3334519073e-3)
        p = p * b + np.float32(4.1665795894e-2)
        p = p * b + np.float32(1.6666665459e-1)
        p = p * b + np.float32(5.0000001201e-1)
        x[f] = p * b * b + b + ONE
        # A float32 with an exponent of k and nothing else is 2^k.
        powers[f] = (np.int32(k) + np.int32(127)) << np.int32(23)
    for f in range(len(x)):
        x[f] = ONE / (ONE + x[f] * as_floats[f])


@compiled(numba.void(_F4[:, ::1], _I8[:, ::1], _F4[:, ::1], _F4[::1], _MEMORY, _F4[:, ::1], _I8))
def gru_forward(
    inputs: F32,
    rows: I64,
    kernel: F32,
    bias: F32,
    memory: GruMemory,
    outputs: F32,
    column: int,
) -> None:
    """All steps of one direction.

    Args:
        inputs: ``[T B, 3 H]``.
        rows: ``[T, B]``, in the order in which this direction reads.
        kernel: ``W [3 H, H]``.
        bias: ``b [3 H]``.
        memory: written.
        outputs: ``[T B, D H]``, the states are written there, too.
        column: the first of this direction there.
    """
    steps, samples = rows.shape
    h = kernel.shape[1]
    product = rows_of_zeros(samples, 3 * h)
    powers = np.empty(samples * 2 * h, np.int32)
    as_floats = powers.view(np.float32)
    for t in range(steps):
        before = memory.states[t]
        after = memory.states[t + 1]
        gates = memory.gates[t]
        new = memory.new[t]
        recurrent = memory.recurrent[t]
        multiply(before, kernel, bias, product)
        for s in range(samples):
            row = rows[t, s]
            for f in range(2 * h):
                gates[s, f] = inputs[row, f] + product[s, f]
        sigmoid(gates.reshape(-1), powers, as_floats)
        # tanh(a) = 2 sigmoid(2 a) - 1
        for s in range(samples):
            row = rows[t, s]
            for f in range(h):
                recurrent[s, f] = product[s, 2 * h + f]
                new[s, f] = TWO * (inputs[row, 2 * h + f] + gates[s, f] * product[s, 2 * h + f])
        sigmoid(new.reshape(-1), powers, as_floats)
        for s in range(samples):
            row = rows[t, s]
            for f in range(h):
                n = TWO * new[s, f] - ONE
                state = n + gates[s, h + f] * (before[s, f] - n)
                new[s, f] = n
                after[s, f] = state
                outputs[row, column + f] = state


class GruGradient(NamedTuple):
    """What a pass back writes.

    Args:
        of_inputs: ``[T B, 3 H]``, of what inputs add to the gates.
        of_products: ``[T B, 3 H]``, of ``W h + b``, step by step in the order in which the direction
            reads.
        of_biases: ``[2, 3 H]``, of the bias of inputs, and of ``b``.
    """

    of_inputs: F32
    of_products: F32
    of_biases: F32


_GRADIENT = numba.types.NamedUniTuple(_F4[:, ::1], 3, GruGradient)


@compiled(numba.void(_F4[:, ::1], _I8, _I8[:, ::1], _F4[:, ::1], _MEMORY, _GRADIENT))
def gru_backward(
    sent: F32,
    column: int,
    rows: I64,
    transposed: F32,
    memory: GruMemory,
    gradient: GruGradient,
) -> None:
    """From the gradient of the outputs to that of what was computed of them. The gradients of the
    weights are products of these for all steps at once, and not made here.

    Args:
        sent: ``[T B, D H]``, the gradient of the outputs.
        column: the first of this direction there.
        rows: as for `gru_forward`.
        transposed: ``W^T [H, 3 H]``.
        memory: as `gru_forward` left it.
        gradient: written.
    """
    steps, samples = rows.shape
    h = len(transposed)
    of_inputs = gradient.of_inputs
    of_biases = gradient.of_biases
    of_biases[:] = 0
    # The gradient of the state, which is handed on from step to step: what goes by z, and by W.
    kept = rows_of_zeros(samples, h)
    through = rows_of_zeros(samples, h)
    nothing = zeros(h)
    for t in range(steps - 1, -1, -1):
        before = memory.states[t]
        gates = memory.gates[t]
        new = memory.new[t]
        recurrent = memory.recurrent[t]
        products = gradient.of_products[t * samples : (t + 1) * samples]
        for s in range(samples):
            row = rows[t, s]
            for f in range(h):
                of_state = kept[s, f] + through[s, f] + sent[row, column + f]
                r = gates[s, f]
                z = gates[s, h + f]
                n = new[s, f]
                of_n = of_state * (ONE - z) * (ONE - n * n)
                of_z = of_state * (before[s, f] - n) * z * (ONE - z)
                of_r = of_n * recurrent[s, f] * r * (ONE - r)
                of_inputs[row, f] = of_r
                of_inputs[row, h + f] = of_z
                of_inputs[row, 2 * h + f] = of_n
                products[s, f] = of_r
                products[s, h + f] = of_z
                products[s, 2 * h + f] = of_n * r
                kept[s, f] = of_state * z
            for f in range(3 * h):
                of_biases[0, f] += of_inputs[row, f]
                of_biases[1, f] += products[s, f]
        multiply(products, transposed, nothing, through)


def load() -> None:
    """Load both kernels, and compile them where this machine never did."""
    compile_together(gru_forward, gru_backward)
