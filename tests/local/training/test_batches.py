"""The order of samples, and where they are gathered."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from coterie.core.keys import Key
from coterie.core.solver import Solver
from coterie.local.training.batches import TrainingSamples, batches, joined_batches, minibatches


@given(
    size=st.integers(0, 40),
    epochs=st.integers(1, 9),
    steps=st.integers(0, 30),
    at_once=st.integers(1, 100),
)
def test_passes_are_repeated_permutations(size: int, epochs: int, steps: int, at_once: int) -> None:
    """However many of them are drawn at once."""
    solver = Solver(batch_size=7, epochs=epochs, steps=steps)
    a, b, c = (np.random.Generator(np.random.Philox(key=5)) for _ in range(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[batches.__module__], "_MOST_SHUFFLED", at_once)
        found = list(batches(size, solver, a))
        order, ends = joined_batches(size, solver, c)
    for one in found:
        assert np.array_equal(one.order, b.permutation(size))
    assert sum(one.steps for one in found) == solver.count(size)
    assert [one.last for one in found] == [False] * (len(found) - 1) + [True] * bool(found)
    # Nothing more was drawn.
    assert a.integers(2**62) == b.integers(2**62) == c.integers(2**62)
    parts = [one.order[: one.steps * solver.batch_size] for one in found]
    assert order.tolist() == [row for part in parts for row in part.tolist()]
    assert np.diff(ends, prepend=0).tolist() == [len(part) for part in parts]


@pytest.mark.parametrize("shape", [(3,), (2, 5, 4), (1, 4, 4)])
@pytest.mark.parametrize("size", [1, 9, 20])
def test_batches_are_the_same_however_many_are_gathered_at_once(
    shape: tuple[int, ...], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = TrainingSamples(torch.randn(size, *shape), torch.arange(size))
    solver = Solver(batch_size=4, epochs=2)
    at_once = list(minibatches(samples, solver, Key(3), images=True))
    monkeypatch.setattr(sys.modules[batches.__module__], "_CACHED", 0)
    one_by_one = list(minibatches(samples, solver, Key(3), images=True))
    assert [len(batch.y) for batch in at_once] == [len(batch.y) for batch in one_by_one]
    for mine, yours in zip(at_once, one_by_one, strict=True):
        assert torch.equal(mine.x, yours.x)
        assert torch.equal(mine.y, yours.y)
        # Sums over images come in the order in which they lie in memory.
        assert mine.x.stride() == yours.x.stride()


class OnOneDevice(TorchDispatchMode):
    """Refuses what CUDA refuses and the stand-in for it does not: rows of a device by an index of
    another."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.index_select.default:
            assert args[0].device == args[2].device
        return func(*args, **(kwargs or {}))


def test_samples_on_a_device_are_gathered_there() -> None:
    samples = TrainingSamples(
        torch.empty(8, 2, device="meta"), torch.empty(8, dtype=torch.int64, device="meta")
    )
    with OnOneDevice():
        found = list(minibatches(samples, Solver(batch_size=3, epochs=1), Key(0)))
    assert [len(one.x) for one in found] == [3, 3, 2]
