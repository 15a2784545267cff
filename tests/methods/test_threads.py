"""The server's part of a round runs on one thread: after an operation on several, threads spin for
some milliseconds on the cores that workers need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import coterie as ct
from coterie.core.groups import Groups
from coterie.core.served import Served
from coterie.rules.assigning import by_group
from coterie.rules.server import sgd
from tests.conftest import blobs, small_net


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Two threads of torch, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_models_move_and_serve_on_one_thread_and_the_caller_has_its_own_again() -> None:
    move = sgd()
    seen: dict[str, set[int]] = {"server": set(), "serve": set()}

    def server(groups: Groups, update: Tensor, trained: Tensor) -> Groups:
        seen["server"].add(torch.get_num_threads())
        return move(groups, update, trained)

    def serve(groups: Groups) -> Served:
        seen["serve"].add(torch.get_num_threads())
        return by_group(groups)

    method = replace(ct.fedavg(), server=server, serve=serve)
    ct.run(method, data=blobs(), model=small_net(), rounds=2, engine="serial")
    assert seen == {"server": {1}, "serve": {1}}
    assert torch.get_num_threads() == 2
