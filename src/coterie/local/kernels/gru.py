"""The recurrence of a GRU, in one direction or both, and its gradient.

    r = sigmoid(i_r + W_r h + b_r)
    z = sigmoid(i_z + W_z h + b_z)
    n = tanh(i_n + r (W_n h + b_n))
    h' = n + z (h - n)

with the gates in torch's order r, z, n. Shapes: ``D`` directions, ``T`` steps, ``B`` samples, ``H``
values of the state. What inputs add to the gates was computed for all steps before, ``[T B, D 3 H]``;
which of its rows belongs to a step and a sample is said by ``rows [D, T, B]``, in the order in which
each direction reads, so that no order of steps and samples has to be copied into another.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from coterie.local.kernels.compilation import F32, I64, ONE, compile_together, compiled, inlined
from coterie.local.kernels.dense import accumulate, add_bias, multiply
from coterie.local.kernels.inner_loops import copy_row, rows_of_zeros, zeros

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
        gates: ``[D, T, 2, B, H]``, r and z.
        new: ``[D, T, B, H]``, n.
        recurrent: ``[D, T, B, H]``, ``W_n h + b_n``.
        states: ``[D, T + 1, B, H]``, the first of each direction zero.
    """

    gates: F32
    new: F32
    recurrent: F32
    states: F32


class GruResults(NamedTuple):
    """What a pass is for, or the gradients of it.

    Args:
        outputs: ``[T B, D H]``, the state after each step.
        last: ``[D, B, H]``, the state after the last step of each direction.
    """

    outputs: F32
    last: F32


# The types of the records in the signatures of the kernels that Python calls.
_STEPS = _F4[:, :, :, ::1]
_MEMORY = numba.types.NamedTuple((_F4[:, :, :, :, ::1], _STEPS, _STEPS, _STEPS), GruMemory)
_RESULTS = numba.types.NamedTuple((_F4[:, ::1], _F4[:, :, ::1]), GruResults)


