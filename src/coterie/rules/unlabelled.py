"""Clients whose samples have no labels: what they are asked for, and which group they join."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.core.describe import Describe
from coterie.core.groups import Groups
from coterie.rules.assigning import Assign
from coterie.rules.migration import Migrating

# How a client without labels came to its model, in words.
BY_INPUTS = "its inputs"
ONE_MODEL = "one model"
WITHOUT_LABELS = "no labels: the model for clients without a group"


@runtime_checkable
class PlacesUnlabelled(Protocol):
    """An assign rule that can place a client by its inputs alone."""

    @property
    def places_by_inputs(self) -> bool:
        """Whether it can, with the options that it was made with."""
        ...

    def ask_unlabelled(self, groups: Groups) -> tuple[Describe, Tensor] | None:
        """What a client without labels is asked for, and the model ``[d]`` that it is sent with;
        ``None`` before the rule has found groups."""
        ...

    def place_unlabelled(self, groups: Groups, rows: Tensor) -> IntArray:
        """The group of each client, int64 ``[n]``, by what they reported, ``[n, ...]``."""
        ...


def unlabelled_rule(assign: Assign) -> PlacesUnlabelled | None:
    """The rule that places clients without labels; ``None`` where a method has none.

    Args:
        assign: the assign rule of a method.

    Example:
        >>> from coterie.algorithms import fedclust, pacfl
        >>> unlabelled_rule(pacfl().assign) is None, unlabelled_rule(fedclust().assign) is None
        (False, True)
    """
    inner = assign.assign if isinstance(assign, Migrating) else assign
    if isinstance(inner, PlacesUnlabelled) and inner.places_by_inputs:
        return inner
    return None
