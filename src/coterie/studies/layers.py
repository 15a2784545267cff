"""Which layer's weights tell the clients' data apart: the study behind FedClust's choice of the
final layer.

Every client trains once from the same model. The distances between the clients' weights are then
compared layer by layer, and written as a table, a page, JSON and CSV. Used by the command ``coterie
study layers`` and by the reproduction of FedClust's Fig. 1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor, nn

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.core.training import Epochs
from coterie.core.vectors import Layout, flatten
from coterie.core.work import Train
from coterie.errors import QuorumError
from coterie.files import csv_text, refuse_unwritable_output
from coterie.files import plain as plain_values
from coterie.math.labellings import adjusted_rand_index
from coterie.report.figures.heat_map import heat_map
from coterie.report.render import Chart, Section, render_page
from coterie.runs.compose import Composed
from coterie.terminal import counted

MIN_CLIENTS = 3  # fewer have a single merge, and no gap between merges


@dataclass(frozen=True, slots=True)
class LayerView:
    """What the weights of one layer show of the clients.

    Args:
        distance: ``[n, n]``, Euclidean.
        within: mean distance of two clients of one planted group; ``None`` if nothing was planted.
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
        clients: int64 ``[n]``, those that answered.
        planted: int64 ``[n]``, the planted groups; ``None`` if nothing was planted.
    """

    layers: Sequence[LayerView]
    clients: IntArray
    names: Sequence[str]
    planted: IntArray | None


def study_layers(composed: Composed, epochs: int | None = None) -> LayerStudy:
    """Train every client once from ``w_0`` and compare the weights of each layer.

    Source: Islam et al., "FedClust: Optimizing Federated Learning on Non-IID Data through
    Weight-Driven Client Clustering", 2024, section II and Fig. 1.
    """
    population = composed.population
    # All clients start from the same weights: otherwise the start would decide the distances.
    w0 = flatten(composed.module)
    ids = np.flatnonzero(population.sizes("train") > 0)
    key = Key(composed.experiment.seed).of("study").at(0)
    work = Train(how=Epochs(epochs))
    with composed.clients() as clients:
        reply = clients.run(work, ids, w0, key=key)
    if len(reply) < MIN_CLIENTS:
        what = "too few clients replied"
        expected = f"at least {MIN_CLIENTS}"
        raise QuorumError("too-few", "study", what, found=len(reply), allowed=expected)
    # Only of the clients that answered, in the order of the reply.
    planted = None
    if population.planted is not None:
        planted = population.planted[reply.ids]
    delta = reply.delta
    layers = [
        compare_layer(name, delta[:, span], planted) for name, span in layer_spans(composed.module)
    ]
    names = [population.names[client] for client in reply.ids]
    return LayerStudy(layers, reply.ids, names, planted)


def layer_spans(module: nn.Module) -> list[tuple[str, slice]]:
    """Each layer with trainable weights, and its slice of the flat vector, where weight and bias
    are adjacent."""
    found: list[tuple[str, slice]] = []
    layout = Layout.of(module)
    last = None
    for name in layout.names[: layout.trainable]:
        path = name.rpartition(".")[0]
        span = layout.span(name)
        if path == last:
            layer, begun = found[-1]
            found[-1] = (layer, slice(begun.start, span.stop))
            continue
        last = path
        # The class and the shape tell a reader which layer it is; paths like `features.3` do not.
        kind = type(module.get_submodule(path)).__name__.lower()
        shape = "x".join(map(str, layout.shapes[layout.names.index(name)]))
        found.append((f"{len(found) + 1} {kind} {shape}", span))
    return found


def compare_layer(layer: str, delta: Tensor, planted: IntArray | None) -> LayerView:
    """Compare the clients' weights of one layer, with each other and with the planted groups.

    Args:
        delta: ``[n, p]``, what training added to the layer's weights. All clients started from the
            same ones, so distances of updates are those of the weights.

    Example:
        >>> delta = torch.tensor([[0.0], [1.0], [9.0], [10.0]])
        >>> view = compare_layer("last", delta, np.array([0, 0, 1, 1]))
        >>> view.within, view.between, view.separation, view.ari, view.clusters
        (1.0, 9.0, 9.0, 1.0, 2)
    """
    rows = delta.to(torch.float64)
    # The faster way by a matrix product loses the digits of small distances.
    distance: FloatArray = torch.cdist(
        rows, rows, compute_mode="donot_use_mm_for_euclid_dist"
    ).numpy()
    tree = linkage(squareform(distance, checks=False), "average")
    gaps = np.diff(tree[:, 2])
    # After merge i there are n - 1 - i groups left; the cut is before the widest step.
    clusters = len(delta) - 1 - int(gaps.argmax())
    parameters = rows.shape[1]
    if planted is None:
        return LayerView(layer, parameters, distance, None, None, None, None, clusters, None)
    within, between = _mean_distances(distance, planted)
    separation = None
    if within and between is not None:
        separation = between / within
    return LayerView(
        layer=layer,
        parameters=parameters,
        distance=distance,
        within=within,
        between=between,
        separation=separation,
        ari=_rand_index(tree, len(np.unique(planted)), planted),
        clusters=clusters,
        ari_gap=_rand_index(tree, clusters, planted),
    )


def _mean_distances(distance: FloatArray, planted: IntArray) -> tuple[float | None, float | None]:
    """Mean distance within and between planted groups; ``None`` if there is no such pair."""
    same = planted[:, None] == planted[None]
    # A client's distance to itself is no distance between two clients.
    others = ~np.eye(len(planted), dtype=bool)
    return _mean(distance[same & others]), _mean(distance[~same])


def _mean(values: FloatArray) -> float | None:
    if not values.size:
        return None
    return float(values.mean())


def _rand_index(tree: FloatArray, clusters: int, planted: IntArray) -> float:
    """Adjusted Rand index of a tree cut into so many clusters, against the planted groups."""
    found = fcluster(tree, clusters, "maxclust").astype(np.int64)
    return adjusted_rand_index(planted, found)


# --- table, page, JSON and CSV --------------------------------------------------------------------

MAP_HEIGHT = 230  # pixels
MAPS_NOTE = (
    "Euclidean distance between the weights (with their biases) of the clients' models after local "
    "training from the same start. One matrix for each layer, with clients in the order of their planted groups."
)
TABLE_NOTE = (
    "Within and between: mean distance of two clients of one planted group, and of different ones. "
    "ARI: adjusted Rand index of average linkage, cut at the planted number of groups. Groups by "
    "gap: the number of groups after a cut in the widest gap between two merges, and their ARI."
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
        'Layer 1 linear separates the groups best: distances between groups are 9.0 times those within groups'
    """
    known = [layer for layer in study.layers if layer.separation is not None]
    if not known:
        return f"{counted(len(study.layers), 'layer')} of {counted(len(study.clients), 'client')}"
    # By the ratio, not the difference: layers have weights of different size.
    best = max(known, key=lambda layer: layer.separation or 0)  # none of these is None
    return (
        f"Layer {best.layer} separates the groups best: distances between groups are "
        f"{best.separation:.1f} times those within groups"
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
    return json.dumps(plain_values(content), indent=1, ensure_ascii=False) + "\n"


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
