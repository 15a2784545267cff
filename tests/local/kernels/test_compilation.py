"""Machine code is kept for the next process, and made anew when any kernel's file changes."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest
import torch
from filelock import FileLock

import coterie as ct
from coterie.core.vectors import flatten
from coterie.local import Stack, kernels
from coterie.local.kernels import compilation
from coterie.local.scoring.compiled import scored_samples
from coterie.local.training.batches import TrainingSamples
from coterie.local.training.compiled import CompiledTrainer

CALLED = """
from kept_kernels.compilation import compiled


@compiled("i8(i8)")
def step(x):
    return x + {amount}
"""
CALLING = """
from kept_kernels.compilation import compiled
from kept_kernels.called import step


@compiled("i8(i8)")
def two_steps(x):
    return step(step(x))
"""


def load(folder: Path, amount: int) -> ModuleType:
    """The kernels as a new process would import them, of which one adds an amount."""
    (folder / "called.py").write_text(CALLED.format(amount=amount))
    for name in [name for name in sys.modules if name.startswith("kept_kernels")]:
        del sys.modules[name]
    importlib.invalidate_caches()
    return importlib.import_module("kept_kernels.calling")


def kept_kernels(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of its own with a kernel that calls another, which can be imported."""
    folder = place / "kept_kernels"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "calling.py").write_text(CALLING)
    shutil.copy(Path(compilation.__file__), folder)
    monkeypatch.syspath_prepend(place)
    # Python compares source files by second and size, which an edit in a test may not change.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return folder


def loaded_from_disk(kernel: Any) -> bool:
    """Whether no machine code of a kernel had to be made."""
    return bool(kernel.stats.cache_hits) and not kernel.stats.cache_misses


def test_a_kernel_is_compiled_anew_when_another_file_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = kept_kernels(tmp_path, monkeypatch)
    assert load(folder, 1).two_steps(0) == 2
    again = load(folder, 1).two_steps
    assert again(0) == 2
    assert loaded_from_disk(again)
    # The caller's own file is as it was.
    assert load(folder, 5).two_steps(0) == 10


def test_machine_code_of_a_version_whose_classes_are_gone_is_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = kept_kernels(tmp_path, monkeypatch)
    kernel = load(folder, 1).two_steps
    kernel(0)
    index = Path(kernel._cache._cache_file._index_path)
    # What Numba writes, for a signature with a class that no module has any more.
    gone = b"ccoterie.core.training\nNoSuchClass\n."
    version = pickle.loads(index.read_bytes()).split(",")[0]
    index.write_bytes(pickle.dumps(f"{version}, another digest") + gone)
    assert load(folder, 1).two_steps(0) == 2
    index.write_bytes(pickle.dumps(version) + gone)  # by a Coterie that kept no digest there
    assert load(folder, 1).two_steps(0) == 2


def test_one_process_compiles_while_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = kept_kernels(tmp_path, monkeypatch)
    kernel = load(folder, 1).two_steps
    kernel(0)
    other = FileLock(f"{kernel._cache._cache_file._index_path}.lock")
    other.acquire()
    with ThreadPoolExecutor(1) as threads:
        again = load(folder, 1).two_steps
        called = threads.submit(again, 0)
        with pytest.raises(TimeoutError):
            called.result(timeout=1)
        other.release()
        assert called.result() == 2
        assert loaded_from_disk(again)
    # A process that was halted while it compiled keeps nobody from it for ever.
    module = sys.modules["kept_kernels.compilation"]
    monkeypatch.setattr(module, "LONGEST_WAIT", 0.1)
    with other, module._others_waiting(kernel):
        assert kernel(1) == 3


def test_threads_that_need_a_kernel_at_once_get_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = load(kept_kernels(tmp_path, monkeypatch), 1).two_steps
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(kernel, range(4))) == [2, 3, 4, 5]


