"""What the page derives from a run."""

from __future__ import annotations

import numpy as np

from coterie.errors import ConfigError
from coterie.report.view import (
    NewcomerPlacement,
    group_agreement,
    newcomer_placements,
    population_groups,
)
from tests.refusals import refuses
from tests.report.pages import grouped


def test_agreement_leaves_out_clients_without_a_group():
    groups = np.array([1, 1, -1, 0, 0, -1])
    assert group_agreement(grouped(groups=groups)) == 1.0
    assert group_agreement(grouped(planted=None)) is None
    assert group_agreement(grouped(groups=np.full(6, -1))) is None


def test_newcomers_are_right_where_their_population_lives():
    view = grouped()
    assert population_groups(view) == {0: 1, 1: 0}
    assert [(p.client, p.round, p.group, p.right) for p in newcomer_placements(view)] == [
        ("c2", 0, 1, True),
        ("c5", 1, 1, False),
    ]


def test_newcomer_without_a_group_is_not_right():
    placed = newcomer_placements(grouped(groups=np.array([1, 1, -1, 0, 0, 1]), joined=None))
    assert placed[0] == NewcomerPlacement("c2", None, None, population=0, right=False)


def test_a_field_with_another_number_of_clients_is_refused():
    with refuses(ConfigError, "wrong-shape", "planted"):
        grouped(planted=np.array([0, 1]))
