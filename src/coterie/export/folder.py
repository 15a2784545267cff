"""The folder of an export: written whole, tried, and only then put in its place."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import save
from torch import Tensor, nn

from coterie.core.target_scaling import without_units
from coterie.core.task import headline_of
from coterie.core.vectors import whole_state
from coterie.errors import ConfigError
from coterie.export.card import Card, make_card, write_markdown
from coterie.export.figures import Figures, evaluate, reported_figures
from coterie.export.loader import (
    NETWORK,
    first_inputs,
    try_loader,
    with_vector,
    write_loader,
    write_network,
)
from coterie.export.models import ClientModel, ExportedModels, client_model
from coterie.export.onnx import require_onnx, write_onnx
from coterie.export.placing import newcomer_vector
from coterie.export.source import ExportSource
from coterie.export.table_files import can_predict, write_columns, write_predictor
from coterie.files import csv_text, read_json, refuse_unwritable_output
from coterie.runs.folder.checkpoints import Checkpoint
from coterie.runs.folder.store import RunFolder

MANIFEST = "export.json"


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written, with the largest difference between ONNX Runtime and torch, and the client
    if it is the model of one."""

    folder: Path
    card: Card
    onnx: float | None = None
    client: ClientModel | None = None


def export_run(
    run: Path | str | RunFolder,
    out: Path | str | None = None,
    *,
    client: str | None = None,
    onnx: bool = False,
    root: str | None = None,
    older: bool = False,
    trust: bool = False,
) -> Exported:
    """Write the models of a run, finished or not, with everything needed to use them without
    Coterie.

    The newest valid checkpoint is exported. If clients keep layers or have their own models, only
    the shared models are written, without these; ``client`` selects the model of one client.

    Args:
        run: the folder of the run.
        out: the folder to write, a new one or an earlier export; default ``export`` in the run's
            folder, or for a client ``export-client-`` and its number.
        client: name of a client of a simulation; only its model is written, with its own layers, or
            its own model.
        onnx: whether to also write every model as ONNX, and check that the outputs of ONNX Runtime
            equal those of torch to 1e-5.
        root: folder of the datasets; default that of the run.
        older: whether to export an older checkpoint if the newest is damaged.
        trust: run the code that the configuration names as ``module:factory``, even if it is not
            known to be your own.

    Raises:
        ConfigError: if there is no run or no round yet, ``out`` contains other files, the
            network cannot be written, there is no such client, or clients share no model and no
            client is named.
        CheckpointError: if a file of the run is damaged, or its newest checkpoint is and ``older``
            is not set.
        DataError: if the data of a simulation are not available. The shape of inputs and the
            accuracies in the card are computed from them. For a run on real clients, the server
            knows the shape, and the accuracies that clients reported.

    Example:
        >>> import tempfile
        >>> from coterie.experiment import check
        >>> from coterie.runs.run import run_config
        >>> tables = {
        ...     "data": {"source": "digits", "partition": {"kind": "iid", "clients": 4}},
        ...     "model": {"name": "mclr"},
        ...     "local": {"epochs": 1},
        ...     "train": {"rounds": 2, "clients_per_round": 4},
        ...     "algorithm": {"name": "fedavg"},
        ...     "engine": {"name": "serial"},
        ... }
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = run_config(check(tables), f"{folder}/run")
        ...     done = export_run(f"{folder}/run")
        ...     sorted(path.name for path in done.folder.iterdir())
        ['README.md', 'export.json', 'group-0.safetensors', 'groups.csv', 'load.py', 'network.pt2']
    """
    target = RunFolder.open(run).path / "export"
    if out is not None:
        target = Path(out)
    # What can be refused is refused before the data are read, which may take minutes.
    if out is not None or client is None:
        _check_free(target)
    if onnx:
        require_onnx()
    source = ExportSource.open(run, root, older=older, trust=trust, rows=True)
    own = None
    if client is not None:
        _refuse_private(source, client)
        own = client_model(source, client)
        if out is None:
            target = target.with_name(f"export-client-{own.number}")
            _check_free(target)
    whole = target.absolute()  # "." has no name
    hidden = whole.with_name(f".{whole.name}.tmp-{os.getpid()}")
    try:
        with refuse_unwritable_output("out", target):
            # Whole before it is shown: somebody may be copying the earlier export.
            hidden.mkdir(parents=True)
            card, difference = _fill(hidden, source, onnx, own)
            _put_in_place(hidden, target)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
    return Exported(target, card, difference, own)


def _refuse_private(source: ExportSource, client: str) -> None:
    """Refuse the model of one client where nothing is told of single clients."""
    if source.private:
        what = "reveals the group of a client in a run with [privacy]"
        expected = "no --client: its group is in groups.csv of the run's folder"
        raise ConfigError("in-conflict", "--client", what, got=client, allowed=expected)


# --- the target -----------------------------------------------------------------------------------


def _check_free(target: Path) -> None:
    """Refuse to write over anything but an earlier export."""
    if not target.exists():
        return
    in_use = not target.is_dir() or any(target.iterdir())
    if in_use and not (target / MANIFEST).is_file():
        expected = "a new folder, or one of an earlier export"
        raise ConfigError("in-use", "out", "contains other files", found=target, allowed=expected)


def _put_in_place(hidden: Path, target: Path) -> None:
    """Move the files to the target, and remove those of an earlier export that are no more."""
    if not target.exists():
        hidden.rename(target)
        return
    for name in _earlier_files(target):
        # Files that a user has put next to an export stay.
        if not (hidden / name).exists() and (target / name).is_file():
            (target / name).unlink()
    for file in _files_in(hidden):
        place = target / file.relative_to(hidden)
        place.parent.mkdir(exist_ok=True)
        file.replace(place)


