"""The folder of an export: written whole, tried, and only then put in its place."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import itertools
import json
import math
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from safetensors.torch import save
from torch import Tensor, nn

from coterie.config import load
from coterie.core.vectors import Layout, state_dict
from coterie.data import Population
from coterie.data.shifts import FederationSnapshot
from coterie.errors import ConfigError
from coterie.export.card import Card, card_of, markdown, scored
from coterie.export.deployed import deployed, told
from coterie.export.network import Unspellable, source_of
from coterie.methods.serving import served_by
from coterie.runs.checkpoint import Checkpoint
from coterie.runs.prepare import Prepared, prepare
from coterie.runs.store import NODES, RunFolder

MANIFEST = "export.json"
TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written.

    Args:
        folder: where it is.
        card: what the model card tells.
        onnx: largest difference between ONNX Runtime and torch, ``None`` where no ONNX was asked
            for.
    """

    folder: Path
    card: Card
    onnx: float | None = None


def export_run(
    run: Path | str, out: Path | str | None = None, *, onnx: bool = False, root: str | None = None
) -> Exported:
    """Write the models of a run, finished or not, with all it takes to use them without Coterie.

    Args:
        run: the folder of a run, of which the newest valid checkpoint is taken.
        out: the folder to write, new or an earlier export; default ``export`` in the run's folder.
        onnx: write every model as ONNX, too, and check that ONNX Runtime gives what torch gives, to
            1e-5.
        root: folder of the datasets; default that of the run.

    Raises:
        ConfigError: if there is no run or no round yet, ``out`` holds something else, or the
            network cannot be written.
        CheckpointError: if no checkpoint is whole.
        DataError: if the data of a simulation are not at hand: they tell the shape of inputs, and
            the accuracies of the card. Of a run of real clients the server knows the shape, and
            what clients told of their accuracies.

    Example:
        >>> import tempfile
        >>> from coterie.config import check
        >>> from coterie.runs.run import run_config
        >>> tables = {"data": {"source": "digits", "partition": {"kind": "iid", "clients": 4}},
        ...           "model": {"name": "mclr"}, "local": {"epochs": 1}, "engine": {"name": "serial"},
        ...           "train": {"rounds": 2, "clients_per_round": 4}, "algorithm": {"name": "fedavg"}}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = run_config(check(tables), f"{folder}/run")
        ...     done = export_run(f"{folder}/run")
        ...     sorted(path.name for path in done.folder.iterdir())
        ['README.md', 'export.json', 'group-0.safetensors', 'groups.csv', 'load.py']
    """
    folder = RunFolder.open(run)
    target = folder.path / "export" if out is None else Path(out)
    _check_free(target)
    if onnx:
        from coterie.export.onnx import check_installed

        check_installed()
    checkpoint = folder.latest_checkpoint()
    if checkpoint is None:
        raise ConfigError(
            f"{folder.path}: no model yet, got no checkpoint; expected a run that has saved one"
        )
    config = load(folder.path / "config.toml", (), {"data.root": root})
    nodes = folder.path / NODES
    remote = nodes.is_file()
    if remote:
        prepared, checkpoint = deployed(config, nodes, checkpoint)
    else:
        prepared = prepare(config, folder.path / "partition.npz")
    whole = target.absolute()  # "." has no name
    hidden = whole.with_name(f".{whole.name}.tmp-{os.getpid()}")
    try:
        hidden.mkdir(parents=True)
        exported = _fill(hidden, prepared, checkpoint, folder, onnx, remote)
        _put(hidden, target)
    except OSError as error:
        raise ConfigError(
            f"out: cannot be written ({error.strerror}), got {target}; expected a folder that can be made"
        ) from None
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
    return Exported(target, exported.card, exported.onnx)


