"""The model card of an export, in the form of the Hugging Face hub: facts of the run, and what they
do not say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tomli_w
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from coterie.config.identity import SIMULATION, STORAGE
from coterie.data import Population
from coterie.data.tabular.encoder import Encoder
from coterie.export.figures import Figures
from coterie.export.source import ExportSource
from coterie.export.table_files import can_predict
from coterie.runs.compose import Composed
from coterie.runs.published import is_private, published_config, published_summary
from coterie.runs.stored import Record
from coterie.runs.summary import summarise
from coterie.tasks import Binary, Multilabel, NextToken
from coterie.terminal import counted

# Tables and keys that say something about this machine, not about the models.
MACHINE_TABLES = (*SIMULATION, *STORAGE)
MACHINE_KEYS = ("root", "path")  # of `[data]`
SHOWN_CLASSES = 12  # columns in the table of label mixes
TASKS = {1: "tabular-classification", 2: "text-classification", 3: "image-classification"}
# Of targets that are not classes.
OTHER_TASKS = {1: "tabular-regression", 2: "time-series-forecasting"}
# Letters that mean nothing in Markdown or HTML.
PLAIN = frozenset(" .,-+()/%")
NAMED = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


@dataclass(frozen=True, slots=True)
class Card:
    """What the card says.

    Args:
        summary: the content of ``summary.json``.
        config: the configuration, without what is of this machine only.
        labels: names of the classes; none where targets are no classes.
        outputs: what the outputs of a model are, the end of a sentence.
        shape: the shape of one input.
        inputs: the type of its values.
        task: what Hugging Face calls what the models do.
        scaling: how inputs were scaled, the end of a sentence.
        features: the columns that inputs come from, or none.
        columns: the columns of a table that `inputs.py` turns into inputs, or none.
        predicts: whether `predict.py` is there.
        needs: why torch cannot write the network, which is not there then, or nothing.
        difference: between ONNX and torch, or nothing.
        own_part: what clients have in addition to the shared models, in words; empty for nothing.
        alone: whether clients share nothing, and each trains on its own samples only.
        client: whose model it is, where it is that of one client.
        verdict: whether grouping is worth it on these data, a sentence or two.
        private: whether noise was added to updates; then the card describes no single group.
    """

    algorithm: str
    dataset: str
    model: str
    figures: Figures
    summary: Mapping[str, Any]
    config: Mapping[str, Any]
    labels: Sequence[str]
    outputs: str
    shape: tuple[int, ...]
    inputs: str
    task: str
    scaling: str
    features: Sequence[str] = ()
    columns: Sequence[str] = ()
    predicts: bool = False
    needs: str | None = None
    difference: float | None = None
    own_part: str = ""
    alone: bool = False
    client: str | None = None
    verdict: str = ""
    private: bool = False


def make_card(
    source: ExportSource,
    population: Population,
    figures: Figures,
    rows: Sequence[Mapping[str, Any]],
    needs: str | None,
    difference: float | None,
) -> Card:
    """Gather what the card says."""
    composed = source.composed
    config = composed.experiment
    resolved = config.resolved()
    summary = summarise(resolved, rows, population.clients, figures.headline)
    private = is_private(resolved)
    if private:
        figures = replace(figures, groups=[group.published for group in figures.groups])
    return Card(
        algorithm=config.name("algorithm"),
        dataset=config.name("source"),
        model=config.name("model"),
        figures=figures,
        summary=published_summary(summary, figures.headline),
        config=published_config(resolved) if private else _public(resolved),
        labels=class_names(composed, population),
        outputs=describe_outputs(composed, population),
        shape=population.shape,
        inputs=str(population.x.dtype).removeprefix("torch."),
        task=_pipeline(composed, population),
        scaling=describe_scaling(source, population),
        features=feature_names(source.record),
        columns=table_columns(source.record),
        predicts=can_predict(source),
        needs=needs,
        difference=difference,
        alone=source.shares_nothing,
        verdict="" if private else source.verdict,
        private=private,
    )


def _pipeline(composed: Composed, population: Population) -> str:
    """The pipeline of Hugging Face whose models have such inputs and outputs."""
    if isinstance(composed.spec.task, NextToken):
        return "text-generation"
    tasks = TASKS if class_names(composed, population) else OTHER_TASKS
    # Whole numbers are tokens.
    if not population.x.is_floating_point():
        return "text-classification" if tasks is TASKS else "other"
    return tasks.get(len(population.shape), "other")


def class_names(composed: Composed, population: Population) -> tuple[str, ...]:
    """Names of the classes, in the order of the labels; their numbers where they have no names."""
    names = composed.data.label_names
    if names:
        return names
    return tuple(str(label) for label in range(population.classes))


def describe_outputs(composed: Composed, population: Population) -> str:
    """What the outputs of a model are, as the end of a sentence."""
    task = composed.spec.task
    names = class_names(composed, population)
    if isinstance(task, Binary):
        return f"the logit of {names[1]} against {names[0]}, one per row"
    if isinstance(task, Multilabel):
        return f"logits of {task.labels} labels"
    if isinstance(task, NextToken):
        return f"logits of {task.vocabulary} tokens at each position"
    if names:
        return f"logits of the classes {', '.join(names)}"
    return f"the predictions, {counted(task.outputs, 'number')} per row"


def _public(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without what is of this machine only: folders are nobody else's business."""
    tables = {name: value for name, value in resolved.items() if name not in MACHINE_TABLES}
    data = {name: value for name, value in tables["data"].items() if name not in MACHINE_KEYS}
    return {**tables, "data": data}


