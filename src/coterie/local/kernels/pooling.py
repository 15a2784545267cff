"""Max pooling over squares of two with relu: the forward and the backward pass.

Used by `coterie.local.kernels.convolutions`, sample by sample.
"""

from __future__ import annotations

import numpy as np

from coterie.local.kernels.compilation import F32, I64, ZERO, compiled


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
                out[at] = ZERO if nothing else best
                spots[at] = -1 if nothing else spot
                at += 1


@compiled()
def spread_errors(delta: F32, spots: I64, rows: I64, spread: F32, bias: F32) -> None:
    """The backward pass: each pooled value hands its error, the gradient of the loss, to the place
    that it came from. The error of all other places is 0.

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
