"""Objects of Python that a run was given: what its folder says of them, and how it takes them again.

No file can hold a network's code or a rule. The folder has the name of its type, the digests of its
source files, and for a network its first weights. Who resumes the run hands the object over again.
"""

from __future__ import annotations

import copy
import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from coterie.config.choice_tables import Absent
from coterie.config.own_code import is_own
from coterie.errors import ConfigError
from coterie.experiment.tables import SELECTORS, Tables
from coterie.methods.method import Method
from coterie.models import Network

E = TypeVar("E", bound=Tables)

# The name of a choice that was an object, such as (Net): no factory can be called so.
OF_OBJECT = re.compile(r"\([\w. -]+\)")


def described(value: Any, selector: str) -> dict[str, Any]:
    """The table of a choice that is an object.

    Args:
        selector: the key that names such a choice.

    Example:
        >>> from collections import Counter
        >>> described(Counter(), "name")
        {'name': '(Counter)', 'type': 'collections.Counter'}
    """
    value = _module_of(value)
    table: dict[str, Any] = {selector: f"({_short_name(value)})", "type": _spelled(value)}
    rules = _own_rules(value)
    if rules:
        table["rules"] = rules
    if isinstance(value, nn.Module):
        table["weights"] = hashlib.sha256(weights_bytes(value)).hexdigest()
    return table


def absent_in(tables: Mapping[str, Any]) -> dict[str, Absent]:
    """The choices of tables that were objects."""
    found = {}
    for place, selector in SELECTORS.items():
        table = tables.get(place)
        if not isinstance(table, Mapping) or not isinstance(table.get("type"), str):
            continue
        name = table.get(selector)
        if isinstance(name, str) and OF_OBJECT.fullmatch(name):
            found[place] = Absent(place, dict(table))
    return found


def with_objects(experiment: E, given: Mapping[str, Any], weights: bytes | None) -> E:
    """The experiment of a run's folder with the objects that are handed over, by the arguments of
    `coterie.run`.

    Args:
        weights: those with which its network began.

    Raises:
        ConfigError: for one that the run did not have, or that is another.
    """
    values = [getattr(experiment, place) for place in SELECTORS]
    absent = {one.argument: one for one in values if isinstance(one, Absent)}
    unknown = [name for name in given if name not in absent]
    if unknown:
        allowed = "none, because every object of the run has a name"
        if absent:
            allowed = f"only {', '.join(absent)}"
        what = "the run did not use such an object"
        raise ConfigError("unknown-key", unknown[0], what, allowed=allowed)
    taken = {
        absent[name].place: taken_again(absent[name], value, weights)
        for name, value in given.items()
    }
    return replace(experiment, **taken)


def taken_again(absent: Absent, value: Any, weights: bytes | None) -> Any:
    """The object in the place of the one that the run was given; a network with the first weights
    of the run.

    Raises:
        ConfigError: for an object of another type, or a network with other parameters.
    """
    now = _spelled(_module_of(value))
    before = str(absent.table["type"])
    if now.rpartition(".")[2] != before.rpartition(".")[2]:
        raise _other(absent, now, before)
    rules = _own_rules(value)
    if rules != absent.table.get("rules", rules):
        raise _other(absent, ", ".join(rules), ", ".join(absent.table["rules"]))
    module = _module_of(value)
    if not isinstance(module, nn.Module) or weights is None:
        return value
    # Not shared, not even frozen parameters: the object stays as its owner has it.
    begun = copy.deepcopy(module)
    saved = load(weights)
    shapes = {name: tuple(tensor.shape) for name, tensor in saved.items()}
    own = {name: tuple(tensor.shape) for name, tensor in _tensors(begun).items()}
    if own != shapes:
        differs = sorted(name for name in {*own, *shapes} if own.get(name) != shapes.get(name))
        shape = own.get(differs[0])
        got = f"no tensor {differs[0]}" if shape is None else f"{differs[0]} of shape {shape}"
        raise _other(absent, got, f"the {len(shapes)} tensors that the run began with")
    begun.load_state_dict(saved, strict=False)
    return replace(value, module=begun) if isinstance(value, Network) else begun


def weights_bytes(network: nn.Module | Network) -> bytes:
    """The state of a network as the bytes of a file."""
    # Tied weights under each of their names.
    return save({name: tensor.clone() for name, tensor in _tensors(_module_of(network)).items()})


def refuse_absent(experiment: Tables) -> None:
    """Refuse a run whose objects were not passed, all of them at once."""
    values = [getattr(experiment, place) for place in SELECTORS]
    found = [value.problem() for value in values if isinstance(value, Absent)]
    if found:
        raise ConfigError.of(found)


def _other(absent: Absent, got: str, allowed: str) -> ConfigError:
    what = "not the object that the run used"
    return ConfigError("differs", absent.argument, what, found=got, allowed=allowed)


def _module_of(value: Any) -> Any:
    return value.module if isinstance(value, Network) else value


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    state = module.state_dict()
    return {
        name: value.detach().cpu().contiguous()
        for name, value in state.items()
        if isinstance(value, torch.Tensor)
    }


def _spelled(value: Any) -> str:
    """The module and the name of a function or a class, or those of an object's class."""
    kind = value if hasattr(value, "__qualname__") else type(value)
    module = kind.__module__
    script = getattr(sys.modules.get(module), "__file__", None)
    # Another process finds a script by the name of its file alone.
    if module == "__main__" and script is not None:
        module = Path(script).stem
    name = re.sub(r"\W", "", kind.__qualname__.rpartition(".")[2])
    return f"{module}.{name}"


def _short_name(value: Any) -> str:
    """What tables call an object: a method its ``name``, or else its first own rule; anything else
    its type."""
    name = ""
    if isinstance(value, Method) or callable(getattr(value, "step", None)):
        name = re.sub(r"[^\w. -]", "", str(getattr(value, "name", "")))
    return name or [*_own_rules(value), _spelled(value)][0].rpartition(".")[2]


def _own_rules(value: Any) -> list[str]:
    """The parts of a method that are not Coterie's, each once: such methods are all of one type."""
    if not isinstance(value, Method):
        return []
    found = (_spelled(part) for part in _parts(value))
    return list(dict.fromkeys(name for name in found if is_own(name.rpartition(".")[0])))


def _parts(value: Any) -> Iterator[Any]:
    """An object, and the objects that its fields hold."""
    yield value
    if isinstance(value, partial):
        yield from _parts(value.func)
    if is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            yield from _parts(getattr(value, one.name))
