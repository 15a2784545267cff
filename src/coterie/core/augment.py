"""Augmentation: training samples that are changed at random before each pass over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from coterie.config.custom import import_factory
from coterie.core.keys import Key, keyed_torch
from coterie.errors import ConfigError, first_line

Transform = Callable[[Tensor], Tensor]
LIBRARY = "torchvision.transforms.v2"


@dataclass(frozen=True, slots=True)
class Augment:
    """A random change of one sample, by a class of ``torchvision.transforms.v2`` or a factory.

    Args:
        name: the name of the class, or ``module:factory``. The result takes one sample, returns one
            of the same shape, and draws from torch's global generator.
        options: keyword arguments of the class or the factory.

    Raises:
        ConfigError: on first use, if it cannot be created.

    Example:
        >>> Augment("RandomCrop", {"size": 32, "padding": [4, 4]}).options
        {'size': 32, 'padding': (4, 4)}
    """

    name: str
    # A mapping has no hash; equal records have equal hashes without it.
    options: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.options, Mapping | None):
            raise ConfigError("wrong-type", "options", got=self.options, allowed="a mapping")
        options = {name: _as_tuple(value) for name, value in (self.options or {}).items()}
        object.__setattr__(self, "options", options or None)

    def __call__(self, x: Tensor) -> Tensor:
        return _transform(self)(x)


def _as_tuple(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_as_tuple, value))
    return value


@lru_cache(maxsize=64)
def _transform(augment: Augment) -> Transform:
    """What changes a sample; made once in each process."""
    try:
        factory = _factory(augment.name)
        made = factory(**(augment.options or {}))
    except ConfigError:
        raise
    except Exception as error:  # the factory may be a user's, which may raise anything
        what = f"cannot be created ({type(error).__name__}: {first_line(error)})"
        expected = f"a class of {LIBRARY}, or module:factory, with its options"
        got = augment.name
        raise ConfigError("failed", "local.augment", what, got=got, allowed=expected) from error
    if not callable(made):
        what = f"{augment.name} returned a {type(made).__name__}"
        raise ConfigError("wrong-type", "local.augment", what, allowed="a function of one sample")
    return made


def _factory(name: str) -> Callable[..., Any]:
    if ":" in name:
        return import_factory(name)
    # Imported only here: the package is optional, and takes seconds.
    try:
        library = import_module(LIBRARY)
    except ImportError:
        what = f"{name} needs the package torchvision, which is not installed"
        do = "run `pip install torchvision`, or name a function of your own as module:function"
        raise ConfigError("not-installed", "local.augment", what, do=do) from None
    return getattr(library, name)


def augmented(x: Tensor, transforms: Sequence[Transform], key: Key) -> Tensor:
    """Samples with every transform applied to each of them.

    Args:
        x: ``[n, ...]``.
        transforms: applied one after another.
        key: the stream of all their draws; torch's global state is left as it was.

    Example:
        >>> augmented(torch.ones(2, 3), [torch.neg], Key(0)).tolist()
        [[-1.0, -1.0, -1.0], [-1.0, -1.0, -1.0]]
    """
    samples = []
    with keyed_torch(key):
        # One by one: torchvision draws once a call, and every sample has its own draw.
        for sample in x:
            for transform in transforms:
                sample = transform(sample)
            samples.append(sample)
    return torch.stack(samples)


def check_augment(transforms: Sequence[Transform], x: Tensor, *, table: bool) -> None:
    """Refuse transforms that cannot change the samples of a population.

    Raises:
        ConfigError: for a table, and for a transform that fails or gives another shape.
    """
    if not transforms or not len(x):
        return
    # Features of a table have units and categories, which no change of an image respects.
    if table:
        what = "only supports images, sequences or vectors"
        got = "the data are columns of a table"
        expected = "no augmentation"
        raise ConfigError("does-not-fit", "local.augment", what, found=got, allowed=expected)
    # Tried before the first round: in a worker the same error would be harder to read.
    try:
        made = augmented(x, transforms, Key(0))
    except ConfigError:
        raise
    except Exception as error:
        what = f"fails on a sample of shape {tuple(x.shape[1:])}: {first_line(error)}"
        raise ConfigError("failed", "local.augment", what) from error
    if made.shape != x.shape or made.dtype != x.dtype:
        what = f"returns {made.dtype} of shape {tuple(made.shape[1:])}"
        expected = f"{x.dtype} of shape {tuple(x.shape[1:])}, like the samples"
        raise ConfigError("wrong-shape", "local.augment", what, allowed=expected)
