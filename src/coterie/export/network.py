"""A network as Python source that needs torch only."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import nn

from coterie.models.recurrent import AgainstZero, Last, OneBiasLSTM, Outputs
from coterie.objectives.fusion import NAME, Blend, Fused, Mix

IMPORTS = {
    "math.": "import math",
    "OrderedDict(": "from collections import OrderedDict",
    "Sequence[": "from collections.abc import Sequence",
    "islice(": "from itertools import islice",
    "torch.": "import torch",
    "Tensor": "from torch import Tensor",
    "_VF.": "from torch import _VF",
}  # what the source of our own layers may name
CONSTANTS = {
    "CONVOLUTIONS": "CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)",
    "NAME": f"NAME = {NAME!r}",
}


class Unspellable(Exception):
    """A layer whose constructor call cannot be told from the layer."""


@dataclass(frozen=True, slots=True)
class Source:
    """Source code of a network.

    Args:
        imports: lines.
        classes: the source of layers that are not torch's own.
        expression: what makes the network.
    """

    imports: tuple[str, ...]
    classes: tuple[str, ...]
    expression: str


def source_of(module: nn.Module) -> Source:
    """The source code that makes a network of the same layers, with weights of its own.

    Args:
        module: made of torch's layers, of Coterie's own, and of ``nn.Sequential``.

    Raises:
        Unspellable: for any other layer.

    Example:
        >>> source_of(nn.Sequential(nn.Flatten(), nn.Linear(4, 2))).expression.splitlines()[1].strip()
        "('0', nn.Flatten(start_dim=1, end_dim=-1)),"
    """
    kinds: dict[type[nn.Module], None] = {}
    expression = _spelled(module, kinds, 1)
    classes = tuple(_definition(kind) for kind in kinds)
    text = "\n".join((*classes, expression))
    constants = "\n".join(
        line for name, line in CONSTANTS.items() if re.search(rf"\b{name}\b", text)
    )
    lines = [
        line for word, line in IMPORTS.items() if re.search(rf"(?<!\w){re.escape(word)}", text)
    ]
    return Source(
        tuple(sorted(lines, key=_order)),
        (constants, *classes) if constants else classes,
        expression,
    )


def _order(line: str) -> tuple[bool, bool, str]:
    """Standard library first, ``import`` before ``from``."""
    return ("torch" in line, line.startswith("from"), line)


def _definition(kind: type[nn.Module]) -> str:
    """The source of one of our classes, without its docstring, which names modules that are not
    there."""
    text = inspect.getsource(kind).rstrip()
    doc = re.search(r'^    """.*?"""\n', text, re.DOTALL | re.MULTILINE)
    if doc:
        return text.replace(doc[0], "", 1).replace(":\n\n", ":\n", 1)
    return text


def _spelled(module: nn.Module, kinds: dict[type[nn.Module], None], depth: int) -> str:
    kind = type(module)
    if kind is nn.Sequential:
        return f"nn.Sequential(OrderedDict({_layers(module.named_children(), kinds, depth)}))"
    if kind in OURS:
        made = OURS[kind](module, kinds, depth)
        kinds.setdefault(kind)
        return made
    own = (
        kind.__module__.startswith("torch.nn.modules.") and getattr(nn, kind.__name__, None) is kind
    )
    text = repr(module)
    if not own or "\n" in text or any(True for _ in module.children()):
        raise Unspellable(f"{kind.__module__}.{kind.__qualname__}")
    return f"nn.{text}"


def _layers(
    named: Iterator[tuple[str, nn.Module]], kinds: dict[type[nn.Module], None], depth: int
) -> str:
    inner = "".join(
        f"{'    ' * (depth + 1)}({n!r}, {_spelled(m, kinds, depth + 1)}),\n" for n, m in named
    )
    return f"[\n{inner}{'    ' * depth}]"


def _fused(module: nn.Module, kinds: dict[type[nn.Module], None], depth: int) -> str:
    assert isinstance(module, Fused)
    named = [*module.named_children()]
    operator = _spelled(named.pop(module.cut)[1], kinds, depth)
    return f"Fused({_layers(iter(named), kinds, depth)}, {module.cut}, {operator})"


def _mix(module: nn.Module, kinds: dict[type[nn.Module], None], depth: int) -> str:
    assert isinstance(module, Mix)
    mix = module.mix
    out = mix.out_features if isinstance(mix, nn.Linear) else mix.out_channels
    return f"Mix({_spelled(mix, kinds, depth)}, {out})"


def _lstm(module: nn.Module, kinds: dict[type[nn.Module], None], depth: int) -> str:
    assert isinstance(module, OneBiasLSTM)
    inputs = module.get_parameter("weight_ih_l0").shape[1]
    return f"OneBiasLSTM({inputs}, {module.hidden_size}, {len(module.directions) == 2})"


def _blend(module: nn.Module, kinds: dict[type[nn.Module], None], depth: int) -> str:
    assert isinstance(module, Blend)
    return f"Blend({len(module.gamma)})"


def _plain(module: nn.Module, kinds: dict[type[nn.Module], None], depth: int) -> str:
    return f"{type(module).__name__}()"


OURS: dict[type[nn.Module], Callable[[nn.Module, dict[type[nn.Module], None], int], str]] = {
    Fused: _fused,
    Mix: _mix,
    Blend: _blend,
    OneBiasLSTM: _lstm,
    Outputs: _plain,
    Last: _plain,
    AgainstZero: _plain,
}
