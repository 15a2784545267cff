"""``load.py`` of an export: written from the run's own network, and tried."""

from __future__ import annotations

import copy
import inspect
import itertools
import math
import runpy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from coterie.config.custom import import_factory
from coterie.core.vectors import Layout, state_dict
from coterie.data import Population
from coterie.errors import ConfigError, first_line
from coterie.export.card import class_names, feature_names, template
from coterie.export.models import ExportedModels
from coterie.export.network import Source, UnknownLayer, source_of
from coterie.runs.compose import Composed

TOLERANCE = 1e-5
MODULE_NAME = "coterie_export_load"


@dataclass(frozen=True, slots=True)
class CustomNetwork:
    """A network of the user's own that is imported: its source is not copied."""

    module: str
    name: str
    expression: str

    @classmethod
    def of(cls, factory: str, outputs: str) -> CustomNetwork:
        """From ``module:factory``; ``outputs`` is their number as `load.py` writes it."""
        module, _, attribute = factory.partition(":")
        call = f"{attribute}{_arguments(factory, outputs)}"
        return cls(module, attribute.partition(".")[0], call)


def write_loader(
    path: Path,
    composed: Composed,
    population: Population,
    models: ExportedModels,
    own_part: str = "",
) -> str | None:
    """Write ``load.py``.

    Returns:
        The user's own ``module:factory`` that the file imports, if it does.
    """
    source, custom = _network_source(composed, population)
    outputs = _outputs(composed.module, first_inputs(population, 2))
    first = int(np.flatnonzero(models.row >= 0)[0])
    text = template("load.py.j2").render(
        title=_title(composed, models),
        example=_safe_in_docstring(str(population.names[first])),
        # Of a client's own file it is in the model.
        own_part=own_part if models.groups else "",
        imports=[line for line in source.imports if not line.startswith("from torch")],
        names=_torch_names(source),
        custom=custom,
        shape=repr(population.shape),
        # Escaped, so that no letter of a name can change how the file reads.
        labels=ascii(class_names(composed, population)),
        inputs=str(population.x.dtype).removeprefix("torch."),
        features=ascii(feature_names(composed.experiment, population)),
        groups=models.groups,
        classes=source.classes,
        expression=source.expression,
        outputs=", ".join(map(str, outputs.shape[1:])),
        outside=models.any_without_group,
    )
    path.write_text(text, encoding="utf-8")
    if custom is None:
        return None
    return composed.experiment.name("model")


def _network_source(
    composed: Composed, population: Population
) -> tuple[Source, CustomNetwork | None]:
    """The source that makes the network anew, and what it imports of the user's own, if it does."""
    name = composed.experiment.name("model")
    try:
        # From the layers and not by the network's name, so that a user's own module of torch's
        # layers needs nothing of theirs, either.
        return source_of(composed.module), None
    except UnknownLayer as layer:
        if ":" not in name:
            what = f"{name} has a layer that no source is known for, got {layer}"
            raise ConfigError(f"model.name: {what}") from None
    custom = CustomNetwork.of(name, _count_text(composed, population))
    return Source((), (), custom.expression), custom


def _title(composed: Composed, models: ExportedModels) -> str:
    """The first line of the file's docstring."""
    config = composed.experiment
    if models.groups:
        return f"Models of {config.name('algorithm')} on {config.name('source')}, by group."
    return f"The model of a client, by {config.name('algorithm')} on {config.name('source')}."


def _count_text(composed: Composed, population: Population) -> str:
    """The number of outputs as `load.py` writes it: by the names of the classes where it can."""
    outputs = composed.spec.task.outputs
    if len(class_names(composed, population)) == outputs:
        return "len(LABELS)"
    return str(outputs)


def _torch_names(source: Source) -> list[str]:
    """What the file imports from torch."""
    names = ["nn"]
    for name in ("Tensor", "_VF"):
        if f"from torch import {name}" in source.imports:
            names.append(name)
    return sorted(names)


def _safe_in_docstring(name: str) -> str:
    """A client's name as an example in a docstring, or dots where it could end the docstring."""
    if name.isascii() and name.isprintable() and not set('"\\{}') & set(name):
        return name
    return "..."


def _arguments(factory: str, outputs: str) -> str:
    """How the user's factory is called, as `coterie.models.custom` does."""
    parameters = inspect.signature(import_factory(factory)).parameters
    if {"shape", "classes"} <= set(parameters):
        return f"(shape=SHAPE, classes={outputs})"
    for parameter in parameters.values():
        variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.default is parameter.empty and not variadic:
            return f"(SHAPE, {outputs})"
    return "()"


# --- trying it ------------------------------------------------------------------------------------


def first_inputs(population: Population, count: int = 32) -> Tensor:
    """A few inputs to try the models on, of the first clients that have any."""
    rows: list[int] = []
    for held in itertools.chain(population.test, population.train):
        rows += held[: count - len(rows)].tolist()
        if len(rows) == count:
            break
    return population.x[torch.tensor(rows)]


def try_loader(
    path: Path, module: nn.Module, models: ExportedModels, inputs: Tensor
) -> dict[str, nn.Module]:
    """Load every model with the file just written; each must give what the run's own network gives."""
    # Run and not imported: bytecode would become part of the export.
    load_model = runpy.run_path(str(path), run_name=MODULE_NAME)["load_model"]
    layout = Layout.of(module)
    loaded = {}
    for name, vector in models.vectors.items():
        reference = copy.deepcopy(module)
        # Frozen parameters and integer buffers are in no vector; the copy has them already.
        reference.load_state_dict(state_dict(layout, vector), strict=False)
        try:
            loaded[name] = load_model(name)
            gap = _outputs(loaded[name], inputs) - _outputs(reference, inputs)
            difference = gap.abs().max().item()
        except Exception as error:  # noqa: BLE001 - a network of the user's own may raise anything
            what = f"fails ({type(error).__name__}: {first_line(error)})"
            raise _does_not_fit(what) from None
        # Also for NaN, which is close to nothing.
        if not math.isclose(difference, 0, abs_tol=TOLERANCE):
            raise _does_not_fit(f"differs by {difference:.1e}")
    return loaded


def _does_not_fit(what: str) -> ConfigError:
    expected = f"the run's own outputs, to {TOLERANCE:g}"
    return ConfigError(f"load.py: the network made anew {what}; expected {expected}")


@torch.no_grad()
def _outputs(module: nn.Module, inputs: Tensor) -> Tensor:
    """The outputs of a network in evaluation mode; its mode stays."""
    # In evaluation mode: dropout would make any two outputs differ.
    before = module.training
    module.eval()
    try:
        outputs: Tensor = module(inputs)
        return outputs
    finally:
        module.train(before)
