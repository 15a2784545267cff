"""The study of layers as a table, a page, JSON and CSV."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from coterie.files import csv_text
from coterie.report.charts.heat_map import heat_map
from coterie.report.files import refuse_unwritable_output
from coterie.report.render import render_page
from coterie.report.section import Chart, Section
from coterie.runs.folder.files import plain
from coterie.studies.layers import LayerStudy

MAP_HEIGHT = 230  # pixels
MAPS_NOTE = (
    "Euclidean distance between the weights (with their biases) of the clients' models after local "
    "training from the same start. One matrix a layer, clients in the order of their planted group."
)
TABLE_NOTE = (
    "Within and between: mean distance of two clients of one planted group, and of different ones. "
    "ARI: adjusted Rand index of average linkage, cut at the planted number of groups. Groups by "
    "gap: how many groups a cut in the widest gap between two merges gives, and their ARI."
)
# field of a layer -> name of its column
COLUMNS = {
    "layer": "layer",
    "parameters": "parameters",
    "within": "within",
    "between": "between",
    "separation": "between / within",
    "ari": "ARI",
    "clusters": "groups by gap",
    "ari_gap": "their ARI",
}


def layer_rows(study: LayerStudy) -> list[list[str]]:
    """The table of the study as text, a row a layer."""
    return [[_text(getattr(layer, name)) for name in COLUMNS] for layer in study.layers]


def _text(value: str | float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3g}"
    return value


def study_headline(study: LayerStudy) -> str:
    """The result in a sentence.

    Example:
        >>> import torch
        >>> from coterie.studies.layers import compare_layer
        >>> delta = torch.tensor([[0.0], [1.0], [9.0], [10.0]])
        >>> planted = np.array([0, 0, 1, 1])
        >>> layer = compare_layer("1 linear", delta, planted)
        >>> study_headline(LayerStudy([layer], np.arange(4), "abcd", planted))
        'Layer 1 linear parts the groups best: 9.0 times as far between them as within'
    """
    known = [layer for layer in study.layers if layer.separation is not None]
    if not known:
        return f"{len(study.layers)} layers of {len(study.clients)} clients"
    # By the ratio, not the difference: layers have weights of different size.
    best = max(known, key=lambda layer: layer.separation or 0)  # none of these is None
    return (
        f"Layer {best.layer} parts the groups best: {best.separation:.1f} times as far between "
        "them as within"
    )


def write_study(study: LayerStudy, out: Path, title: str, intro: str) -> tuple[Path, Path, Path]:
    """Write ``layers.html``, ``layers.json`` (with the matrices) and ``layers.csv``; returns their
    paths."""
    # One name for all three, so that a second study of the folder replaces all of it.
    page, data, table = (out / f"layers.{kind}" for kind in ("html", "json", "csv"))
    texts = {page: _page(study, title, intro), data: _json(study), table: _csv(study)}
    with refuse_unwritable_output("--out", out):
        out.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            file.write_text(text, encoding="utf-8", errors="backslashreplace")
    return page, data, table


def _json(study: LayerStudy) -> str:
    fields = (*COLUMNS, "distance")
    layers = [{name: getattr(layer, name) for name in fields} for layer in study.layers]
    content: dict[str, Any] = {
        "clients": list(study.names),
        "planted": study.planted,
        "layers": layers,
    }
    return json.dumps(plain(content), indent=1, ensure_ascii=False) + "\n"


def _csv(study: LayerStudy) -> str:
    rows = [[getattr(layer, name) for name in COLUMNS] for layer in study.layers]
    return csv_text(list(COLUMNS), rows)


def _page(study: LayerStudy, title: str, intro: str) -> str:
    table: Section = {
        "title": "The layers",
        "note": TABLE_NOTE,
        "columns": list(COLUMNS.values()),
        "rows": [[(text, "figure") for text in row] for row in layer_rows(study)],
    }
    maps: Section = {
        "title": "Distances, layer by layer",
        "note": MAPS_NOTE,
        "charts": _maps(study),
    }
    facts = [("clients", str(len(study.clients))), ("layers", str(len(study.layers)))]
    return render_page(title, study_headline(study), intro, facts, [table, maps])


def _maps(study: LayerStudy) -> list[Chart]:
    """A heat map of each layer's distances."""
    groups = np.full(len(study.clients), -1)
    if study.planted is not None:
        groups = study.planted
    # Clients of a group stand side by side, so that a layer that knows them shows blocks.
    order = np.argsort(groups, kind="stable")
    charts: list[Chart] = []
    for index, layer in enumerate(study.layers):
        spec = heat_map(layer.distance, order, groups, study.names, MAP_HEIGHT, small=True)
        charts.append({"id": f"layer-{index}", "title": layer.layer, "spec": spec})
    return charts
