"""The model card of an export, in the form of the Hugging Face hub: facts of the run, and what they
do not say."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tomli_w
import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from torch import nn

from coterie.config import registry
from coterie.core.arrays import IntArray
from coterie.data import Population
from coterie.runs.prepare import Prepared
from coterie.runs.summary import summarise
from coterie.terminal import percent

CHUNK = 1024
PLACES = ("root", "path")  # where data are on this machine is nobody else's business
CLASSES = 12  # as many classes have a column in the table of label mixes


@dataclass(frozen=True, slots=True)
class Figures:
    """How good the models are.

    Args:
        groups: a row for each model: name, clients, accuracy; training and test samples and label
            counts ``[c]``, each ``None`` where the clients alone know them.
        accuracy: over all test samples, each client with the model that serves it; ``None`` without
            any.
        told: after how many rounds real clients told it; ``None``: scored here, or not told yet.
    """

    groups: Sequence[Mapping[str, Any]]
    accuracy: float | None
    told: int | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """What the card tells.

    Args:
        algorithm, dataset, model: names.
        figures: how good the models are.
        summary: as ``summary.json``.
        config: the configuration, without places.
        labels: names of the classes.
        shape: of one input.
        planted: whether the true groups were known.
        inputs: how inputs are scaled, as the source says.
        needs: the user's own ``module:factory`` that ``load.py`` imports, or nothing.
        difference: between ONNX and torch, or nothing.
    """

    algorithm: str
    dataset: str
    model: str
    figures: Figures
    summary: Mapping[str, Any]
    config: Mapping[str, Any]
    labels: Sequence[str]
    shape: tuple[int, ...]
    inputs: str
    needs: str | None = None
    difference: float | None = None


def card_of(
    prepared: Prepared,
    population: Population,
    figures: Figures,
    rows: Sequence[Mapping[str, Any]],
    needs: str | None,
    difference: float | None,
) -> Card:
    """Gather what the run was.

    Args:
        prepared: the run.
        population: who holds what at its end.
        figures: how good the models are.
        rows: of ``rounds.jsonl``, those before the checkpoint.
        needs: the user's own network, if the loader imports it.
        difference: between ONNX and torch.
    """
    config = prepared.config
    resolved = config.resolved()
    labels = tuple(prepared.label_names) or tuple(str(c) for c in range(population.classes))
    return Card(
        config.algorithm.name,
        config.data.source,
        config.model.name,
        figures,
        summarise(resolved, rows, population.clients),
        _public(resolved),
        labels,
        population.shape,
        _scaling(config.data.source, config.options("source")),
        needs,
        difference,
    )


def scored(population: Population, which: IntArray, modules: Mapping[str, nn.Module]) -> Figures:
    """Score every model on its clients' test samples.

    Args:
        population: who holds what.
        which: int64 ``[N]``, the row of the model that serves each client.
        modules: name -> model, in the order of the rows.
    """
    train = population.sizes("train")
    mixes = population.histograms()
    groups = []
    tested = 0
    right = 0
    for row, (name, module) in enumerate(modules.items()):
        ids = np.flatnonzero(which == row)
        test = np.concatenate([*(population.test[i] for i in ids.tolist()), np.empty(0, np.int64)])
        correct = _correct(module, population, test)
        tested = tested + len(test)
        right = right + correct
        figures = {"clients": len(ids), "train": int(train[ids].sum()), "test": len(test)}
        accuracy = correct / len(test) if len(test) else None
        groups.append(
            {"name": name, **figures, "accuracy": accuracy, "mix": mixes[ids].sum(axis=0).tolist()}
        )
    return Figures(groups, right / tested if tested else None)


@torch.no_grad()
def _correct(module: nn.Module, population: Population, rows: IntArray) -> int:
    """How many test samples a model gets right."""
    right = 0
    for at in range(0, len(rows), CHUNK):
        some = torch.from_numpy(rows[at : at + CHUNK])
        right += int((module(population.x[some]).argmax(dim=1) == population.y[some]).sum())
    return right


def _public(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without what is of this machine only."""
    gone = ("engine", "checkpoint", "folder", "log")
    tables = {name: value for name, value in resolved.items() if name not in gone}
    return {
        **tables,
        "data": {name: value for name, value in tables["data"].items() if name not in PLACES},
    }


