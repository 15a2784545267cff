"""The driver that is many nodes in one process: what it measures is a federation."""

from __future__ import annotations

import argparse

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from benchmarks.many_nodes import measure

pytestmark = pytest.mark.flower


def test_ten_nodes_of_one_process_are_a_simulation() -> None:
    options = argparse.Namespace(nodes=10, cohort=5, rounds=2, ask_every=3.0, longest=900.0)
    found = measure("ifca", options)
    assert found["difference"] <= 1e-6
    assert found["refused"] == [{}, {}]
    assert not found["errors"]
    assert [one["clients"] for one in found["exchanges"]] == [5, 5, 10]
