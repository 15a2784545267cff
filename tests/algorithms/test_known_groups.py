"""Groups that are given."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.errors import Code, ConfigError
from tests.refusals import refuses


def run(method: ct.Method, **options: object) -> ct.Result:
    data = ct.load(
        "digits", partition={"kind": "planted", "clients": 12, "groups": 2, "how": "labels"}
    )
    settings = {"data": data, "model": "mclr", "rounds": 4, "clients_per_round": 6, **options}
    return ct.run(method, **settings)


def test_one_group_is_fedavg_to_the_bit() -> None:
    assert torch.equal(run(ct.known_groups([[0]])).state.models, run(ct.fedavg()).state.models)


def test_groups_are_those_of_the_time_step() -> None:
    rows = run(ct.known_groups([[0], [0, 0, 2], [1]], every=2)).rows
    assert [row["sizes"] for row in rows] == [[12, 0, 0], [12, 0, 0], [8, 0, 4], [8, 0, 4]]


def test_the_planted_groups_are_better_than_one() -> None:
    known = run(ct.known_groups()).rows[-1]
    assert known["agreement"]["ari"] == 1.0
    assert known["accuracy"] > run(ct.fedavg()).rows[-1]["accuracy"] + 0.1


def test_a_group_without_clients_keeps_the_first_model() -> None:
    state = run(ct.known_groups([[0, 2]])).state
    assert torch.equal(state.models[1], state.first_model)
    assert not torch.equal(state.models[0], state.first_model)
    assert np.array_equal(state.member, np.resize([0, 2], 12))


@pytest.mark.parametrize(
    ("members", "code", "path"),
    [
        ([], "wrong-shape", "members"),
        ([[]], "wrong-shape", "members.0"),
        ([[-1]], "out-of-range", "members.0.0"),
    ],
)
def test_what_is_no_table_is_refused(members: list[list[int]], code: Code, path: str) -> None:
    with refuses(ConfigError, code, path):
        ct.known_groups(members)
