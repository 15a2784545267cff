"""``network.pt2`` and ``load.py`` of an export: the run's own network as torch.export writes it, and
what loads it; both are tried."""

from __future__ import annotations

import copy
import itertools
import math
import runpy
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from coterie.core.target_scaling import scaling_of, without_units
from coterie.core.vectors import Layout, state_dict
from coterie.data import Population
from coterie.errors import ConfigError, first_line
from coterie.export.card import class_names, feature_names, template
from coterie.export.models import NO_GROUP, ExportedModels
from coterie.export.onnx import TOLERANCE, relative_gap, silence
from coterie.export.source import ExportSource
from coterie.runs.compose import Composed

NETWORK = "network.pt2"
MODULE_NAME = "coterie_export_load"


def write_network(path: Path, module: nn.Module, inputs: Tensor) -> str | None:
    """Write the network by torch.export, in evaluation mode and for any number of inputs; or return
    why torch cannot, if its layers depend on the values of inputs, for example."""
    network = copy.deepcopy(module).eval()
    # With one input, torch would take its number for a constant. Zeros, and no samples of clients:
    # the file holds them.
    example = inputs.new_zeros((2, *inputs.shape[1:]))
    batch = torch.export.Dim("batch")
    try:
        with silence():
            program = torch.export.export(network, (example,), dynamic_shapes=({0: batch},))
            torch.export.save(program, path)
    except Exception as error:  # noqa: BLE001 - torch, and a network of the user's, raise anything
        path.unlink(missing_ok=True)
        return f"{type(error).__name__}: {first_line(error)}"
    return None


def write_loader(
    path: Path, source: ExportSource, population: Population, models: ExportedModels
) -> None:
    """Write ``load.py``."""
    composed = source.composed
    outputs = _outputs(composed.module, first_inputs(population, 2))
    first = int(np.flatnonzero(models.row >= 0)[0])
    text = template("load.py.j2").render(
        title=_title(composed, models),
        example=_safe_in_docstring(str(population.names[first])),
        private=source.private,
        # Of a client's own file it is in the model.
        own_part=source.own_part if models.groups else "",
        shape=repr(population.shape),
        # Escaped, so that no letter of a name can change how the file reads.
        labels=ascii(class_names(composed, population)),
        inputs=str(population.x.dtype).removeprefix("torch."),
        features=ascii(feature_names(source.record)),
        groups=models.groups,
        outputs=", ".join(map(str, outputs.shape[1:])),
        outside=NO_GROUP in models.vectors,
        scaling=scaling_of(composed.spec.task),
    )
    path.write_text(text, encoding="utf-8")


def _title(composed: Composed, models: ExportedModels) -> str:
    """The first line of the file's docstring."""
    config = composed.experiment
    if models.groups:
        return f"Models of {config.name('algorithm')} on {config.name('source')}, by group."
    return f"The model of a client, by {config.name('algorithm')} on {config.name('source')}."


def _safe_in_docstring(name: str) -> str:
    """A client's name as an example in a docstring, or dots where it could end the docstring."""
    if name.isascii() and name.isprintable() and not set('"\\{}') & set(name):
        return name
    return "..."


# --- trying it ------------------------------------------------------------------------------------


def first_inputs(population: Population, count: int = 32) -> Tensor:
    """A few inputs to try the models on, of the first clients that have any."""
    rows: list[int] = []
    for held in itertools.chain(population.test, population.train):
        rows += held[: count - len(rows)].tolist()
        if len(rows) == count:
            break
    return population.x[torch.tensor(rows)]


def with_vector(module: nn.Module, vector: Tensor) -> nn.Module:
    """A copy of a network in evaluation mode, with the parameters ``[d]`` of a model."""
    network = copy.deepcopy(module).eval()
    # Frozen parameters and integer buffers are in no vector; the copy has them already.
    network.load_state_dict(state_dict(Layout.of(module), vector), strict=False)
    return network


def try_loader(
    path: Path, module: nn.Module, models: ExportedModels, inputs: Tensor
) -> dict[str, nn.Module]:
    """Load every model with the file just written, which must give what the run's own network
    gives; returns that network with the weights of each model."""
    # Run and not imported: bytecode would become part of the export.
    load_model = runpy.run_path(str(path), run_name=MODULE_NAME)["load_model"]
    found = {}
    for name, vector in models.vectors.items():
        reference = with_vector(module, vector)
        # Weights alone, where torch cannot write the network.
        into = None
        if not (path.parent / NETWORK).exists():
            into = copy.deepcopy(without_units(module)).eval()
        try:
            found_outputs = _outputs(load_model(name, into), inputs)
            difference = relative_gap(found_outputs, _outputs(reference, inputs)).item()
        except Exception as error:  # noqa: BLE001 - a network of the user's own may raise anything
            raise _does_not_fit(f"fails ({type(error).__name__}: {first_line(error)})") from None
        # Also for NaN, which is close to nothing.
        if not math.isclose(difference, 0, abs_tol=TOLERANCE):
            raise _does_not_fit(f"differs by {difference:.1e}")
        found[name] = reference
    return found


def _does_not_fit(what: str) -> ConfigError:
    expected = f"the run's own outputs to within {TOLERANCE:g}"
    return ConfigError(
        "differs", "load.py", f"the network that was built from the file {what}", allowed=expected
    )


@torch.no_grad()
def _outputs(module: nn.Module, inputs: Tensor) -> Tensor:
    """The outputs of a network in evaluation mode; its mode stays."""
    # In evaluation mode: dropout would make any two outputs differ.
    before = module.training
    module.eval()
    try:
        return module(inputs)
    finally:
        module.train(before)
