"""Whether and how the models of groups pull on each other after a round. All sums run over
``l != j``, and all models are updated at once (Jacobi).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from coterie.core import Groups, Keep
from coterie.rules.hooks import call

Rule = Literal["normalized_difference", "normalized_model", "convex"]
InterGroup = Callable[[Groups], Groups]
_TINY = 1e-12
_UNSTABLE = (
    "inter_group_rule: with normalized_model and this eta_g, models grow by more than a tenth of "
    "their norm in each round; use a smaller eta_g"
)


@dataclass(frozen=True, slots=True)
class InterGroupStep:
    """A step in which the models of all groups pull on each other.

    Args:
        eta: rate ``eta_g > 0``.
        rule: one of three, see `inter_group`.
    """

    eta: float
    rule: Rule

    def __call__(self, groups: Groups) -> Groups:
        # Each of the other models adds a vector of length eta; a tenth of a model's own length a
        # round is much, and nothing pulls it back.
        longest = 0.1 * float(groups.models.norm(dim=1).min())
        if self.rule == "normalized_model" and self.eta * (groups.k - 1) > longest:
            warnings.warn(_UNSTABLE, RuntimeWarning, stacklevel=2)
        step = _RULES[self.rule]
        moved = step(groups.models.to(torch.float64), self.eta)
        return replace(groups, models=moved.to(torch.float32))

    def largest_shift(self, models: Tensor) -> float:
        """An upper bound of how far the step moves any model, ``max_j |w'_j - w_j|``.

        The first two rules add up ``k - 1`` vectors of length ``eta`` at most, so that the bound is
        ``eta (k - 1)``, the term of FedGroup's eq. 21. The ``convex`` rule divides by ``1 + A_j``
        with ``A_j = sum_{l != j} eta / |w_l|``, and moves a model by ``sum_l a_l (w_l - w_j) / (1 +
        A_j)``. By the triangle inequality this is at most ``(eta (k - 1) + A_j |w_j|) / (1 +
        A_j)``, which can be larger than ``eta (k - 1)``. A model of length 0 pulls on no other.

        Args:
            models: ``[k, d]``, before the step.

        Example:
            >>> InterGroupStep(1.0, "convex").largest_shift(torch.tensor([[10.0, 0.0], [-1.0, 0.0]]))
            5.5
        """
        k = len(models)
        if self.rule != "convex":
            return self.eta * (k - 1)
        norm = models.to(torch.float64).norm(dim=1)
        pulls = norm > _TINY
        a = torch.where(pulls, self.eta / norm.clamp_min(_TINY), 0.0)
        of_others = a.sum() - a
        pulled_by = pulls.sum() - pulls.to(torch.int64)
        return float(((self.eta * pulled_by + of_others * norm) / (1 + of_others)).max())


def inter_group(eta: float, rule: Rule = "normalized_difference") -> InterGroupStep | None:
    """Inter-group aggregation with rate ``eta``; ``None`` for ``eta = 0``: the models stay as they
    are.

    - ``normalized_difference`` (FedGroup Alg. 2 l. 19): ``w_j + eta sum (w_l - w_j) / |w_l -
      w_j|``.
    - ``normalized_model`` (FlexCFL Alg. 2 l. 19): ``w_j + eta sum w_l / |w_l|``. It does not
      contract.
    - ``convex`` (the authors' code): ``(w_j + sum a_l w_l) / (1 + sum a_l)`` with ``a_l = eta /
      |w_l|``.

    Example:
        >>> import numpy as np
        >>> g = Groups(torch.tensor([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]]), np.zeros(3, np.int64))
        >>> inter_group(0.5, "convex")(g).models[0].tolist()
        [2.0, 2.5714285373687744]
    """
    if eta == 0:
        return None
    return InterGroupStep(eta, rule)


def _differences(w: Tensor, eta: float) -> Tensor:
    apart = w[None, :, :] - w[:, None, :]
    norm = apart.norm(dim=2, keepdim=True)
    # Equal models have no direction between them. `clamp_min`, since `where` computes both sides.
    return w + eta * torch.where(norm > _TINY, apart / norm.clamp_min(_TINY), 0.0).sum(dim=1)


def _models(w: Tensor, eta: float) -> Tensor:
    norm = w.norm(dim=1, keepdim=True)
    unit = torch.where(norm > _TINY, w / norm.clamp_min(_TINY), 0.0)
    return w + eta * (unit.sum(dim=0) - unit)


def _convex(w: Tensor, eta: float) -> Tensor:
    norm = w.norm(dim=1, keepdim=True)
    a = torch.where(norm > _TINY, eta / norm.clamp_min(_TINY), 0.0)
    return (w + (a * w).sum(dim=0) - a * w) / (1 + a.sum() - a)


# FedGroup prints one rule, FlexCFL another, and the code of both has a third (erratum P4).
_RULES: Mapping[Rule, Callable[[Tensor, float], Tensor]] = {
    "normalized_difference": _differences,
    "normalized_model": _models,
    "convex": _convex,
}


def pull_shared(pull: InterGroup, stays: Keep | None, groups: Groups) -> Groups:
    """The models after they have pulled on each other, in the coordinates that are shared with
    clients."""
    if stays is None:
        return call("inter_group", pull, groups)
    shared = torch.from_numpy(stays.shared(groups.models.shape[1]))
    models = groups.models.clone()
    of_shared = replace(groups, models=groups.models[:, shared])
    models[:, shared] = call("inter_group", pull, of_shared).models
    return replace(groups, models=models)
