"""Whatever a node reads its data from: what leaves it is what the page says, and data that change at
the site are seen in the run."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.app import Message

from coterie.engines.flower.messages import FIELDS, NOTE, part_name
from coterie.experiment import check
from coterie.runs.data import load_data
from tests.engines.fake_grid import FakeGrid, contexts, parts_of
from tests.engines.test_flower import DEPLOYED, SETTINGS, TABLE, deploy, tables

CLIENTS = 4
ROUNDS = 5
CHANGED_AFTER = 2  # rounds
PIXELS = [f"p{at:02d}" for at in range(64)]
Samples = tuple[np.ndarray, np.ndarray]


def frame(samples: Samples) -> pd.DataFrame:
    x, y = samples
    table = pd.DataFrame(x.reshape(len(x), -1), columns=PIXELS)
    return table.assign(label=y)


def write_parquet(place: Path, samples: Samples) -> dict[str, Any]:
    frame(samples).to_parquet(place.with_suffix(".parquet"))
    return {"data": str(place.with_suffix(".parquet")), "shape": "1,8,8"}


def write_csv(place: Path, samples: Samples) -> dict[str, Any]:
    frame(samples).to_csv(place.with_suffix(".csv"), index=False)
    return {"data": str(place.with_suffix(".csv")), "shape": "1,8,8"}


def write_folder(place: Path, samples: Samples) -> dict[str, Any]:
    place.mkdir(exist_ok=True)
    table = frame(samples)
    table.assign(label=table.label.astype(str)).iloc[10:].to_csv(place / "train.csv", index=False)
    table.iloc[:10].to_csv(place / "test.csv", index=False)
    return {"data": str(place), "shape": "1,8,8"}


def write_database(place: Path, samples: Samples) -> dict[str, Any]:
    pytest.importorskip("sqlalchemy", reason="the extra 'sql' is not installed")
    with closing(sqlite3.connect(place.with_suffix(".db"))) as database:
        frame(samples).to_sql("images", database, if_exists="replace", index_label="id")
        columns = ", ".join([*frame(samples).columns])
    query = f"SELECT {columns} FROM images ORDER BY id"
    return {"data": f"sqlite:///{place.with_suffix('.db')}", "query": query, "shape": "1,8,8"}


def write_images(place: Path, samples: Samples) -> dict[str, Any]:
    for old in place.glob("*/*.png"):
        old.unlink()
    for at, (image, label) in enumerate(zip(*samples, strict=True)):
        (place / str(label)).mkdir(parents=True, exist_ok=True)
        pixels = (image[0] * 255).astype(np.uint8)
        Image.fromarray(pixels).save(place / str(label) / f"{at}.png")
    return {"data": str(place)}


SOURCES: Mapping[str, Callable[[Path, Samples], dict[str, Any]]] = {
    "parquet": write_parquet,
    "csv": write_csv,
    "folder": write_folder,
    "database": write_database,
    "images": write_images,
}


def shares_of(config: Mapping[str, Any]) -> list[Samples]:
    """A hundred samples of each client."""
    _, _, population = load_data(check(config))
    chosen = [np.asarray(rows)[:100] for rows in population.train]
    return [(population.x.numpy()[rows], population.y.numpy()[rows]) for rows in chosen]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("source", SOURCES)
def test_data_that_change_at_a_site_move_its_client_and_nothing_else_leaves_it(
    source: str, tmp_path: Path
) -> None:
    config = tables("flexcfl", ROUNDS, CLIENTS)
    config["train"]["clients_per_round"] = CLIENTS
    write = SOURCES[source]
    shares = shares_of(config)
    features = []
    if source != "images":
        features = PIXELS
    settings = {**SETTINGS, "features": features}
    grid = FakeGrid(contexts(config, settings, range(CLIENTS), tmp_path))
    for client, context in enumerate(grid.contexts.values()):
        del context.node_config["loader"]
        context.node_config.update(write(tmp_path / f"site-{client}", shares[client]))
    seen: dict[int, list[tuple[int, bool]]] = {}

    def change_and_note(node: int, message: Message, replies: list[Message]) -> list[Message]:
        for note, _ in parts_of(replies[0]):
            if "drifted" in note:
                seen.setdefault(node - 100, []).append((note["round"], note["drifted"]))
                # What the site's own system does: the data of its client are another group's.
                if note["round"] == CHANGED_AFTER and node == 100:
                    write(tmp_path / "site-0", shares[1])
        return replies

    grid.meddle = change_and_note
    reported = deploy(
        tmp_path, config, grid, clients=CLIENTS, min_clients=CLIENTS, features=features
    )
    assert not reported.refused
    drifted = {client for client, notes in seen.items() if any(yes for _, yes in notes)}
    assert drifted == {0}
    assert min(at for at, yes in seen[0] if yes) > CHANGED_AFTER
    assert [row["round"] for row in reported.rows if row["migrations"]] == [
        min(at for at, yes in seen[0] if yes) + 1
    ]
    require_page(grid)


def require_page(grid: FakeGrid) -> None:
    """Every field of every reply is on the page of what leaves a client."""
    allowed = TABLE["flexcfl"] | DEPLOYED["test"] | DEPLOYED["place"]
    for request, reply in zip(grid.sent, grid.replied, strict=True):
        parts = range(len(parts_of(request)))
        assert set(reply.content) <= {part_name(one, n) for one in (NOTE, FIELDS) for n in parts}
        for note, fields in parts_of(reply):
            if "identity" in note:
                assert set(note) == {"identity"}
                assert set(json.loads(note["identity"])) == DEPLOYED["hello"]
                continue
            assert set(note) == DEPLOYED["note"]
            assert set(fields) <= allowed
