"""Which layer's weights tell the clients' data apart: the study behind FedClust's choice of the
final layer."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor, nn

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.core.vectors import Layout, flatten
from coterie.core.work import Train
from coterie.errors import QuorumError
from coterie.objectives import plain
from coterie.report.charts.heat_map import heat_map
from coterie.report.files import refuse_unwritable
from coterie.report.render import render
from coterie.report.section import Section
from coterie.runs.files import plain as jsonable
from coterie.runs.prepare import Prepared

NOTE = (
    "Euclidean distance between the weights (with their biases) of the clients' models after local training from the "
    "same start, one matrix a layer, clients in order of their planted group."
)
TABLE_NOTE = (
    "Mean distance of two clients of one planted group, and of different ones; adjusted Rand index of average linkage "
    "cut at the planted number of groups; how many groups a cut in the widest gap between merges gives, and theirs."
)
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


@dataclass(frozen=True, slots=True)
class LayerView:
    """What the weights of one layer say of the clients.

    Args:
        layer: number, kind and shape.
        parameters: how many weights, biases among them.
        distance: ``[n, n]``, Euclidean.
        within: mean distance of two clients of one planted group; ``None`` where nothing was
            planted.
        between: mean distance of two clients of different ones.
        separation: ``between / within``.
        ari: adjusted Rand index of average linkage, cut at the planted number of groups.
        clusters: groups when the tree is cut in the widest gap between two merges.
        ari_gap: adjusted Rand index of those.
    """

    layer: str
    parameters: int
    distance: FloatArray = field(repr=False)
    within: float | None
    between: float | None
    separation: float | None
    ari: float | None
    clusters: int
    ari_gap: float | None


@dataclass(frozen=True, slots=True)
class LayerStudy:
    """A study of all layers.

    Args:
        layers: from first to last.
        clients: int64 ``[n]``, those that answered.
        names: ``n`` names.
        planted: int64 ``[n]``, the planted groups, where known.
    """

    layers: Sequence[LayerView]
    clients: IntArray
    names: Sequence[str]
    planted: IntArray | None


def study_layers(prepared: Prepared, epochs: int | None = None) -> LayerStudy:
    """Train every client once from ``w_0`` and compare what each layer's weights became (FedClust,
    Fig. 1).

    Args:
        prepared: data and network of a configuration; its algorithm does not matter.
        epochs: local epochs, default those of ``[local]``.

    Raises:
        QuorumError: if fewer than three clients answer.

    Source: Islam et al., "FedClust: Optimizing Federated Learning on Non-IID Data through
    Weight-Driven Client Clustering", 2024, section II.

    Example:
        >>> from coterie.config import check
        >>> from coterie.runs.prepare import prepare
        >>> tables = {"data": {"source": "digits", "partition": {"kind": "planted", "clients": 6, "groups": 2}},
        ...           "model": {"name": "mlp"}, "engine": {"name": "serial"}, "algorithm": {"name": "fedavg"},
        ...           "train": {"rounds": 1, "clients_per_round": 6}}
        >>> study = study_layers(prepare(check(tables)), epochs=2)
        >>> [layer.layer for layer in study.layers], study.layers[-1].ari
        (['1 linear 128x64', '2 linear 10x128'], 1.0)
    """
    population = prepared.population
    w0 = flatten(prepared.module)
    ids = np.flatnonzero(population.sizes("train") > 0)
    key = Key(prepared.config.seed).of("study").at(0)
    with prepared.clients() as door:
        reply = door.run(
            Train(plain, epochs=epochs), ids, w0[None], np.zeros(len(ids), np.int64), key=key
        )
    if len(reply) < 3:
        raise QuorumError(f"study: clients that answered, got {len(reply)}; expected at least 3")
    planted = None if population.planted is None else population.planted[reply.ids]
    delta = torch.from_numpy(reply.fields["delta"])
    layers = [look(name, delta[:, span], planted) for name, span in spans(prepared.module)]
    return LayerStudy(layers, reply.ids, [population.names[i] for i in reply.ids], planted)


def spans(module: nn.Module) -> list[tuple[str, slice]]:
    """Each layer with trainable weights and its slice of the flat vector, weight and bias together.

    Example:
        >>> spans(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)))
        [('1 linear 2x3', slice(0, 8, None)), ('2 linear 1x2', slice(8, 11, None))]
    """
    found: list[tuple[str, slice]] = []
    layout = Layout.of(module)
    last = None
    for name in layout.names[: layout.trainable]:
        path = name.rpartition(".")[0]
        span = layout.span(name)
        if path == last:
            found[-1] = (found[-1][0], slice(found[-1][1].start, span.stop))
            continue
        shape = "x".join(map(str, layout.shapes[layout.names.index(name)]))
        found.append(
            (f"{len(found) + 1} {type(module.get_submodule(path)).__name__.lower()} {shape}", span)
        )
        last = path
    return found


def look(layer: str, delta: Tensor, planted: IntArray | None) -> LayerView:
    """One layer: distances of the clients' weights ``w_0 + delta``, and how well they part the
    planted groups.

    Args:
        layer: its name.
        delta: ``[n, p]``, what training added to its weights; distances of sums are those of the
            updates.
        planted: int64 ``[n]``, or none.

    Example:
        >>> view = look("last", torch.tensor([[0.0], [1.0], [9.0], [10.0]]), np.array([0, 0, 1, 1]))
        >>> view.within, view.between, view.separation, view.ari, view.clusters
        (1.0, 9.0, 9.0, 1.0, 2)
    """
    rows = delta.to(torch.float64)
    distance: FloatArray = torch.cdist(
        rows, rows, compute_mode="donot_use_mm_for_euclid_dist"
    ).numpy()
    tree = linkage(squareform(distance, checks=False), "average")
    gaps = np.diff(tree[:, 2])
    clusters = len(delta) - 1 - int(gaps.argmax())
    found = _agreement(tree, clusters, planted)
    if planted is None:
        return LayerView(layer, rows.shape[1], distance, None, None, None, None, clusters, None)
    within, between = _means(distance, planted)
    separation = between / within if within and between is not None else None
    ari = _agreement(tree, len(np.unique(planted)), planted)
    return LayerView(
        layer, rows.shape[1], distance, within, between, separation, ari, clusters, found
    )


def _means(distance: FloatArray, planted: IntArray) -> tuple[float | None, float | None]:
    """Mean distance within and between groups; ``None`` where there is no such pair."""
    alike = planted[:, None] == planted[None]
    others = ~np.eye(len(planted), dtype=bool)
    parts = (distance[mask] for mask in (alike & others, ~alike))
    within, between = (float(part.mean()) if part.size else None for part in parts)
    return within, between


def _agreement(tree: FloatArray, clusters: int, planted: IntArray | None) -> float | None:
    from sklearn.metrics import adjusted_rand_score

    if planted is None:
        return None
    return float(adjusted_rand_score(planted, fcluster(tree, clusters, "maxclust")))


# --- what is written ------------------------------------------------------------------------------


def shown(study: LayerStudy) -> list[list[str]]:
    """The table of the study as text, a row a layer."""
    return [[_cell(getattr(layer, name)) for name in COLUMNS] for layer in study.layers]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


def write_study(study: LayerStudy, out: Path, title: str, intro: str) -> tuple[Path, Path, Path]:
    """Write ``layers.html``, ``layers.json`` (with the matrices) and ``layers.csv``; returns their
    paths."""
    page, data, table = (out / f"layers.{kind}" for kind in ("html", "json", "csv"))
    layers = [
        {name: getattr(layer, name) for name in (*COLUMNS, "distance")} for layer in study.layers
    ]
    content = {"clients": list(study.names), "planted": study.planted, "layers": layers}
    lines = StringIO()
    writer = csv.writer(lines)
    writer.writerow(COLUMNS)
    writer.writerows([getattr(layer, name) for name in COLUMNS] for layer in study.layers)
    texts = {
        page: _page(study, title, intro),
        data: json.dumps(jsonable(content), indent=1, ensure_ascii=False) + "\n",
        table: lines.getvalue(),
    }
    with refuse_unwritable("--out", out):
        out.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            file.write_text(text, encoding="utf-8", errors="backslashreplace")
    return page, data, table


def _page(study: LayerStudy, title: str, intro: str) -> str:
    group = np.full(len(study.clients), -1) if study.planted is None else study.planted
    order = np.argsort(group, kind="stable")
    maps = [
        {
            "id": f"layer-{i}",
            "title": layer.layer,
            "spec": heat_map(layer.distance, order, group, study.names, 230, small=True),
        }
        for i, layer in enumerate(study.layers)
    ]
    table = {
        "title": "The layers",
        "note": TABLE_NOTE,
        "columns": list(COLUMNS.values()),
        "rows": [[(cell, "figure") for cell in row] for row in shown(study)],
    }
    facts = [("clients", str(len(study.clients))), ("layers", str(len(study.layers)))]
    sections: list[Section] = [
        table,
        {"title": "Distances, layer by layer", "note": NOTE, "charts": maps},
    ]
    return render(title, headline(study), intro, facts, sections)


def headline(study: LayerStudy) -> str:
    """The result in words.

    Example:
        >>> rows = torch.tensor([[0.0], [1.0], [9.0], [10.0]])
        >>> planted = np.array([0, 0, 1, 1])
        >>> headline(LayerStudy([look("1 linear", rows, planted)], np.arange(4), "abcd", planted))
        'Layer 1 linear parts the groups best: 9.0 times as far between them as within'
    """
    known = [layer for layer in study.layers if layer.separation is not None]
    if not known:
        return f"{len(study.layers)} layers of {len(study.clients)} clients"
    best = max(known, key=lambda layer: layer.separation or 0)
    return f"Layer {best.layer} parts the groups best: {best.separation:.1f} times as far between them as within"
