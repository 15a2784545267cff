"""A population: pooled samples, who holds which of them, and where they came from."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.arrays import FloatArray, IntArray
from coterie.data.arguments import (
    check_rows,
    check_targets,
    checked_inputs,
    checked_targets,
    groups_of,
    names_of,
    parts_of,
    whole_number,
)
from coterie.data.collated import Collate, read_datasets
from coterie.data.lazy import Ranges, is_lazy
from coterie.data.partition import Partition
from coterie.data.tabular.inputs import TableInputs
from coterie.errors import DataError
from coterie.terminal import counted

Split = Literal["train", "test"]

# Clients of a lazy federation whose labels are counted at once.
_BLOCK = 1024


FRAME = "(frame)"  # the path of data that are in no file


@dataclass(frozen=True, eq=False, slots=True)
class DataOrigin:
    """What `coterie.load` was called with, and what it made of it.

    Args:
        table: ``[data]`` of a configuration that names the same data.
        reads_targets: whether the source reads labels as classes or as numbers.
    """

    table: Mapping[str, Any]
    seed: int
    parts: Partition
    label_names: tuple[str, ...] = ()
    reads_targets: bool = False
    booleans: tuple[str, ...] = ()

    @property
    def from_frame(self) -> bool:
        """Whether the data were a DataFrame, which a configuration cannot name."""
        return self.table.get("path") == FRAME


@dataclass(frozen=True)
class Population:
    """Pooled samples and, per client and split, an index array into them.

    Tensors, NumPy arrays and lists are accepted, and not copied if they have the type below.
    Fractions become float32 and must lie within 1.8e19 of 0, so that their squares are finite. Whole
    numbers become int64, and booleans become 0 and 1. Inputs of bytes are rejected, because they
    may be pixels or numbers.

    Args:
        x: ``[S, ...]`` inputs, float32 (or int64 tokens); or generated lazily
            (``coterie.data.lazy``).
        y: int64 ``[S]`` labels in ``0..classes-1``, in the same way; or the targets of another task
            (docs/tasks.md): float32 ``[S]`` or ``[S, t]``, int64 tokens or labels ``[S, l]``.
        train: the training samples of each client: ``N`` index arrays, ``Ranges``, or ``N`` boolean
            masks of all ``S`` samples.
        test: the test samples of each client, in the same way (may be empty).
        classes: number of classes ``c``; 0 if targets are not classes.
        names: ``N`` distinct client names; default: their numbers.
        planted: int64 ``[N]``, the true group of each client, if the federation was generated with
            groups.
        concept: int64 ``[S]``, the true group of each sample, if clients hold samples of several
            groups.
        copies: number of copies of each sample, one for each concept; sample ``c S / copies + r``
            is copy ``c`` of sample ``r``.
        table: how inputs were computed from the columns of a table, if they were.
        naive: predictions that need no model, by name, each float32 ``[S]``.
        on_disk: whether ``x`` is read from a file when it is needed, so that it is never copied as
            a whole.
        scaling: how inputs were scaled, in words for the model card; empty if unknown.

    Raises:
        DataError: with the argument, its value, and what is allowed.

    Example:
        >>> import torch
        >>> y = torch.tensor([0, 1, 0, 1])
        >>> p = Population(torch.zeros(4, 2), y, ([0, 1], [2]), ([3], []), classes=2)
        >>> p.clients, p.sizes("train").tolist(), p.histograms().tolist()
        (2, [2, 1], [[1, 1], [1, 0]])
        >>> numbers = Population(torch.zeros(2, 3), torch.tensor([0.5, -1.2]), ([0, 1],), ([],))
        >>> numbers.classes, numbers.y.dtype
        (0, torch.float32)
        >>> numbers
        Population(1 client, 2 samples of shape (3,))
    """

    x: Tensor
    y: Tensor
    train: tuple[IntArray, ...]
    test: tuple[IntArray, ...]
    classes: int = 0
    names: tuple[str, ...] = ()
    planted: IntArray | None = field(default=None)
    table: TableInputs | None = field(default=None)
    naive: Mapping[str, Tensor] = field(default_factory=dict)
    concept: IntArray | None = field(default=None)
    copies: int = field(default=1)
    on_disk: bool = field(default=False)
    scaling: str = field(default="")
    # Of `coterie.load`. Not copied by `replace`: other data have another origin.
    origin: DataOrigin | None = field(default=None, init=False, compare=False, repr=False)

    @classmethod
    def from_datasets(
        cls,
        train: Sequence[Any] | Mapping[str, Any],
        test: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        collate: Collate | None = None,
        test_fraction: float = 0.1,
        classes: int | None = None,
    ) -> Population:
        """The population of clients that each have a torch ``Dataset``.

        All samples are read into memory once. Any object with a length and samples by number is a
        dataset: those of torch and torchvision, ``Subset``, ``datasets.Dataset``, or a list.

        Args:
            train: the dataset of each client; or a dictionary, client name -> dataset.
            test: the datasets to test on, in the same way; without them, each client tests on a
                random ``test_fraction`` of its samples.
            collate: makes of a list of samples a pair ``(x, y)`` of tensors ``[n, ...]``, which
                are as those of a population; the ``collate_fn`` of a ``DataLoader``. Default: that
                of torch, for samples ``(x, y)`` of tensors, arrays or numbers.
            test_fraction: without ``test``.
            classes: number of classes; default: one more than the largest label, for one whole
                number a sample.

        Raises:
            DataError: for a dataset without a length, a sample that cannot be collated, and samples
                of different shapes.

        Example:
            >>> import torch
            >>> from torch.utils.data import TensorDataset
            >>> sites = [TensorDataset(torch.randn(20, 3), torch.arange(20) % 2) for _ in range(4)]
            >>> Population.from_datasets(sites)
            Population(4 clients, 80 samples of shape (3,), 2 classes)
            >>> texts = {"ann": ["a b", "b"], "ben": ["b a"]}
            >>> def tokens(batch):
            ...     x = torch.tensor([[len(text), text.count("a")] for text in batch])
            ...     return x, x[:, 1]
            >>> Population.from_datasets(texts, collate=tokens).names
            ('ann', 'ben')
        """
        x, y, parts = read_datasets(train, test, collate, test_fraction)
        if classes is None:
            is_label = y.ndim == 1 and not y.is_floating_point()
            classes = int(y.max()) + 1 if is_label else 0
        return cls(x, y, parts.train, parts.test, classes, parts.names)

    # --- validation ---

    def __post_init__(self) -> None:
        # A frozen record sets its own fields this way.
        for name, value in self._as_it_should_be():
            object.__setattr__(self, name, value)
        self._check_lengths()
        for split in ("train", "test"):
            check_rows(self.parts(split), f"population.{split}", len(self.y))
        # Labels that are made client by client are not made only to be checked.
        if not self.lazy:
            check_targets(self.y, self.classes, "population.y")

    def _as_it_should_be(self) -> Iterator[tuple[str, Any]]:
        """The fields, each as the kind that Coterie computes with."""
        for name, kind in (("on_disk", bool), ("scaling", str)):
            if not isinstance(getattr(self, name), kind):
                allowed = "true or false" if kind is bool else "text"
                got = getattr(self, name)
                raise DataError("wrong-type", f"population.{name}", got=got, allowed=allowed)
        yield "x", checked_inputs(self.x, "population.x", self.on_disk)
        yield "y", checked_targets(self.y, "population.y")
        yield "classes", whole_number(self.classes, "population.classes", 0)
        yield "copies", whole_number(self.copies, "population.copies", 1)
        for split in ("train", "test"):
            held = parts_of(getattr(self, split), f"population.{split}", len(self.y))
            yield split, held
        names = () if self.names is None else names_of(self.names, "population.names")
        yield "names", names or tuple(str(i) for i in range(len(self.train)))
        yield "naive", self._naive_tensors()
        if self.planted is not None:
            yield "planted", groups_of(self.planted, "population.planted", len(self.train))
        if self.concept is not None:
            yield "concept", groups_of(self.concept, "population.concept", len(self.y))

    def _naive_tensors(self) -> dict[str, Tensor]:
        if not isinstance(self.naive, Mapping):
            got = type(self.naive).__name__
            expected = "predictions by name"
            raise DataError("wrong-type", "population.naive", found=got, allowed=expected)
        name = "population.naive"
        return {of: checked_targets(values, f"{name}[{of!r}]") for of, values in self.naive.items()}

    def _check_lengths(self) -> None:
        if self.table is not None and not isinstance(self.table, TableInputs):
            got = type(self.table).__name__
            expected = "an object from coterie.load, or None"
            raise DataError("wrong-type", "population.table", found=got, allowed=expected)
        samples = (len(self.x), len(self.y))
        if samples[0] != samples[1]:
            got = f"{samples[1]} for {samples[0]} rows of x"
            raise DataError("wrong-shape", "population.y", found=got, allowed="the same number")
        clients = len(self.train)
        for name in ("test", "names"):
            if len(getattr(self, name)) != clients:
                got = f"{len(getattr(self, name))} for {clients} clients in train"
                where = f"population.{name}"
                raise DataError("wrong-shape", where, found=got, allowed="the same number")
        if not self.sizes("train").any():
            what = "no client has a training sample"
            raise DataError("missing", "population.train", what)
        for name, values in self.naive.items():
            if len(values) != len(self.y):
                got = f"{len(values)} values of {name!r}"
                expected = f"{len(self.y)}, one for each sample"
                raise DataError("wrong-shape", "population.naive", found=got, allowed=expected)

    def __repr__(self) -> str:
        parts = [counted(self.clients, "client"), f"{len(self.x)} samples of shape {self.shape}"]
        if self.classes:
            parts.append(f"{self.classes} classes")
        return f"Population({', '.join(parts)})"

    # --- sizes and shapes ---

    @property
    def lazy(self) -> bool:
        """Whether samples are generated client by client, so that they are never available all at
        once."""
        return is_lazy(self.y)

    @property
    def clients(self) -> int:
        """Number of clients ``N``."""
        return len(self.train)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.x.shape[1:])

    def parts(self, split: Split) -> tuple[IntArray, ...]:
        """The index arrays of a split."""
        return self.train if split == "train" else self.test

    def sizes(self, split: Split) -> IntArray:
        """Samples per client, int64 ``[N]``."""
        return self._sizes[split]

    @cached_property
    def _sizes(self) -> dict[str, IntArray]:
        found: dict[str, IntArray] = {}
        for split in ("train", "test"):
            parts = self.parts(split)
            if isinstance(parts, Ranges):
                sizes = parts.size.copy()
            else:
                sizes = np.fromiter(map(len, parts), np.int64, len(parts))
            # They are handed out without a copy, in every round.
            sizes.flags.writeable = False
            found[split] = sizes
        return found

    def planted_shares(self) -> FloatArray | None:
        """The share of each concept in the training samples of each client, float64 ``[N, g]``;
        zeros for clients without samples. ``None`` if samples have no known concepts."""
        if self.concept is None:
            return None
        count = int(self.concept.max()) + 1
        held = [np.bincount(self.concept[rows], minlength=count) for rows in self.train]
        sizes = np.maximum(self.sizes("train"), 1)
        return np.array(held) / sizes[:, None]

    # --- labels ---

    @property
    def labels(self) -> IntArray:
        """The labels as a NumPy array, int64 ``[S]``; the targets of another task unchanged."""
        # Never kept: when a process is spawned, torch moves the labels to shared memory, and an array
        # of before would point to memory that was freed.
        return self.y.numpy()

    def histograms(self, split: Split = "train") -> IntArray:
        """Label histograms, int64 ``[N, c]``, in one pass over the pooled labels; ``[N, 0]`` if
        targets are not classes."""
        return self._histograms[split].copy()

    def histograms_of(self, ids: IntArray) -> IntArray:
        """Label histograms of the training samples of some clients, int64 ``[n, c]``, counted once."""
        if not self.lazy:
            return self._histograms["train"][ids]
        histograms, is_known = self._counted_so_far
        new = np.unique(ids[~is_known[ids]])
        for at in range(0, len(new), _BLOCK):
            some = new[at : at + _BLOCK]
            histograms[some] = self._count_labels(self.train, some)
            is_known[some] = True
        return histograms[ids]

    @cached_property
    def _counted_so_far(self) -> tuple[IntArray, NDArray[np.bool_]]:
        """The histograms of a lazy federation that were counted so far, and of which clients."""
        return np.zeros((self.clients, self.classes), np.int64), np.zeros(self.clients, bool)

    @cached_property
    def _histograms(self) -> dict[str, IntArray]:
        ids = np.arange(self.clients)
        if not self.lazy:
            return {
                "train": self._count_labels(self.train, ids),
                "test": self._count_labels(self.test, ids),
            }
        # In blocks: the labels of all clients at once might not fit into memory.
        blocks = np.split(ids, range(_BLOCK, self.clients, _BLOCK))
        test = np.concatenate([self._count_labels(self.test, block) for block in blocks])
        return {"train": self.histograms_of(ids), "test": test}

    def _count_labels(self, parts: Sequence[IntArray], ids: IntArray) -> IntArray:
        """Label histograms of some clients, int64 ``[n, c]``, in one pass.

        A sample of client ``i`` with label ``j`` is counted as the number ``i c + j``.
        """
        # Numbers are no classes, so there is nothing to count.
        if not self.classes or len(self.y.shape) > 1:
            return np.zeros((len(ids), 0), np.int64)
        held = [parts[i] for i in ids]
        owner = np.repeat(np.arange(len(held)), [len(rows) for rows in held])
        rows = np.concatenate([*held, np.empty(0, np.int64)])
        if self.lazy:
            made = self.y[torch.from_numpy(rows)]
            check_targets(made, self.classes, "data.source: labels of a client")
            labels = made.numpy()
        else:
            labels = self.labels[rows]
        flat = np.bincount(owner * self.classes + labels, minlength=len(held) * self.classes)
        return flat.reshape(len(held), self.classes)

    # --- after a shift ---

    def with_parts(
        self,
        train: tuple[IntArray, ...],
        test: tuple[IntArray, ...],
        planted: IntArray | None = None,
    ) -> Population:
        """The same samples, divided differently among the clients (after a distribution shift).

        Only the labels of clients whose arrays changed are counted again, so a shift of a few
        clients costs little in a large federation.

        Args:
            train: one array per client; the identical object if nothing changed.
        """
        true_groups = self.planted if planted is None else planted
        moved = replace(self, train=train, test=test, planted=true_groups)
        # Histograms that were not needed so far are counted when they are.
        if "_histograms" in self.__dict__:
            moved.__dict__["_histograms"] = {
                split: self._recount(moved, split) for split in ("train", "test")
            }
        return moved

    def _recount(self, moved: Population, split: Split) -> IntArray:
        """The histograms of a population whose clients hold other samples of the same pool."""
        before = self.parts(split)
        now = moved.parts(split)
        is_changed = np.fromiter(map(operator.is_not, before, now), bool, len(now))
        changed = np.flatnonzero(is_changed)
        histograms = self._histograms[split].copy()
        histograms[changed] = moved._count_labels(now, changed)
        return histograms
