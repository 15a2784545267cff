"""The recurrence of a GRU with gradients written out, for training on a CPU.

torch's own GRU records every gate of every step for autograd: some thirty small calls a step, which
take several times as long as their arithmetic. (Its LSTM is one call of oneDNN, which is faster than
what could be written here.) Here a step is one product for all gates and
all directions and a few calls on memory that is at hand. All that does not depend on the step after
is computed for all steps at once. Products over inputs are not here: `coterie.local.fused_recurrent`
makes them for all steps in one call, and leaves their gradients to autograd.

Shapes: ``T`` steps, ``D`` directions, ``B`` samples, ``H`` values of the state.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class GruRecurrence(torch.autograd.Function):
    """The states of a GRU, each direction in the order in which it reads.

        r = sigmoid(i_r + W_r h + b_r)
        z = sigmoid(i_z + W_z h + b_z)
        n = tanh(i_n + r (W_n h + b_n))
        h' = n + z (h - n)

    Inputs are ``i [T, D, B, 3 H]``, ``W [D, 3 H, H]`` and ``b [D, 3 H]`` with the gates in torch's
    order r, z, n; the result is ``[T, D, B, H]``. States begin at zero.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        steps, directions, samples, width = inputs.shape
        h = width // 3
        recurrent = inputs.new_empty(inputs.shape)
        gates = inputs.new_empty(steps, directions, samples, 2 * h)
        new = inputs.new_empty(steps, directions, samples, h)
        states = inputs.new_zeros(steps + 1, directions, samples, h)
        # tanh(a) = 2 sigmoid(2 a) - 1: torch's tanh takes several times as long as its sigmoid. What is
        # doubled for it is doubled here for all steps at once.
        doubled = torch.cat([bias.new_ones(2 * h), bias.new_full((h,), 2.0)])
        transposed = (weight * doubled[:, None]).transpose(1, 2).contiguous()
        row = (bias * doubled)[:, None]
        of_inputs = 2 * inputs[..., 2 * h :]
        minus_one = inputs.new_tensor(-1.0)
        # Views are made once: a slice costs a third of the call that uses it.
        views = zip(
            recurrent.unbind(),
            inputs[..., : 2 * h].unbind(),
            recurrent[..., : 2 * h].unbind(),
            gates.unbind(),
            gates[..., :h].unbind(),
            gates[..., h:].unbind(),
            of_inputs.unbind(),
            recurrent[..., 2 * h :].unbind(),
            new.unbind(),
            states[:-1].unbind(),
            states[1:].unbind(),
            strict=True,
        )
        for product, i_rz, h_rz, rz, r, z, i_n, h_n, n, state, following in views:
            torch.baddbmm(row, state, transposed, out=product)
            torch.add(i_rz, h_rz, out=rz).sigmoid_()
            torch.addcmul(i_n, r, h_n, out=n).sigmoid_()
            torch.add(minus_one, n, alpha=2, out=n)
            torch.lerp(n, state, z, out=following)
        ctx.save_for_backward(weight, gates, new, recurrent, states)
        return states[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weight, gates, new, recurrent, states = ctx.saved_tensors
        h = new.shape[-1]
        r = gates[..., :h]
        z = gates[..., h:]
        before = states[:-1]
        # The gradients of the gates are those of the state times what is known of all steps now.
        of_new = (1 - z) * (1 - new * new)
        # The products of the new state were doubled.
        of_reset = of_new * recurrent[..., 2 * h :] * r * (1 - r) / 2
        factors = torch.stack([of_reset, (before - new) * z * (1 - z), of_new * r], dim=3)
        products = torch.empty_like(factors)
        of_states = torch.empty_like(new)
        carried = torch.zeros_like(new[0])
        flat = products.flatten(3)
        steps = zip(
            gradient.unbind(),
            of_states.unbind(),
            of_states[:, :, :, None].unbind(),
            factors.unbind(),
            products.unbind(),
            flat.unbind(),
            z.unbind(),
            strict=True,
        )
        for sent, state, for_each_gate, factor, product, of_gates, keep in reversed(list(steps)):
            torch.add(carried, sent, out=state)
            torch.mul(factor, for_each_gate, out=product)
            torch.mul(state, keep, out=carried)
            carried.baddbmm_(of_gates, weight)
        inputs = flat.clone()
        inputs[..., 2 * h :] = of_states * of_new
        return inputs, *_of_weights(flat, before)


def _of_weights(products: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of ``W`` and ``b``: ``sum_t p_t^T h_t`` and ``sum_t p_t``, over all steps at
    once."""
    by_direction = products.transpose(0, 1).flatten(1, 2)
    weight = torch.bmm(by_direction.transpose(1, 2), states.transpose(0, 1).flatten(1, 2))
    return weight, by_direction.sum(dim=1)
