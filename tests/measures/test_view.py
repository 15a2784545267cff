"""What a measure sees of a round."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from coterie.clients.clients import Clients
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.solver import Solver
from coterie.data.population import Population
from coterie.engines import make_clients
from coterie.local import LocalRunner
from coterie.measures.view import RoundView


def test_measures_of_version_0_1_find_the_clients_by_their_old_name() -> None:
    y = torch.tensor([0, 1])
    population = Population(torch.zeros(2, 1), y, ([0], [1]), ([], []), classes=2)
    groups = Groups(torch.zeros(1, 4), np.zeros(2, np.int64))
    with make_clients(
        "serial", LocalRunner(population, torch.nn.Linear(1, 2), Solver())
    ) as clients:
        view = RoundView(clients, population, groups, {}, Key(0))
        assert isinstance(view.clients, Clients)
        with pytest.warns(DeprecationWarning, match="use RoundView.clients"):
            assert view.door is view.clients