# --- as Markdown ----------------------------------------------------------------------------------


def write_markdown(card: Card) -> str:
    """The card as the ``README.md`` of a model on the Hugging Face hub."""
    return template("card.md.j2").render(
        card=card,
        # JSON is YAML, too, and its quoting leaves no doubt whatever a class is called.
        front=[f"{key}: {json.dumps(value)}" for key, value in _front_matter(card).items()],
        config=tomli_w.dumps(card.config).strip(),
        mix=_mix_table(card),
        custom=":" in card.model or ":" in card.algorithm,
    )


def template(name: str) -> Template:
    """A template of this package, with the filter ``text`` for what comes from data or the user."""
    environment = Environment(
        loader=PackageLoader("coterie.export", "templates"),
        # Strict: a misspelt field is an error in a test, not a hole in a user's file.
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["text"] = escape_untrusted
    return environment.get_template(name)


def escape_untrusted(text: Any) -> str:
    """Text of the data or of the user, as Markdown that shows it and nothing else."""
    return "".join(map(_escape_letter, str(text)))


def _escape_letter(letter: str) -> str:
    # Listed are the letters that are safe, not those that are dangerous: a list of these is
    # never whole.
    if letter.isalnum() or letter in PLAIN:
        return letter
    return NAMED.get(letter, f"&#{ord(letter)};")


def _front_matter(card: Card) -> dict[str, Any]:
    """The metadata of the card: YAML of which every value is JSON."""
    clustered = ["clustered-federated-learning"] if card.summary["groups"] > 1 else []
    headline = card.figures.headline
    front: dict[str, Any] = {
        "library_name": "pytorch",
        "pipeline_tag": card.task,
        "tags": [
            "federated-learning",
            *clustered,
            "coterie",
            # Of a user's own `module:factory` the factory.
            card.algorithm.rpartition(":")[2],
        ],
        "metrics": [headline.name],
    }
    # A user's own data are no dataset of the hub.
    if card.dataset not in ("file", "nodes", "saved"):
        front["datasets"] = [card.dataset]
    metrics = [
        {
            "type": headline.name,
            "name": f"{headline.title}, {group.name}",
            "value": round(group.score, 6),
        }
        for group in card.figures.groups
        if group.score is not None
    ]
    if metrics:
        result = {
            "task": {"type": card.task},
            "dataset": {"name": card.dataset, "type": card.dataset},
            "metrics": metrics,
        }
        front["model-index"] = [{"name": f"{card.algorithm}-{card.dataset}", "results": [result]}]
    return front


def _mix_table(card: Card) -> list[list[str]]:
    """A row for each group: its share of each class, or of the most frequent ones, in percent; none
    where only the clients know."""
    mixes = [group.mix for group in card.figures.groups]
    # Only the clients know, or there are no classes.
    if not all(mixes):
        return []
    counts = np.array(mixes, float)
    most_frequent = np.argsort(-counts.sum(axis=0), kind="stable")[:SHOWN_CLASSES]
    columns = np.sort(most_frequent)
    totals = counts.sum(axis=1, keepdims=True)
    # A group without clients has no samples, and a row of zeros.
    shares = np.divide(100 * counts, totals, out=np.zeros_like(counts), where=totals > 0)
    table = [["model", *(escape_untrusted(card.labels[column]) for column in columns)]]
    for group, row in zip(card.figures.groups, shares[:, columns], strict=True):
        table.append([group.name, *(f"{share:.0f}" for share in row)])
    return table


def describe_scaling(source: ExportSource, population: Population) -> str:
    """How inputs were scaled, as the end of a sentence."""
    rules = [] if source.record is None else source.record["rules"] or []
    if not rules and source.real:
        return "as in every client's own code."
    if not rules:
        # A source of another package may not say it.
        return (
            population.scaling
            or f"as the source `{source.composed.experiment.name('source')}` does it."
        )
    numbers = [rule for rule in rules if "scale" in rule]
    if all((rule["center"], rule["scale"]) == (0, 1) for rule in numbers):
        return "numbers are as in the table."
    return "each number has mean 0 and standard deviation 1 over all training rows."


def table_columns(record: Record | None) -> tuple[str, ...]:
    """The columns of a table that inputs are made of, or none."""
    if record is None or record["rules"] is None:
        return ()
    return tuple(rule["name"] for rule in record["rules"])


def feature_names(record: Record | None) -> tuple[str, ...]:
    """The names of the values of an input, in order; none where they are not known one by one."""
    if record is None:
        return ()
    if record["rules"] is not None:
        return Encoder.read(record["rules"]).features
    features = record["features"]
    names = (features,) if isinstance(features, str) else tuple(features)
    # A single column may hold lists, whose values have no names of their own.
    return names if record["shape"] == [len(names)] else ()