def _files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _earlier_files(target: Path) -> list[str]:
    """The files of an earlier export, as its manifest says; none where it cannot be read."""
    try:
        names = read_json(target / MANIFEST)["files"]
        # Files of this folder alone: a manifest may have been changed.
        inside = target.resolve()
        return [name for name in names if (inside / name).resolve().is_relative_to(inside)]
    except (OSError, ValueError, LookupError, TypeError):
        return []


# --- the files ------------------------------------------------------------------------------------


def _fill(
    folder: Path, source: ExportSource, onnx: bool, own: ClientModel | None
) -> tuple[Card, float | None]:
    """Write all files; returns the card, and the difference between ONNX and torch."""
    composed = source.composed
    population = source.population
    models = _shared_models(source) if own is None else own.models(population.clients)
    _write_weights(folder, composed.module, models)
    module = composed.predictor
    if source.private:
        # The first weights follow from the seed, which would be found by trying.
        module = with_vector(module, next(iter(models.vectors.values())))
    else:
        _write_groups(folder / "groups.csv", population.names, source.checkpoint, models)
    loader = folder / "load.py"
    inputs = first_inputs(population)
    needs = write_network(folder / NETWORK, module, inputs)
    write_loader(loader, source, population, models)
    write_columns(folder, source)
    # It chooses among the shared models, so it would leave out what a client has of its own.
    predicts = can_predict(source) and own is None and not source.keeps
    if predicts:
        write_predictor(folder, source)
    # Whoever gets the export cannot compare it with the run, so it is compared now.
    modules = try_loader(loader, composed.predictor, models, inputs)
    difference = None
    if onnx:
        difference = _write_all_onnx(folder, source, modules, inputs)
    # The run may have gone on after the checkpoint.
    rows = [row for row in source.folder.rows() if row["round"] < source.checkpoint.round]
    figures = _figures(source, models, modules, rows)
    card = make_card(source, population, figures, rows, needs, difference)
    own_part = source.own_part
    client = None if own is None else own.name
    card = replace(card, predicts=predicts, own_part=own_part, client=client)
    text = write_markdown(card)
    (folder / "README.md").write_text(text, encoding="utf-8", errors="backslashreplace")
    # Last: it has the digests of all others.
    _write_manifest(folder, source.checkpoint.round)
    return card, difference


def _write_all_onnx(
    folder: Path, source: ExportSource, modules: Mapping[str, nn.Module], inputs: Tensor
) -> float:
    """Write all models as ONNX; returns the largest difference from torch."""
    # Of classes they are logits; of other tasks what they mean is in the card.
    name = "logits" if source.composed.spec.task.class_labels else "outputs"
    return max(
        write_onnx(module, inputs, folder / f"{model}.onnx", name)
        for model, module in modules.items()
    )


def _figures(
    source: ExportSource,
    models: ExportedModels,
    modules: Mapping[str, nn.Module],
    rows: list[dict[str, Any]],
) -> Figures:
    """What the models reach: measured here, or as the nodes reported it where they hold the rows."""
    task = source.composed.spec.task
    if source.has_rows:
        learned = {name: without_units(module) for name, module in modules.items()}
        return evaluate(source.population, models.row, learned, task)
    return reported_figures(list(models.vectors), models.row, rows, headline_of(task))


def _shared_models(source: ExportSource) -> ExportedModels:
    composed = source.composed
    if source.shares_nothing:
        what = "clients share no model"
        got = composed.experiment.name("algorithm")
        expected = "--client, and the name of a client"
        raise ConfigError("does-not-fit", "algorithm.name", what, got=got, allowed=expected)
    groups = source.checkpoint.groups
    models = ExportedModels.of(groups, composed.algorithm.serve(groups))
    # `predict.py` needs a model for clients that come without labels. With one model it is that.
    if groups.k > 1 and can_predict(source) and not source.keeps:
        return models.for_newcomers(newcomer_vector(composed.algorithm.serve, groups))
    return models


def _write_weights(folder: Path, module: nn.Module, models: ExportedModels) -> None:
    for name, vector in models.vectors.items():
        # With what does not move: an export has to work without the run.
        tensors = whole_state(module, vector)
        # The format is what Hugging Face's loaders look for.
        (folder / f"{name}.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))


def _write_groups(
    path: Path, names: Sequence[str], checkpoint: Checkpoint, models: ExportedModels
) -> None:
    """``groups.csv``: client, group (-1: none), since which round, and the file of the model that
    serves it."""
    since = checkpoint.since.tolist()
    member = checkpoint.groups.member.tolist()
    files = models.names
    # An export of one client has no line about the others.
    rows = [
        [names[client], member[client], since[client], f"{files[client]}.safetensors"]
        for client in np.flatnonzero(models.row >= 0).tolist()
    ]
    text = csv_text(["client", "group", "since_round", "model"], rows)
    path.write_bytes(text.encode("utf-8", "backslashreplace"))


def _write_manifest(folder: Path, rounds: int) -> None:
    """``export.json``: the files with their SHA-256, and after how many rounds the models were
    taken."""
    files = {}
    for path in _files_in(folder):
        name = path.relative_to(folder).as_posix()
        files[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    text = json.dumps({"schema": 1, "rounds": rounds, "files": files}, indent=2)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
