"""FedClust's table trained once for all of its lines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import coterie as ct
from benchmarks import dirichlet, final_layers
from coterie.studies.reproduce.tables import overlay


def test_the_lines_of_a_training_are_its_scorings_and_readings() -> None:
    def found(name: str) -> list[tuple[str, str]]:
        return [(line.table, line.name) for line in dirichlet.lines_of(name)]

    assert found("fedavg/fmnist") == [(f"1{part}", "fedavg/fmnist") for part in "abcd"]
    assert found("ward/5") == [("sweep", "ward/5"), ("sweep", "ward-by-share/5")]
    # 30 clusters by average linkage are a line of the sweep, too.
    assert found("fedclust/fmnist")[4:] == [
        ("sweep", "average/30"),
        ("sweep", "average-by-share/30"),
    ]


SMALL = {
    "data": {"source": "digits", "partition": {"clients": 10, "beta": 0.5, "min_size": 2}},
    "model": {"name": "mclr"},
    "local": {"epochs": 2},
    "train": {"rounds": 3, "clients_per_round": 4},
    "algorithm": {"groups": 3},
}


def small_lines() -> list[Any]:
    lines = dirichlet.lines_of("fedclust/fmnist")
    made = []
    for line in lines:
        tables = overlay(line.tables, SMALL)
        tables["data"].pop("pixels")
        made.append(replace(line, tables=tables))
    return made


def test_one_training_gives_what_a_run_of_each_line_gives() -> None:
    lines = small_lines()
    content: dict[str, Any] = {"lines": []}
    known: dict[str, Any] = {}
    # Twice, as two runs of a sweep: the second has the clients' layers from the first.
    for _ in range(2):
        for scored in dirichlet.train(lines[0], seed=1, rounds=3, scored_after=[2, 3], known=known):
            dirichlet.record(content, lines, 1, scored)
    assert list(known) == ["digits 1"]
    for line in lines:
        partition = dict(line.tables["data"]["partition"])
        result = ct.run(
            ct.fedclust(groups=3),
            data=ct.load("digits", partition=partition, seed=1),
            model="mclr",
            local=ct.Solver(epochs=2, batch_size=10, lr=0.01, momentum=0.5),
            rounds=3,
            clients_per_round=4,
            seed=1,
            engine="serial",
            train={"sampler": "uniform"},
            evaluate={"local": True},
        )
        for rounds in (2, 3):
            (entry,) = (
                found
                for found in content["lines"]
                if (found["table"], found["line"], found["rounds"])
                == (line.table, line.name, rounds)
            )
            expected = 100 * result.rows[rounds - 1][dirichlet.FIGURES[line.metric]]
            assert entry["values"] == pytest.approx([expected, expected])
            assert entry["seeds"] == [1, 1]


def test_layers_and_networks_before_the_clustering_are_those_of_the_run() -> None:
    line = small_lines()[0]
    known: dict[str, Any] = {}
    list(dirichlet.train(line, seed=1, rounds=1, scored_after=[], known=known))
    ((replies, state),) = known.values()
    spec = dirichlet.prepared_as(line, 1, 1, "proportional").spec
    layers, networks = final_layers.trained_once(spec)
    assert (layers.numpy() == replies[0].fields["delta"]).all()
    assert (networks.state().vectors == state.vectors).all()
    found = final_layers.clusters(layers)
    assert found["average 2"] >= found["average 5"] >= 2
    scores = final_layers.accuracies(line, 1, networks)
    assert set(scores) == {"local labels_present", "local proportional"}
    assert all(10 < score <= 100 for score in scores.values())