@compiled("void(f4[::1], i4[::1], f4[::1])", in_order=True)
def sigmoid(x: F32, powers: NDArray[np.int32], as_floats: F32) -> None:
    """``1 / (1 + exp(-x))``, in place.

    The exponential is a polynomial of degree six, right to two units in the last place (Cephes,
    ``expf``). It is computed eight values at a time; a library's takes one call for each value.
    ``powers`` and ``as_floats`` are the same memory, for powers of two as the bits of float32.
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


@inlined
def multiply_states(states: F32, transposed: F32, bias: F32, out: F32, library: bool) -> None:
    """``out = states W^T + bias``: ``[B, H] x [H, 3 H] -> [B, 3 H]``."""
    if library:
        np.dot(states, transposed, out)
        add_bias(out, bias)
        return
    # States are short: to add up each sum by itself takes longer than the products. So the products of
    # one value of the state are added to all sums at once.
    for s in range(len(states)):
        copy_row(bias, out[s])
    accumulate(ONE, states.T, transposed, out)


@compiled(
    numba.void(
        _F4[:, ::1], _I8[:, :, ::1], _F4[:, :, ::1], _F4[:, ::1], _MEMORY, _RESULTS, numba.boolean
    )
)
def gru_forward(
    inputs: F32,
    rows: I64,
    transposed: F32,
    biases: F32,
    memory: GruMemory,
    results: GruResults,
    library: bool,
) -> None:
    """All steps of all directions, from ``inputs [T B, D 3 H]``, ``transposed = W^T [D, H, 3 H]``
    and ``biases [D, 3 H]`` to ``memory`` and ``results``. ``library``: whether BLAS multiplies by
    ``W``."""
    directions, steps, samples = rows.shape
    h = transposed.shape[1]
    product = rows_of_zeros(samples, 3 * h)
    powers = np.empty(samples * 2 * h, np.int32)
    as_floats = powers.view(np.float32)
    for d in range(directions):
        memory.states[d, 0, :, :] = 0
        # Where the values of this direction begin in a row.
        first_gate = 3 * h * d
        first_state = h * d
        for t in range(steps):
            before = memory.states[d, t]
            after = memory.states[d, t + 1]
            gates = memory.gates[d, t]
            new = memory.new[d, t]
            recurrent = memory.recurrent[d, t]
            multiply_states(before, transposed[d], biases[d], product, library)
            for s in range(samples):
                given = inputs[rows[d, t, s], first_gate : first_gate + 3 * h]
                for f in range(h):
                    gates[0, s, f] = given[f] + product[s, f]
                    gates[1, s, f] = given[h + f] + product[s, h + f]
            sigmoid(gates.reshape(-1), powers, as_floats)
            # tanh(a) = 2 sigmoid(2 a) - 1
            for s in range(samples):
                given = inputs[rows[d, t, s], first_gate : first_gate + 3 * h]
                for f in range(h):
                    recurrent[s, f] = product[s, 2 * h + f]
                    new[s, f] = TWO * (given[2 * h + f] + gates[0, s, f] * product[s, 2 * h + f])
            sigmoid(new.reshape(-1), powers, as_floats)
            for s in range(samples):
                put_out = results.outputs[rows[d, t, s], first_state : first_state + h]
                for f in range(h):
                    n = TWO * new[s, f] - ONE
                    state = n + gates[1, s, f] * (before[s, f] - n)
                    new[s, f] = n
                    after[s, f] = state
                    put_out[f] = state
        for s in range(samples):
            copy_row(memory.states[d, steps, s], results.last[d, s])


class GruGradient(NamedTuple):
    """What a pass back writes.

    Args:
        of_inputs: ``[T B, D 3 H]``, of what inputs add to the gates.
        of_products: ``[D, T B, 3 H]``, of ``W h + b``, step by step in the order in which a direction
            reads.
        of_biases: ``[D, 2, 3 H]``, of the bias of inputs, and of ``b``.
    """

    of_inputs: F32
    of_products: F32
    of_biases: F32


_GRADIENT = numba.types.NamedTuple((_F4[:, ::1], _F4[:, :, ::1], _F4[:, :, ::1]), GruGradient)


@compiled(numba.void(_RESULTS, _I8[:, :, ::1], _F4[:, :, ::1], _MEMORY, _GRADIENT, numba.boolean))
def gru_backward(
    of_results: GruResults,
    rows: I64,
    transposed: F32,
    memory: GruMemory,
    gradient: GruGradient,
    library: bool,
) -> None:
    """From the gradients of the results to ``gradient``. The gradients of the weights are products
    of these for all steps at once, and are computed elsewhere."""
    directions, steps, samples = rows.shape
    h = transposed.shape[1]
    gradient.of_biases[:] = 0
    # The gradient of the state, which is handed on from step to step: what goes by z, and by W.
    of_state = rows_of_zeros(samples, h)
    through = rows_of_zeros(samples, h)
    nothing = zeros(h)
    for d in range(directions):
        for s in range(samples):
            copy_row(of_results.last[d, s], of_state[s])
        through[:] = 0
        of_biases = gradient.of_biases[d]
        for t in range(steps - 1, -1, -1):
            before = memory.states[d, t]
            r = memory.gates[d, t, 0]
            z = memory.gates[d, t, 1]
            new = memory.new[d, t]
            recurrent = memory.recurrent[d, t]
            products = gradient.of_products[d, t * samples : (t + 1) * samples]
            # Loops of few arrays each: of many, the compiler does not find out whether they overlap,
            # and takes one value at a time.
            for s in range(samples):
                row = rows[d, t, s]
                of_output = of_results.outputs[row, h * d : h * (d + 1)]
                of_given = gradient.of_inputs[row, 3 * h * d : 3 * h * (d + 1)]
                of_r = products[s, :h]
                of_z = products[s, h : 2 * h]
                of_n = products[s, 2 * h :]
                for f in range(h):
                    of_state[s, f] += through[s, f] + of_output[f]
                for f in range(h):
                    n = new[s, f]
                    of_n[f] = of_state[s, f] * (ONE - z[s, f]) * (ONE - n * n)
                for f in range(h):
                    change = (before[s, f] - new[s, f]) * z[s, f] * (ONE - z[s, f])
                    of_z[f] = of_state[s, f] * change
                for f in range(h):
                    of_r[f] = of_n[f] * recurrent[s, f] * r[s, f] * (ONE - r[s, f])
                for f in range(h):
                    of_state[s, f] *= z[s, f]
                for f in range(3 * h):
                    of_given[f] = products[s, f]
                    of_biases[0, f] += products[s, f]
                for f in range(h):
                    of_n[f] *= r[s, f]
                for f in range(3 * h):
                    of_biases[1, f] += products[s, f]
            if library:
                np.dot(products, transposed[d].T, through)
            else:
                multiply(products, transposed[d], nothing, through)


def load_gru() -> None:
    """Load both kernels, and compile them where this machine never did."""
    compile_together(gru_forward, gru_backward)
