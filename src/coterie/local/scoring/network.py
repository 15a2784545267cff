"""Scoring by the network itself, some samples at a time."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from coterie.core import Added, IntArray, Score, Task
from coterie.core.vectors import FlatModule
from coterie.local.scoring.samples import ClientSamples, PerSample, concatenated, on_cpu
from coterie.local.training.batches import channels_last, convolves

# Samples scored at once. On a CPU few, so that what a layer puts out stays in the processor's
# cache, and of images fewer.
_CHUNK_ON_DEVICE = 4096
_CHUNK = 256
_CHUNK_OF_IMAGES = 64


@dataclass(frozen=True, slots=True)
class Scored:
    """Clients that are scored on one model."""

    vector: Tensor
    ids: IntArray


class Helpers(Protocol):
    """Other processes that score with the network, so that more than one core is at work."""

    def __call__(self, passes: Sequence[Scored], work: Score) -> list[dict[str, PerSample]] | None:
        """What each sample adds to each sum, of one pass after another; nothing for a pass without
        a sample. ``None``: they do not help, and this process has to score."""


class NetworkScorer:
    """The sums of any task, by the network."""

    def __init__(self, module: nn.Module, task: Task, device: str) -> None:
        self._task = task
        self._flat = FlatModule(copy.deepcopy(module).to(device))
        self._network = self._flat.module.eval()
        self.device = torch.device(device)
        self._images = convolves(module) and self.device.type == "cpu"
        self.chunk = _CHUNK
        if self._images:
            self.chunk = _CHUNK_OF_IMAGES
        elif self.device.type != "cpu":
            self.chunk = _CHUNK_ON_DEVICE

    @torch.inference_mode()
    def per_sample(self, vector: Tensor, rows: ClientSamples, work: Score) -> dict[str, PerSample]:
        """What each sample adds to each sum under a model; nothing without a sample."""
        parts: dict[str, list[PerSample]] = {}
        for outputs, y in self.outputs(vector, rows):
            for name, values in self.added(outputs, y, work).items():
                parts.setdefault(name, []).append(on_cpu(values))
        return {name: concatenated(values) for name, values in parts.items()}

    def outputs(self, vector: Tensor, rows: ClientSamples) -> Iterator[tuple[Tensor, Tensor]]:
        """What a model puts out for some samples at a time, and their targets."""
        self._flat.write(vector)
        if self._images and rows.gathered:
            rows = replace(rows, x=channels_last(rows.x))
        for at in range(0, len(rows.index), self.chunk):
            x, y = rows.part(at, at + self.chunk)
            if self._images:
                x = channels_last(x)
            yield self._network(x.to(self.device)), y.to(self.device)

    def added(self, outputs: Tensor, y: Tensor, work: Score) -> dict[str, Added]:
        """What each sample adds to each sum that is asked for."""
        found: dict[str, Added] = {}
        if work.sums:
            found |= self._task.added(outputs, y)
        if work.loss:
            found["loss"] = self._task.loss(outputs, y)
        return found


def part_of(
    samples: Sequence[ClientSamples], chunk: int, number: int, parts: int
) -> list[ClientSamples]:
    """One of several parts of all samples, as equal as they can be. Parts are whole chunks of what
    one process alone would score, so that no bit depends on their number."""
    chunks = [-(-len(rows.index) // chunk) for rows in samples]
    total = sum(chunks)
    first = number * total // parts
    last = (number + 1) * total // parts
    found = []
    before = 0
    for rows, count in zip(samples, chunks, strict=True):
        begin = chunk * max(0, first - before)
        end = chunk * max(0, last - before)
        found.append(replace(rows, index=rows.index[begin:end]))
        before += count
    return found


def joined_parts(parts: Sequence[dict[str, PerSample]]) -> dict[str, PerSample]:
    """What several processes found of the same model's samples, one after another."""
    found = [part for part in parts if part]
    if not found:
        return {}
    return {name: concatenated([part[name] for part in found]) for name in found[0]}
