"""A network as Python source that needs torch only."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from torch import nn

from coterie.models.recurrent import AgainstZero, Last, OneBiasLSTM, Outputs
from coterie.models.residual import Residual
from coterie.models.transformer import Positions, SelfAttention, Transformer
from coterie.objectives.fusion import NAME, Blend, Fused, Mix

# What the source of our own layers may name -> the line that imports it.
IMPORTS: Mapping[str, str] = {
    "math.": "import math",
    "OrderedDict(": "from collections import OrderedDict",
    "Sequence[": "from collections.abc import Sequence",
    "islice(": "from itertools import islice",
    "torch.": "import torch",
    "Tensor": "from torch import Tensor",
    "_VF.": "from torch import _VF",
}
# Constants of the modules that define them.
CONSTANTS: Mapping[str, str] = {
    "CONVOLUTIONS": "CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)",
    "NAME": f"NAME = {NAME!r}",
}


class UnknownLayer(Exception):
    """A layer whose constructor call cannot be told from the layer."""


@dataclass(frozen=True, slots=True)
class Source:
    """Source code of a network."""

    imports: tuple[str, ...]
    classes: tuple[str, ...]
    expression: str


def source_of(module: nn.Module) -> Source:
    """The source code that makes a network of the same layers, with weights of its own.

    Raises:
        UnknownLayer: for any other layer.
    """
    writer = NetworkWriter()
    expression = writer.expression(module, 1)
    classes = [_definition(kind) for kind in writer.kinds]
    text = "\n".join((*classes, expression))
    constants = [line for name, line in CONSTANTS.items() if re.search(rf"\b{name}\b", text)]
    if constants:
        classes.insert(0, "\n".join(constants))
    imports = [line for word, line in IMPORTS.items() if _mentions(text, word)]
    return Source(tuple(sorted(imports, key=_import_order)), tuple(classes), expression)


def _mentions(text: str, word: str) -> bool:
    """Whether a source has a word, and not as the end of a longer one."""
    return re.search(rf"(?<!\w){re.escape(word)}", text) is not None


def _import_order(line: str) -> tuple[bool, bool, str]:
    """Standard library first, ``import`` before ``from``."""
    return ("torch" in line, line.startswith("from"), line)


def _definition(kind: type[nn.Module]) -> str:
    """The source of one of our classes, without its docstring: it names modules that are not
    exported."""
    # The source that ran, so an export cannot differ from the network by a copy that grew old.
    text = inspect.getsource(kind).rstrip()
    docstring = re.search(r'^    """.*?"""\n', text, re.DOTALL | re.MULTILINE)
    if docstring is None:
        return text
    without = text.replace(docstring[0], "", 1)
    return without.replace(":\n\n", ":\n", 1)


class NetworkWriter:
    """Writes the expressions that make layers, and collects the classes that they need.

    The attribute ``kinds`` has Coterie's own classes in the order in which they are needed.
    """

    def __init__(self) -> None:
        # A dictionary as a set that keeps its order.
        self.kinds: dict[type[nn.Module], None] = {}

    def expression(self, module: nn.Module, depth: int) -> str:
        """The expression that makes a layer of the same kind."""
        kind = type(module)
        if kind is nn.Sequential:
            return f"nn.Sequential(OrderedDict({self.layers(module.named_children(), depth)}))"
        # By the very class: a subclass may have another constructor.
        if kind in OWN_LAYERS:
            expression = OWN_LAYERS[kind](self, module, depth)
            # After the layers inside it, whose classes come first.
            self.kinds.setdefault(kind)
            return expression
        return _torch_expression(module)

    def layers(self, named: Iterable[tuple[str, nn.Module]], depth: int) -> str:
        """A list of pairs of names and layers, a line for each."""
        indent = "    " * (depth + 1)
        lines = [f"{indent}({name!r}, {self.expression(m, depth + 1)}),\n" for name, m in named]
        return f"[\n{''.join(lines)}{'    ' * depth}]"


def _torch_expression(module: nn.Module) -> str:
    """One of torch's layers: how it prints is how it is made."""
    kind = type(module)
    text = repr(module)
    of_torch = kind.__module__.startswith("torch.nn.modules.")
    public = getattr(nn, kind.__name__, None) is kind
    # A layer that has others inside prints them, too, and not how it is made.
    simple = "\n" not in text and not any(True for _ in module.children())
    if not (of_torch and public and simple):
        raise UnknownLayer(f"{kind.__module__}.{kind.__qualname__}")
    return f"nn.{text}"


# --- Coterie's own layers -------------------------------------------------------------------------


def _fused(writer: NetworkWriter, module: nn.Module, depth: int) -> str:
    assert isinstance(module, Fused)
    named = list(module.named_children())
    _, operator = named.pop(module.cut)
    made_operator = writer.expression(operator, depth)
    return f"Fused({writer.layers(named, depth)}, {module.cut}, {made_operator})"


def _mix(writer: NetworkWriter, module: nn.Module, depth: int) -> str:
    assert isinstance(module, Mix)
    # A linear layer or a convolution: either way the rows of its weights are the outputs.
    channels = len(module.mix.get_parameter("weight"))
    return f"Mix({writer.expression(module.mix, depth)}, {channels})"


def _lstm(writer: NetworkWriter, module: nn.Module, depth: int) -> str:
    assert isinstance(module, OneBiasLSTM)
    inputs = module.get_parameter("weight_ih_l0").shape[1]
    bidirectional = len(module.directions) == 2
    return f"OneBiasLSTM({inputs}, {module.hidden_size}, {bidirectional})"


def _blend(writer: NetworkWriter, module: nn.Module, depth: int) -> str:
    assert isinstance(module, Blend)
    return f"Blend({len(module.gamma)})"


def _residual(writer: NetworkWriter, module: nn.Module, depth: int) -> str:
    assert isinstance(module, Residual)
    main = writer.expression(module.main, depth)
    return f"Residual({main}, {writer.expression(module.shortcut, depth)})"


def _attention(writer: NetworkWriter, module: nn.Module, depth: int) -> str:
    assert isinstance(module, SelfAttention)
    return f"SelfAttention({module.query.in_features}, {module.heads}, {module.causal})"


def _positions(writer: NetworkWriter, module: nn.Module, depth: int) -> str:
    assert isinstance(module, Positions)
    length, width = module.place.shape
    return f"Positions({length}, {width})"


def _transformer(writer: NetworkWriter, module: nn.Module, depth: int) -> str:
    assert isinstance(module, Transformer)
    parts = (module.embedding, module.blocks, module.head)
    made = ", ".join(writer.expression(part, depth) for part in parts)
    return f"Transformer({made}, {module.per_token})"


def _without_arguments(writer: NetworkWriter, module: nn.Module, depth: int) -> str:
    return f"{type(module).__name__}()"


OWN_LAYERS: Mapping[type[nn.Module], Callable[[NetworkWriter, nn.Module, int], str]] = {
    Fused: _fused,
    Mix: _mix,
    Blend: _blend,
    OneBiasLSTM: _lstm,
    Residual: _residual,
    SelfAttention: _attention,
    Positions: _positions,
    Transformer: _transformer,
    Outputs: _without_arguments,
    Last: _without_arguments,
    AgainstZero: _without_arguments,
}
