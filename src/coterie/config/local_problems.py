"""What does not go together in ``[local]``: optimisers with their options, and schedules.

Optimisers are the classes of ``torch.optim``, and their options are the parameters of these
classes, so that nothing here has to be kept in step with torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from coterie.config.wording import describe_type, nearest, spelled
from coterie.errors import Problem, first_line, shown

if TYPE_CHECKING:
    from torch.optim import Optimizer

Place = tuple[str, ...]

# LBFGS evaluates a loss several times a step, Muon takes matrices only, SparseAdam sparse gradients.
_UNFIT = ("LBFGS", "Muon", "Optimizer", "SparseAdam")
# What [local] says by a key of its own, and what chooses an implementation or the sign of a step.
_NO_OPTIONS = (
    *("params", "lr", "momentum", "weight_decay", "decoupled_weight_decay"),
    *("foreach", "fused", "capturable", "differentiable", "maximize"),
)
# The options of schedules, and the kind that has them.
_OF_KIND = {"every": "step", "gamma": "step", "over": "cosine", "floor": "cosine"}


@lru_cache(maxsize=1)
def optimizer_classes() -> Mapping[str, Callable[..., Optimizer]]:
    """The optimisers of local training by name: classes of ``torch.optim`` in lower case."""
    # Not above: a configuration without them is read without waiting for torch.
    from torch import optim

    return {
        name.lower(): _without_compiler(value)
        for name, value in vars(optim).items()
        if isinstance(value, type) and issubclass(value, optim.Optimizer) and name not in _UNFIT
    }


def _without_compiler(kind: type[Optimizer]) -> type[Optimizer]:
    """The optimiser without what torch puts around it for ``torch.compile``.

    The first call of that imports the compiler, which takes a second in each process, and nothing
    here uses it. It would also turn gradients off, as who calls `step` here has done.
    """
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in ("step", "add_param_group")}
    return type(kind.__name__, (kind,), methods)


@lru_cache(maxsize=64)
def optimizer_defaults(optimizer: str) -> Mapping[str, Any]:
    """The options of an optimiser with torch's defaults.

    Example:
        >>> optimizer_defaults("adam")["betas"]
        (0.9, 0.999)
    """
    parameters = inspect.signature(optimizer_classes()[optimizer]).parameters
    return {name: one.default for name, one in parameters.items() if name not in _NO_OPTIONS}


def has_momentum(optimizer: str) -> bool:
    """Whether ``local.momentum`` is a parameter of an optimiser."""
    return "momentum" in inspect.signature(optimizer_classes()[optimizer]).parameters


# --- problems -------------------------------------------------------------------------------------


def optimizer_problems(place: Place, local: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with an optimiser, its options, and the momentum."""
    name = local["optimizer"]
    options = local.get("optimizer_options") or {}
    momentum = local.get("momentum") or 0
    # Other types are refused by their own fields.
    if not isinstance(name, str) or not isinstance(options, Mapping):
        return []
    if name == "sgd" and local.get("keep_state") is True and not momentum:
        what = "sgd without momentum has no state to keep"
        expected = "false, a momentum, or another optimizer"
        return [Problem("in-conflict", spelled((*place, "keep_state")), what, True, expected)]
    if name == "sgd" and not options:
        return []
    if name not in optimizer_classes():
        known = tuple(sorted(optimizer_classes()))
        where = spelled((*place, "optimizer"))
        expected = describe_type(Literal[known])
        hint = nearest(name, known)
        return [Problem("unknown-choice", where, got=shown(name), allowed=expected, hint=hint)]
    places = {option: (*place, "optimizer_options", option) for option in options}
    each = [_option_problem(places[option], name, value) for option, value in options.items()]
    found = [problem for problem in each if problem is not None]
    where = spelled((*place, "momentum"))
    if momentum and not has_momentum(name):
        found.append(Problem("in-conflict", where, f"{name} has no momentum", momentum, "0"))
    # Torch's only rule across options: Nesterov's momentum needs some.
    if options.get("nesterov") is True and not momentum:
        expected = "a number > 0 and < 1"
        found.append(Problem("in-conflict", where, "nesterov needs momentum", momentum, expected))
    return found


def _option_problem(path: Place, optimizer: str, value: Any) -> Problem | None:
    option = path[-1]
    where = spelled(path)
    defaults = optimizer_defaults(optimizer)
    if option == "weight_decay":
        expected = f"{spelled((*path[:-2], 'weight_decay'))} (decoupled), or l2 (coupled)"
        return Problem("unknown-key", where, got=shown(value), allowed=expected)
    if option not in defaults:
        known = list(defaults)
        expected = f"one of {', '.join(known)}" if known else "no options"
        hint = nearest(option, known)
        return Problem("unknown-key", where, got=shown(value), allowed=expected, hint=hint)
    if not _like(value, defaults[option]):
        return Problem("wrong-type", where, got=shown(value), allowed=_expected(defaults[option]))
    refused = _refused(optimizer, option, value)
    if refused:
        expected = f"a value that torch.optim allows ({refused})"
        return Problem("out-of-range", where, got=shown(value), allowed=expected)
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _like(value: Any, default: Any) -> bool:
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(default, tuple):
        several = isinstance(value, list | tuple)
        return several and len(value) == len(default) and all(map(_is_number, value))
    # Torch writes 0 for some numbers, so that an integer as the default says nothing.
    return _is_number(value)


def _expected(default: Any) -> str:
    if isinstance(default, tuple):
        return f"a list of {len(default)} numbers"
    if isinstance(default, bool):
        return "true or false"
    return "a number"


def _refused(optimizer: str, option: str, value: Any) -> str:
    """What torch says against a value; empty: nothing."""
    import torch

    if isinstance(value, list):
        value = tuple(value)
    # Whether there is momentum for it is checked where both are known.
    if option == "nesterov":
        return ""
    try:
        optimizer_classes()[optimizer]([torch.zeros(1)], lr=1.0, **{option: value})
    except (ValueError, TypeError) as error:
        return first_line(error)
    return ""


def schedule_problems(place: Place, schedule: Mapping[str, Any]) -> list[Problem]:
    """What is wrong between the options of a schedule.

    Example:
        >>> print(schedule_problems((), {"kind": "cosine", "every": 3})[0])
        every: an option of kind 'step', got 3; expected no such key with kind 'cosine'
    """
    kind = schedule["kind"]
    found = []
    for option, owner in _OF_KIND.items():
        value = schedule.get(option)
        if value is not None and kind != owner:
            where = spelled((*place, option))
            what = f"an option of kind '{owner}'"
            expected = f"no such key with kind '{kind}'"
            found.append(Problem("in-conflict", where, what, shown(value), expected))
    if kind == "step" and schedule.get("every") is None:
        found.append(Problem("missing", spelled((*place, "every")), allowed="an integer >= 1"))
    return found