LOADED = """
import json
import coterie as ct
from torch import nn
from coterie.local import LocalRunner, kernels
from coterie.local.kernels import convolutions, dense

data = ct.load("digits", partition={"kind": "iid", "clients": 2})
runner = LocalRunner(data, nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), ct.Solver())
runner.load_kernels(forks=True)
names = ["score", "descend", "descend_by_rule"]
kinds = {"dense": kernels.DENSE_LAYERS, "convs": kernels.CONV_LAYERS}
loaded = [f"{n} {k}" for n in names for k in kinds if kinds[k] in getattr(kernels, n).kernels]
others = [convolutions.conv_backward, dense.multiply_wide]
made = [kernel.of(kernels.DENSE_LAYERS).stats for kernel in (kernels.score, kernels.descend)]
found = {
    "loaded": loaded,
    "others": [len(kernel.signatures) for kernel in others],
    "compiled": [len(stats.cache_misses) for stats in made],
}
print(json.dumps(found))
"""


def loaded_by_a_process(**environment: str) -> dict[str, Any]:
    """What a process loads for a dense network that is trained by SGD."""
    command = [sys.executable, "-c", LOADED]
    place = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=place)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_a_dense_network_by_sgd_loads_nothing_of_convolutions_and_of_other_optimisers() -> None:
    """Else the first run on a machine, which compiles what it loads, takes thrice as long to begin."""
    found = loaded_by_a_process()
    assert found["loaded"] == ["score dense", "descend dense"]
    assert found["others"] == [0, 0]


@pytest.mark.slow  # the kernels of this network are compiled once more, for 12 s
def test_another_process_compiles_training_while_this_one_compiles_scoring(tmp_path: Path) -> None:
    """The second process finds all on disk, and forks no other one."""
    first, second = [loaded_by_a_process(NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2)]
    assert first["compiled"] == [1, 0], "the other process left the code of training on disk"
    assert second["compiled"] == [0, 0]


def test_what_is_missing_on_disk_is_known_for_each_kind_of_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    made = compilation.OnDemand(_twice, lambda kind: kind(kind))
    assert made.is_missing(numba.int64)
    assert made.of(numba.int64)(2) == 4
    assert not made.is_missing(numba.int64)
    assert not compilation.OnDemand(_twice, lambda kind: kind(kind)).is_missing(numba.int64)
    assert made.is_missing(numba.float64)
    monkeypatch.setattr(compilation, "_keep_machine_code", _nowhere)
    assert not compilation.OnDemand(_twice, lambda kind: kind(kind)).is_missing(numba.float64)


def _twice(x: Any) -> Any:
    return 2 * x


def _nowhere(kernel: Any) -> None:
    raise RuntimeError("no folder can be written")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_code_without_convolutions_gives_the_same_bits(optimizer: str) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(61, 17), torch.nn.ReLU(), torch.nn.Linear(17, 5))
    x = torch.randn(43, 61)
    y = torch.randint(5, (43,))
    start = flatten(net)
    solver = ct.Solver(epochs=2, batch_size=7, lr=0.01, optimizer=optimizer)
    found = []
    for with_convolutions in (False, True):
        trainer = CompiledTrainer(Stack.of(net), mu=0.1)
        if with_convolutions:
            _take_code_of_convolutions(trainer)
        out = torch.empty_like(start)
        trained = trainer.train(TrainingSamples(x, y), start, out, solver, ct.Key(0))
        scored = scored_samples(trainer, x, y, np.arange(43))
        scored.score(start + out)
        of_samples = (scored.best.tolist(), scored.loss.tobytes())
        found.append((out.numpy().tobytes(), trained.loss, *of_samples))
    assert found[0] == found[1]


def _take_code_of_convolutions(trainer: CompiledTrainer) -> None:
    """Train a dense network by the code for convolutions, of which it has none."""
    trainer.kernel = lambda name: getattr(kernels, name).of(kernels.CONV_LAYERS)
    dense = trainer.layers((61,))
    trainer._layers_of[61,] = dense._replace(convs=np.empty((0, 7), np.int64))
