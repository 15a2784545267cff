"""Samples of torch datasets, collated to two tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from coterie.core.keys import Key
from coterie.crashes import kind_and_place
from coterie.data.partition import Partition
from coterie.data.partitions.helpers import split_train_test
from coterie.errors import DataError, first_line
from coterie.terminal import counted, first_few

Collate = Callable[[list[Any]], Any]
BATCH = 256  # samples that are collated at once
PAIR = "a pair (x, y) of tensors, [n, ...] each"


def read_datasets(
    train: Any, test: Any, collate: Collate | None, test_fraction: float
) -> tuple[Tensor, Tensor, Partition]:
    """The samples of clients that each have a dataset, and who holds which; the arguments are those
    of `coterie.Population.from_datasets`."""
    trained = by_name(train, "train")
    tested = by_name({} if test is None else test, "test")
    is_share = isinstance(test_fraction, Real) and 0 < test_fraction < 1
    if test is None and not is_share:
        raise DataError("out-of-range", "test_fraction", found=test_fraction, allowed="0 to 1")
    if test is not None and set(tested) != set(trained):
        got = first_few(sorted(set(tested) ^ set(trained)))
        what = "other clients than in train"
        raise DataError("differs", "test", what, found=got, allowed="the same clients")
    sets = [(f"train[{name!r}]", dataset) for name, dataset in trained.items()]
    if test is not None:
        sets += [(f"test[{name!r}]", tested[name]) for name in trained]
    x, y = collated(sets, collate)
    ends = np.cumsum([len(dataset) for _, dataset in sets])
    held = np.split(np.arange(len(y)), ends[:-1])
    parts = Partition(tuple(held[: len(trained)]), tuple(held[len(trained) :]))
    if test is None:
        parts = split_train_test(held, Key(0).of("data"), test_fraction)
    return x, y, replace(parts, names=tuple(trained))


def by_name(datasets: Any, argument: str) -> dict[str, Any]:
    """Datasets by the names of their clients: by default their numbers."""
    if not isinstance(datasets, Mapping | Sequence) or isinstance(datasets, str):
        got = type(datasets).__name__
        allowed = "a list of datasets, one for each client, or a dictionary of them"
        raise DataError("wrong-type", argument, found=got, allowed=allowed)
    if not isinstance(datasets, Mapping):
        datasets = dict(enumerate(datasets))
    named = {str(name): dataset for name, dataset in datasets.items()}
    for name, dataset in named.items():
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            got = type(dataset).__name__
            allowed = "a dataset with a length and samples by number"
            raise DataError("wrong-type", f"{argument}[{name!r}]", found=got, allowed=allowed)
    return named


def collated(named: Sequence[tuple[str, Any]], collate: Collate | None) -> tuple[Tensor, Tensor]:
    """All samples of some datasets, one dataset after another.

    Args:
        named: what a dataset is called in messages, and the dataset.

    Raises:
        DataError: for a dataset or a function that fails, or that does not make such pairs.
    """
    x: list[Tensor] = []
    y: list[Tensor] = []
    for where, inputs, targets in _batches(named, collate or default_collate):
        for part, parts in ((inputs, x), (targets, y)):
            if parts and (part.shape[1:], part.dtype) != (parts[0].shape[1:], parts[0].dtype):
                before = f"{tuple(parts[0].shape[1:])} {parts[0].dtype}"
                got = f"samples of shape {tuple(part.shape[1:])} {part.dtype} after {before}"
                allowed = "samples of one shape: pad texts to a fixed length, and resize images"
                raise DataError("wrong-shape", where, found=got, allowed=allowed)
            parts.append(part)
    if not x:
        raise DataError("missing", "train", "no dataset has a sample")
    return torch.cat(x), torch.cat(y)


def _batches(
    named: Sequence[tuple[str, Any]], collate: Collate
) -> Iterator[tuple[str, Tensor, Tensor]]:
    for where, dataset in named:
        for begin in range(0, len(dataset), BATCH):
            places = range(begin, min(begin + BATCH, len(dataset)))
            try:
                found = collate([dataset[place] for place in places])
            except Exception as error:  # noqa: BLE001 - a user's dataset may raise anything
                what = f"cannot be collated ({first_line(error)}: {kind_and_place(error)})"
                allowed = f"a collate function that makes {PAIR}"
                raise DataError("failed", where, what, allowed=allowed) from None
            yield (where, *_pair(found, len(places), where))


def _pair(found: Any, samples: int, where: str) -> tuple[Tensor, Tensor]:
    if isinstance(found, tuple | list) and len(found) == 2:
        x, y = found
        if isinstance(x, Tensor) and isinstance(y, Tensor) and len(x) == len(y) == samples:
            return x, y
    got = f"a {type(found).__name__}"
    if isinstance(found, Mapping):
        got += f" with the keys {', '.join(map(str, found))}"
    elif isinstance(found, tuple | list):
        got += f" of {', '.join(_spelled(one) for one in found)}"
    what = f"{counted(samples, 'collated sample')} are not a pair of tensors"
    raise DataError("wrong-type", where, what, found=got, allowed=f"{PAIR}, from collate")


def _spelled(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    return f"a {type(value).__name__}"
