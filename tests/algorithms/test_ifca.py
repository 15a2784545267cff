"""IFCA: one model is plain averaging."""

from __future__ import annotations

from dataclasses import replace

import torch

import coterie as ct
from coterie.rules.weighing import evenly
from coterie.studies.reproduce.faults import first_client
from tests.conftest import blobs
from tests.simulations import play_covering


def test_the_fault_of_the_reference_code_is_an_option_only() -> None:
    population = blobs()
    method = ct.ifca(2)
    assert not torch.equal(
        play_covering(method, population, 2)[-1].groups.models,
        play_covering(replace(method, weigh=first_client), population, 2)[-1].groups.models,
    )


def test_ifca_with_one_model_is_uniform_fedavg() -> None:
    for a, b in zip(
        play_covering(ct.ifca(1), blobs(), 3),
        play_covering(replace(ct.fedavg(), weigh=evenly), blobs(), 3),
        strict=True,
    ):
        assert torch.equal(a.groups.models, b.groups.models)
