"""The closed form's arithmetic, compiled by Numba: one call for a client's whole training.

With ten samples in a batch, what a library call costs is more than its arithmetic, and matrix
products of ten rows, or convolutions of a few channels, run at a quarter of the processor's rate.
Here sums of five inputs for two outputs at a time stay in registers (`inner_loops`). The layers are
made of them (`dense`, `convolutions`), networks of layers (`network`), and a client's work of
networks (`sgd`, `gradient`, `rules`, `training`, `scoring`). How all of it is compiled, and where the
machine code is kept, is in `compilation`. Kernels that Python calls are compiled when they are first
needed, for networks without convolutions apart.

Nothing here is parallel: an engine has one process a core.

Names are short, as in the formulas: ``h`` is what a layer is given, ``w`` its kernel, ``z`` what it
puts out before the relu, ``b`` the samples of a batch, ``o`` an output, ``i`` or ``f`` an input.
"""

from __future__ import annotations

from coterie.local.kernels.network import CONV_LAYERS, DENSE_LAYERS, Layers
from coterie.local.kernels.rules import ADAM_RULE, SGD_RULE, Rule, TrainingState
from coterie.local.kernels.scoring import score
from coterie.local.kernels.sgd import Sgd
from coterie.local.kernels.training import (
    Batches,
    Pulls,
    Targets,
    batch_gradient,
    descend,
    descend_by_rule,
)

__all__ = [
    "ADAM_RULE",
    "CONV_LAYERS",
    "DENSE_LAYERS",
    "SGD_RULE",
    "Batches",
    "Layers",
    "Pulls",
    "Rule",
    "Sgd",
    "Targets",
    "TrainingState",
    "batch_gradient",
    "descend",
    "descend_by_rule",
    "score",
]