def _scaling(source: str, options: Mapping[str, Any]) -> str:
    """What the source does to its inputs, in its own words."""
    text = inspect.getdoc(registry.find("source", source)) or ""
    chosen = options.get("pixels")
    found = re.search(r"^    pixels: (.*?)(?:\n    \w+:|\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    if chosen and found:
        return f'`pixels = "{chosen}"`: {" ".join(found[1].split()).replace("``", "`")}'
    paragraphs = [" ".join(p.split()).replace("``", "`") for p in text.split("\n\n")]
    return next(
        (p for p in paragraphs[1:] if not p.startswith(("Args:", "Raises:", "Example:"))),
        "as in the data",
    )


# --- as Markdown ----------------------------------------------------------------------------------


def markdown(card: Card) -> str:
    """The card as the ``README.md`` of a model on the Hugging Face hub."""
    environment = Environment(
        loader=PackageLoader("coterie.export", "templates"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {"text": escaped, "percent": percent}
    return environment.get_template("card.md.j2").render(
        card=card,
        front=[f"{key}: {json.dumps(value)}" for key, value in _front(card).items()],
        config=tomli_w.dumps(card.config).strip(),
        mix=_mix(card),
        own=":" in card.model or ":" in card.algorithm,
    )


def escaped(text: Any) -> str:
    """Text that was read, as Markdown that shows it and nothing else.

    Example:
        >>> escaped("a|<b>")
        'a&#124;&lt;b&gt;'
    """
    return "".join(
        c if c.isalnum() or c in " .,-+()/%" else f"&#{ord(c)};" if c not in "<>&" else _NAMED[c]
        for c in str(text)
    )


_NAMED = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def _task(card: Card) -> str:
    kinds = {1: "tabular-classification", 2: "text-classification", 3: "image-classification"}
    return kinds.get(len(card.shape), "other")


def _front(card: Card) -> dict[str, Any]:
    """The metadata block: YAML of which every value is JSON."""
    dataset = {"name": card.dataset, "type": card.dataset}
    metrics = [
        {"type": "accuracy", "name": f"accuracy, {g['name']}", "value": round(g["accuracy"], 6)}
        for g in card.figures.groups
        if g["accuracy"] is not None
    ]
    result = {"task": {"type": _task(card)}, "dataset": dataset, "metrics": metrics}
    tags = [
        "federated-learning",
        "clustered-federated-learning",
        "coterie",
        card.algorithm.rpartition(":")[2],
    ]
    front: dict[str, Any] = {
        "library_name": "pytorch",
        "pipeline_tag": _task(card),
        "tags": tags,
        "metrics": ["accuracy"],
    }
    if card.dataset not in ("file", "nodes"):
        front["datasets"] = [card.dataset]
    name = f"{card.algorithm}-{card.dataset}"
    return front | ({"model-index": [{"name": name, "results": [result]}]} if metrics else {})


def _mix(card: Card) -> list[list[str]]:
    """A row for each group: its share of each class in percent, of the most frequent ones where
    there are many.

    None where the clients alone know it.
    """
    groups = card.figures.groups
    if any(group["mix"] is None for group in groups):
        return []
    counts = np.array([group["mix"] for group in groups], float)
    order = np.sort(np.argsort(-counts.sum(axis=0), kind="stable")[:CLASSES])
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.divide(100 * counts, totals, out=np.zeros_like(counts), where=totals > 0)[:, order]
    head = ["model", *(escaped(card.labels[c]) for c in order)]
    return [
        head,
        *([g["name"], *(f"{v:.0f}" for v in row)] for g, row in zip(groups, shares, strict=True)),
    ]
