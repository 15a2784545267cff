"""Kernels ask for the widest vectors that the processor has, run their own copies of others, and read
arrays that begin a line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import llvmlite.binding as llvm
import numba
import numpy as np
import pytest
import torch
from numba.core.caching import NullCache
from torch import nn

from coterie.core.arrays import aligned_copy, aligned_empty, is_aligned
from coterie.local import Stack
from coterie.local.kernels import dense, inner_loops, network
from coterie.local.kernels.compilation import compile_together, compiled
from coterie.local.scoring.compiled import scored_samples
from coterie.local.training.compiled import CompiledTrainer

HAS_AVX512 = llvm.get_host_cpu_features().get("avx512f", False)
# A process of its own, without a folder of machine code: what was read from there has no source.
COMPILE = """
import json
from coterie.local.kernels import compilation
{imports}

found = {{}}
for kernel in [{names}]:
    compilation.compile_together(kernel)
    [signature] = kernel.signatures
    name = kernel.py_func.__name__
    found[name] = [kernel.inspect_llvm(signature), kernel.inspect_asm(signature)]
print(json.dumps(found))
"""


class Compiled(NamedTuple):
    """What a kernel is compiled to."""

    llvm: str
    asm: str


def compiled_to(folder: Path, **module_of: str) -> dict[str, Compiled]:
    """What kernels are compiled to, by their names.

    Args:
        folder: of machine code, empty.
        module_of: the module of each kernel.
    """
    imports = [
        f"from coterie.local.kernels.{module} import {name}" for name, module in module_of.items()
    ]
    script = COMPILE.format(imports="\n".join(imports), names=", ".join(module_of))
    command = [sys.executable, "-c", script]
    place = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=place)
    return {name: Compiled(*texts) for name, texts in json.loads(done.stdout).items()}


@pytest.fixture(scope="module")
def multiply(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """The kernel of all products of dense layers."""
    return compiled_to(tmp_path_factory.mktemp("code"), multiply="dense")["multiply"]


@pytest.mark.slow
def test_a_kernel_prefers_wide_vectors(multiply: Compiled) -> None:
    assert '"prefer-vector-width"="512"' in multiply.llvm


@pytest.mark.slow
@pytest.mark.skipif(not HAS_AVX512, reason="the processor has no vectors of 512 bits")
def test_products_take_whole_lines_at_once(multiply: Compiled) -> None:
    products = [line for line in multiply.asm.splitlines() if "vfmadd" in line]
    assert sum("%zmm" in line for line in products) >= 10


@compiled("void(f4, f4[:, :], f4[:, ::1], f4[:, ::1])")
def add_once(rate: float, delta: np.ndarray, h: np.ndarray, w: np.ndarray) -> None:
    dense.accumulate(rate, delta, h, w)


@compiled("void(f4, f4[:, :], f4[:, ::1], f4[:, ::1])")
def add_twice(rate: float, delta: np.ndarray, h: np.ndarray, w: np.ndarray) -> None:
    dense.accumulate(rate, delta, h, w)
    dense.accumulate(rate, delta, h, w.copy())


def test_a_kernel_runs_its_own_copy_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kernels that call the same one: no process may take the copy of one for the other."""
    copies = []
    for kernel in (add_once, add_twice):
        # Machine code that was read from disk has no source.
        monkeypatch.setattr(kernel, "_cache", NullCache())
        compile_together(kernel)
        (signature,) = kernel.signatures
        source = kernel.inspect_llvm(signature)
        copies.append(set(re.findall(r'define linkonce_odr [^@]*@"?([^"(]+)', source)))
        assert any("accumulate" in name for name in copies[-1])
    # Those of Numba's own functions that count references are all the same.
    shared = {name for name in copies[0] & copies[1] if not name.startswith("NRT_")}
    assert not shared
    assert any(name.startswith("NRT_") for name in copies[0] & copies[1])
    assert not any(name.startswith("NRT_") and "." in name for name in copies[0] | copies[1])


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="without compiled code NumPy makes arrays")
@pytest.mark.parametrize("samples", [1, 7, 60])
def test_what_layers_read_and_write_begins_a_line(samples: int) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 3))
    stack = Stack.of(net, ())
    assert stack is not None
    layers = CompiledTrainer(stack).layers((20,))
    buffers = network.make_buffers(layers, samples)
    assert [one.shape for one in buffers.given] == [(samples, 20), (samples, 32), (samples, 3)]
    assert all(is_aligned(one) for one in buffers.given)
    assert not any(one.any() for one in buffers.given)


@pytest.mark.parametrize("n", [0, 1, 16, 1000])
def test_arrays_of_both_kinds_begin_a_line(n: int) -> None:
    for array in (
        inner_loops.zeros(n),
        aligned_empty(n),
        aligned_copy(np.arange(n, dtype=np.float32)),
    ):
        assert array.shape == (n,)
        assert array.flags.c_contiguous
        assert not n or is_aligned(array)


def test_a_model_anywhere_in_memory_scores_the_same() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(20, 4))
    stack = Stack.of(net, ())
    assert stack is not None
    trainer = CompiledTrainer(stack)
    x = torch.randn(200, 20)
    rows = np.arange(200)
    samples = scored_samples(trainer, x, torch.zeros(200, dtype=torch.int64), rows)
    room_for_model = torch.zeros(84 + 16)
    values = torch.randn(84)
    losses = []
    for offset in (0, 1, 15):
        model = room_for_model[offset : offset + 84]
        model.copy_(values)
        samples.score(model)
        losses.append(samples.loss.copy())
    assert np.array_equal(losses[0], losses[1])
    assert np.array_equal(losses[0], losses[2])
