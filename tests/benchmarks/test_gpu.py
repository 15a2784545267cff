"""The benchmark of GPUs, on a CPU: all that it would run there but graphs and TF32."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
import torch

from benchmarks.gpu import BATCH, CASES, bound, compare


@pytest.mark.parametrize("name", CASES)
def test_each_network_takes_the_samples_of_its_clients(name: str) -> None:
    if name == "transformer" and importlib.util.find_spec("peft") is None:
        pytest.skip("peft is not installed")
    case = CASES[name]
    data = case.population(2)
    assert [len(rows) for rows in data.train] == [case.samples] * 2
    with torch.no_grad():
        assert case.build()(data.x[:BATCH]).shape == (BATCH, case.classes)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "gap"), [("mclr", 1e-5), ("batchnorm", 0.0)])
def test_engines_are_compared(name: str, gap: float) -> None:
    found = compare(replace(CASES[name], samples=BATCH, epochs=1), 1, 1, "cpu", [1])
    pool, other, *_ = found.values()
    assert pool["largest_gap"] == 0.0
    assert other["largest_gap"] <= gap
    assert other["seconds"] == pytest.approx(pool["seconds"] / other["times_pool"])
    assert 0 < other["of_the_bound"] < 1


def test_the_bound_is_a_rate() -> None:
    assert 1e9 < bound("cpu", "float32") < 1e14


def test_an_engine_that_fails_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("out of memory\nand more")

    monkeypatch.setattr("coterie.engines.PoolEngine.train", fails)
    kept: list[list[str]] = []
    case = replace(CASES["mclr"], samples=BATCH, epochs=1)
    found = compare(case, 1, 1, "cpu", [1], lambda so_far: kept.append(list(so_far)))
    assert found["pool"] == {"failed": "out of memory"}
    assert found["vmap"]["seconds"] > 0
    assert "gap" not in found["vmap"]
    assert kept == [["pool"], ["pool", "vmap"], ["pool", "vmap", "vmap, bfloat16"]]
