"""The device that blocks of clients are computed on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch

from coterie.errors import ConfigError

Precision = Literal["float32", "tf32", "bfloat16"]


@dataclass(frozen=True, slots=True)
class Device:
    """Where and how a block is computed. ``tf32`` and ``bfloat16`` may be faster on a GPU, but do
    not give the results of ``serial``. With ``graphs``, steps whose shapes repeat are CUDA graphs.
    """

    name: str = "cpu"
    precision: Precision = "float32"
    graphs: bool = False

    @property
    def gpus(self) -> list[int]:
        """The number of the GPU that this is; none for the CPU."""
        place = torch.device(self.name)
        if place.type != "cuda":
            return []
        return [torch.cuda.current_device() if place.index is None else place.index]

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Inside, float32 products are what ``precision`` says; afterwards, what they were."""
        # Both, since by default torch lets convolutions take TF32 and products not.
        backends: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
        before = [backend.allow_tf32 for backend in backends]
        for backend in backends:
            backend.allow_tf32 = self.precision == "tf32"
        try:
            yield
        finally:
            for backend, old in zip(backends, before, strict=True):
                backend.allow_tf32 = old


def autocast(device: str, precision: Precision) -> AbstractContextManager[Any]:
    """Inside, layers compute in bfloat16 where that is the precision, else as they are."""
    if precision != "bfloat16":
        return nullcontext()
    kind = torch.device(device).type
    return torch.autocast(kind, torch.bfloat16)


def find_device(name: str = "auto") -> str:
    """The device to compute on; ``auto`` is the first CUDA device where there is one, else the CPU."""
    count = torch.cuda.device_count()
    if name == "auto":
        if count:
            return "cuda:0"
        return "cpu"
    known = ["auto", "cpu"]
    if count:
        known += ["cuda", *(f"cuda:{number}" for number in range(count))]
    if name not in known:
        what = "not on this machine"
        raise ConfigError("not-found", "engine.device", what, got=name, allowed=", ".join(known))
    return name
