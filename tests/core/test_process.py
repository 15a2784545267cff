"""Memory that a process keeps, and functions that it calls on several threads."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
import torch

from coterie.core.process import choose_functions_of_mkl, threads

# Pages that a process maps while it allocates blocks of 1 to 16 MiB and frees them, ten times.
PAGES = """
import resource
import numpy as np
from coterie.core.process import keep_freed_memory
if {keep}:
    assert keep_freed_memory()

def allocate():
    return [np.ones(2**power) for power in (17, 19, 21)]

allocate()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    allocate()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages(*, keep: bool) -> int:
    command = [sys.executable, "-c", PAGES.format(keep=keep)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_a_process_that_keeps_what_it_frees_maps_it_once() -> None:
    assert pages(keep=True) < 500 < pages(keep=False)


def test_functions_are_called_once_before_several_threads_call_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first call of a function of MKL chooses its code, and threads at once may choose badly."""
    lengths: list[int] = []
    tanh = torch.tanh
    monkeypatch.setattr(torch, "tanh", lambda x: (lengths.append(len(x)), tanh(x))[1])
    choose_functions_of_mkl.cache_clear()
    with threads(1):
        assert lengths == []
    for _ in range(2):
        with threads(2):
            assert lengths == [1]
