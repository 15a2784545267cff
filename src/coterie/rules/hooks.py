"""Rules as a round calls them: what a user's own rule returns is checked here, and nowhere else.

A wrong value would fail later, far from the rule, or change results without a word. The rules of
Coterie are tested and not checked, so their rounds cost nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.config.arguments import place_of
from coterie.core import NO_GROUP, Groups, Plan, Served, Updates
from coterie.core.arrays import BoolArray
from coterie.core.describe import Describe
from coterie.errors import Code, ConfigError, shown
from coterie.rules.weighing import Aggregated

Shape = tuple[int | None, ...]  # None: any length
_MOST = 2**31 - 1  # of numbers of chains and of epochs


def call(hook: str, rule: Callable[..., Any], *arguments: Any) -> Any:
    """What a rule returns to a round.

    Args:
        hook: the slot of a `Method`, or the function of an algorithm; a key of ``_CHECKS``.

    Raises:
        ConfigError: where a rule of the user's own returned something that a round cannot use: the
            rule, where it stands, what it returned, and what is allowed.
    """
    returned = rule(*arguments)
    home = getattr(rule, "__module__", None) or type(rule).__module__
    if home.partition(".")[0] != "coterie":
        _CHECKS[hook](_Returned(hook, rule), returned, *arguments)
    return returned


@dataclass(frozen=True, slots=True)
class _Returned:
    """Checks of what a rule returned; ``part`` is the part of it that is looked at."""

    hook: str
    rule: Callable[..., Any]

    def refuse(self, part: str, got: Any, allowed: str, code: Code = "wrong-type") -> None:
        what = f"{place_of(self.rule)} returned an invalid {part}"
        raise ConfigError(code, self.hook, what, found=_described(got), allowed=allowed)

    def is_a(self, part: str, value: Any, kind: Any, allowed: str) -> None:
        if not isinstance(value, kind):
            self.refuse(part, value, allowed)

    def values(self, value: Any, kinds: tuple[Any, ...], allowed: str) -> None:
        """A tuple of values of these types."""
        fits = isinstance(value, tuple) and len(value) == len(kinds)
        if not fits or not all(map(isinstance, value, kinds)):
            self.refuse("value", value, allowed)

    def numbers(self, part: str, value: Any, shape: Shape, low: int, high: int) -> None:
        """An array of whole numbers, from ``low`` to ``high``."""
        allowed = f"an integer array {_spelled(shape)} with values {low} to {high}"
        self.is_a(part, value, np.ndarray, allowed)
        self._shaped(part, value, value.dtype.kind == "i", shape, allowed)
        if value.size and (value.min() < low or value.max() > high):
            outside = value[(value < low) | (value > high)]
            self.refuse(part, f"the value {outside[0]}", allowed, "out-of-range")

    def floats(self, part: str, value: Any, shape: Shape) -> None:
        """An array of finite numbers."""
        allowed = f"an array {_spelled(shape)} of finite numbers"
        self.is_a(part, value, np.ndarray, allowed)
        self._shaped(part, value, value.dtype.kind in "fiub", shape, allowed)
        if not np.isfinite(value).all():
            self.refuse(part, "values that are not finite", allowed, "not-finite")

    def tensor(
        self,
        part: str,
        value: Any,
        shape: Shape,
        dtypes: tuple[torch.dtype, ...] = (torch.float32,),
    ) -> None:
        """A tensor of finite numbers."""
        kinds = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        allowed = f"a {kinds} tensor {_spelled(shape)} of finite numbers"
        self.is_a(part, value, Tensor, allowed)
        self._shaped(part, value, value.dtype in dtypes, shape, allowed)
        # A sum in float64 is finite if all numbers are, and needs no copy of the models.
        if not math.isfinite(float(value.detach().sum(dtype=torch.float64))):
            self.refuse(part, "values that are not finite", allowed, "not-finite")

    def _shaped(self, part: str, value: Any, typed: bool, shape: Shape, allowed: str) -> None:
        fits = len(value.shape) == len(shape) and all(
            wanted in (None, size) for size, wanted in zip(value.shape, shape, strict=True)
        )
        if not fits:
            self.refuse(part, value, allowed, "wrong-shape")
        # An empty array has the type that NumPy gives it by default.
        if not typed and math.prod(value.shape):
            self.refuse(part, value, allowed)

    # --- what rounds are made of ------------------------------------------------------------------

    def groups(self, value: Any, clients: int, d: int, before: Groups | None = None) -> None:
        """The groups, of which only what is new is looked at."""
        self.is_a("value", value, Groups, "a coterie.Groups")
        if before is None or value.models is not before.models:
            self.tensor("groups.models", value.models, (None, d))
            if not len(value.models):
                self.refuse("groups.models", value.models, "at least one model", "wrong-shape")
        if before is None or value.member is not before.member or value.k < before.k:
            self.numbers("groups.member", value.member, (clients,), NO_GROUP, value.k - 1)

    def plan(self, plan: Plan, groups: Groups, several: bool, able: BoolArray | None) -> None:
        """A plan for groups; ``able``: the clients that can train, ``None`` for all."""
        self.numbers("plan.ids", plan.ids, (None,), 0, len(groups.member) - 1)
        n = len(plan.ids)
        if len(np.unique(plan.ids)) < n:
            self.refuse("plan.ids", "a client twice", "each client once", "out-of-range")
        if able is not None and not able[plan.ids.astype(np.int64)].all():
            allowed = "clients of round.cohort, or others that can train"
            self.refuse("plan.ids", "clients that cannot train", allowed, "out-of-range")
        extra = 0
        if plan.mixtures is not None:
            self.floats("plan.mixtures", plan.mixtures, (None, groups.k))
            extra = len(plan.mixtures)
        shape: Shape = (n, None) if several or plan.shares is not None else (n,)
        self.numbers("plan.row", plan.row, shape, 0, groups.k + extra - 1)
        for part in ("chain", "spent"):
            value = getattr(plan, part)
            if value is not None:
                self.numbers(f"plan.{part}", value, (n,), 0, _MOST)
        if plan.shares is not None:
            self.floats("plan.shares", plan.shares, (n, None))
        self.is_a("plan.notes", plan.notes, Mapping, "a dictionary")

    def updates(self, updates: Updates, groups: Groups) -> None:
        self.numbers("updates.ids", updates.ids, (None,), 0, len(groups.member) - 1)
        n = len(updates.ids)
        last = groups.k - 1
        if updates.starts is not None:
            last = len(updates.starts) - 1
        self.numbers("updates.row", updates.row, (n,), 0, last)
        self.is_a("updates.delta", updates.delta, Tensor, "a float32 tensor [n, d]")
        self.tensor("updates.delta", updates.delta, (n, updates.delta.shape[-1]))


def _described(got: Any) -> str:
    """A value in an error line: of an array its type and shape."""
    if isinstance(got, str):
        return got
    if isinstance(got, np.ndarray):
        return f"a {got.dtype} array {_spelled(got.shape)}"
    if isinstance(got, Tensor):
        return f"a {str(got.dtype).removeprefix('torch.')} tensor {_spelled(tuple(got.shape))}"
    if isinstance(got, tuple):
        return f"({', '.join(type(one).__name__ for one in got)})"
    if isinstance(got, list | Mapping):
        return f"a {type(got).__name__} of {len(got)}"
    return shown(got)


def _spelled(shape: Shape) -> str:
    return f"[{', '.join('n' if size is None else str(size) for size in shape)}]"


# --- what each hook may return --------------------------------------------------------------------


def _after(found: _Returned, value: Any, before: Groups) -> None:
    """Groups of the same clients and of models of the same size."""
    found.groups(value, len(before.member), before.models.shape[1], before)


def _init(found: _Returned, value: Any, initial_models: Any, clients: int) -> None:
    found.groups(value, clients, len(initial_models(0)))


def _step(found: _Returned, value: Any, state: Groups, round: Any) -> None:
    expected = "(groups, notes), a coterie.Groups and values by their names"
    found.values(value, (Groups, Mapping), expected)
    _after(found, value[0], state)


def _assign(found: _Returned, value: Any, groups: Groups, round: Any) -> None:
    expected = "(groups, plan), a coterie.Groups and a coterie.Plan"
    found.values(value, (Groups, Plan), expected)
    _after(found, value[0], groups)
    able = None
    if round.can_train is not None:
        able = round.can_train.copy()
        # Clients on trial are placed, and train in no round.
        able[round.cohort] = True
    found.plan(value[1], value[0], round.local.choose is not None, able)


def _recluster(found: _Returned, value: Any, groups: Groups, updates: Any, round: Any) -> None:
    expected = "(groups, updates), a coterie.Groups and the replies"
    found.values(value, (Groups, Updates), expected)
    _after(found, value[0], groups)
    if value[1] is not updates:
        found.updates(value[1], value[0])


def _weigh(found: _Returned, value: Any, groups: Groups, updates: Updates, round: Any) -> None:
    found.floats("W [models, replies]", value, (groups.k, len(updates)))


def _combine(
    found: _Returned, value: Any, groups: Groups, updates: Any, weights: Any, plan: Any, round: Any
) -> None:
    kinds = (Groups, Tensor, np.ndarray, Mapping)
    found.values(value, kinds, "Aggregated(groups, total, trained, notes)")
    total, trained = Aggregated(*value)[1:3]
    _after(found, value[0], groups)
    found.tensor("total", total, tuple(groups.models.shape), (torch.float32, torch.float64))
    if trained.dtype != bool or trained.shape != (groups.k,):
        found.refuse("trained", trained, f"a bool array [{groups.k}]")


def _server(found: _Returned, value: Any, groups: Groups, total: Any, trained: Any) -> None:
    _after(found, value, groups)


def _serve(found: _Returned, value: Any, groups: Groups) -> None:
    found.is_a("value", value, Served, "a coterie.Served")
    if value.models is not groups.models:
        found.tensor("served.models", value.models, (None, groups.models.shape[1]))
    if value.shares is not None:
        found.floats("served.shares", value.shares, (len(groups.member), len(value.models)))
        return
    extra = 0 if value.mixtures is None else len(value.mixtures)
    last = len(value.models) + extra - 1
    found.numbers("served.row", value.row, (len(groups.member),), 0, last)


def _ask_unlabelled(found: _Returned, value: Any, groups: Groups) -> None:
    if value is not None:
        kinds = (Describe, Tensor | None)
        found.values(value, kinds, "None, or (Describe(...), the model to send or None)")


def _place_unlabelled(found: _Returned, value: Any, groups: Groups, rows: Tensor) -> None:
    found.numbers("group of each client", value, (len(rows),), NO_GROUP, groups.k - 1)


_CHECKS: Mapping[str, Callable[..., None]] = {
    "init": _init,
    "step": _step,
    "assign": _assign,
    "recluster": _recluster,
    "weigh": _weigh,
    "aggregate": _combine,
    "server": _server,
    "inter_group": _after,
    "serve": _serve,
    "ask_unlabelled": _ask_unlabelled,
    "place_unlabelled": _place_unlabelled,
}