def _check_free(target: Path) -> None:
    """Only a new folder, or what an earlier export wrote, is written over."""
    if target.exists() and (
        not target.is_dir() or (any(target.iterdir()) and not (target / MANIFEST).is_file())
    ):
        raise ConfigError(
            f"out: holds something else, got {target}; expected a new folder, or one of an earlier export"
        )


def _put(hidden: Path, target: Path) -> None:
    """Put the files in their place, and take away those of an earlier export that are no more."""
    if not target.exists():
        hidden.rename(target)
        return
    for name in _listed(target):
        if not (hidden / name).exists() and (target / name).is_file():
            (target / name).unlink()
    for file in hidden.iterdir():
        file.replace(target / file.name)


def _listed(target: Path) -> list[str]:
    """The files that an earlier export says are its own; none where it cannot be read."""
    try:
        names = json.loads((target / MANIFEST).read_bytes())["files"]
        return [name for name in names if Path(name).name == name]
    except (OSError, ValueError, LookupError, TypeError):
        return []


def _fill(
    hidden: Path,
    prepared: Prepared,
    checkpoint: Checkpoint,
    folder: RunFolder,
    onnx: bool,
    remote: bool,
) -> Exported:
    population = prepared.population
    if checkpoint.snapshot:
        population = FederationSnapshot.restore(population, checkpoint.snapshot).population
    models, which = served_by(checkpoint.groups)
    layout = Layout.of(prepared.module)
    names = _names(checkpoint)
    vectors = dict(zip(names, models, strict=False))
    for name, vector in vectors.items():
        tensors = {key: t.contiguous() for key, t in state_dict(layout, vector).items()}
        (hidden / f"{name}.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    _write_groups(hidden / "groups.csv", population.names, checkpoint)
    needs = _write_loader(hidden / "load.py", prepared, checkpoint)
    inputs = _some(population)
    modules = _try_loader(hidden / "load.py", prepared.module, layout, vectors, inputs)
    difference = None
    if onnx:
        from coterie.export.onnx import write_onnx

        difference = max(
            write_onnx(module, inputs, hidden / f"{name}.onnx") for name, module in modules.items()
        )
    rows = [row for row in folder.rows() if row["round"] < checkpoint.round]
    figures = told(names, which, rows) if remote else scored(population, which, modules)
    card = card_of(prepared, population, figures, rows, needs, difference)
    (hidden / "README.md").write_text(markdown(card), encoding="utf-8", errors="backslashreplace")
    _write_manifest(hidden, checkpoint)
    return Exported(hidden, card, difference)


def _names(checkpoint: Checkpoint) -> list[str]:
    groups = checkpoint.groups
    return [
        *(f"group-{j}" for j in range(groups.k)),
        *(["no-group"] if (groups.member < 0).any() else []),
    ]


def _write_groups(path: Path, names: tuple[str, ...], checkpoint: Checkpoint) -> None:
    """``groups.csv``: client, group (-1: none), since which round, and the file of the model that
    serves it."""
    since = np.asarray(checkpoint.extra["since"]).tolist()
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        out = csv.writer(file)
        out.writerow(["client", "group", "since_round", "model"])
        for name, group, at in zip(names, checkpoint.groups.member.tolist(), since, strict=True):
            out.writerow(
                [name, group, at, f"{'no-group' if group < 0 else f'group-{group}'}.safetensors"]
            )


def _some(population: Population, count: int = 32) -> Tensor:
    """A few inputs to try the models on, of the first clients that have any."""
    rows: list[int] = []
    for held in itertools.chain(population.test, population.train):
        rows += held[: count - len(rows)].tolist()
        if len(rows) == count:
            break
    return population.x[torch.tensor(rows)]


# --- the loader -----------------------------------------------------------------------------------


def _write_loader(path: Path, prepared: Prepared, checkpoint: Checkpoint) -> str | None:
    """Write ``load.py``; returns the ``module:factory`` of the user's own that it imports, if it
    does."""
    name = prepared.config.model.name
    population = prepared.population
    own: Mapping[str, str] | None = None
    try:
        source = source_of(prepared.module)
        expression = source.expression
        imports = source.imports
        classes = source.classes
    except Unspellable as layer:
        if ":" not in name:
            raise ConfigError(
                f"model.name: {name} has a layer that no source is known for, got {layer}"
            ) from None
        module, _, attribute = name.partition(":")
        own = {"module": module, "root": attribute.partition(".")[0]}
        expression = f"{attribute}{_arguments(name)}"
        imports = ()
        classes = ()
    environment = Environment(
        loader=PackageLoader("coterie.export", "templates"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    torch_names = ["nn", *(n for n in ("Tensor", "_VF") if f"from torch import {n}" in imports)]
    text = environment.get_template("load.py.j2").render(
        title=f"Models of {prepared.config.algorithm.name} on {prepared.config.data.source}, by group.",
        example=_docstring(population.names[0]),
        imports=[line for line in imports if not line.startswith("from torch")],
        names=sorted(torch_names),
        own=own,
        shape=repr(population.shape),
        labels=ascii(
            tuple(prepared.label_names) or tuple(str(c) for c in range(population.classes))
        ),
        groups=checkpoint.groups.k,
        classes=classes,
        expression=expression,
        outputs=len(_outputs(prepared.module, _some(population, 2))[0]),
        outside=bool((checkpoint.groups.member < 0).any()),
    )
    path.write_text(text, encoding="utf-8")
    if own is None:
        return None
    return name


def _docstring(name: str) -> str:
    """A client's name as it may stand in a docstring."""
    if name.isascii() and name.isprintable() and not set('"\\{}') & set(name):
        return name
    return "..."


def _arguments(name: str) -> str:
    """How the user's factory is called, as `coterie.models.custom` does."""
    import inspect

    from coterie.config.custom import find

    parameters = inspect.signature(find(name)).parameters
    if {"shape", "classes"} <= set(parameters):
        return "(shape=SHAPE, classes=len(LABELS))"
    required = [
        p
        for p in parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if required:
        return "(SHAPE, len(LABELS))"
    return "()"


def _try_loader(
    path: Path, module: nn.Module, layout: Layout, vectors: Mapping[str, Tensor], inputs: Tensor
) -> dict[str, nn.Module]:
    """Load every model with the loader just written; each must give what the run's own network
    gives.

    Raises:
        ConfigError: if one does not.
    """
    import copy

    loader = _imported(path)
    loaded = {}
    for name, vector in vectors.items():
        ours = copy.deepcopy(module)
        ours.load_state_dict(state_dict(layout, vector), strict=False)
        group = -1 if name == "no-group" else int(name.removeprefix("group-"))
        try:
            loaded[name] = loader.load(group)
            difference = (
                (_outputs(loaded[name], inputs) - _outputs(ours, inputs)).abs().max().item()
            )
        except Exception as error:  # noqa: BLE001 - the network may be the user's own, and raise anything
            line = (str(error).splitlines() or [""])[0]
            raise _unfit(f"fails ({type(error).__name__}: {line})") from None
        if not math.isclose(difference, 0, abs_tol=TOLERANCE):
            raise _unfit(f"differs by {difference:.1e}")
    return loaded


def _unfit(what: str) -> ConfigError:
    return ConfigError(
        f"load.py: the network made anew {what}; expected the run's own outputs, to {TOLERANCE:g}"
    )


def _imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("coterie_export_load", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


@torch.no_grad()
def _outputs(module: nn.Module, inputs: Tensor) -> Tensor:
    before = module.training
    module.eval()
    try:
        outputs: Tensor = module(inputs)
        return outputs
    finally:
        module.train(before)


def _write_manifest(folder: Path, checkpoint: Checkpoint) -> None:
    """``export.json``: the files and their SHA-256, and after how many rounds the models were
    taken."""
    files = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}
    text = json.dumps({"schema": 1, "rounds": checkpoint.round, "files": files}, indent=2)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
