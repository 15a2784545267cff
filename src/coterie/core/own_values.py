"""What a rule says that a client stores, checked and laid out in one vector."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from coterie.core.own_model import Own
from coterie.errors import ConfigError


def joined(own: Own, lengths: Mapping[str, int], source: str) -> list[Tensor]:
    """What a client stores, in the order in which it lies in one vector.

    Args:
        own: what a rule returned.
        lengths: what it says that a client stores.
        source: the function that returned it, for error lines, as ``"Ditto.first"``.

    Raises:
        ConfigError: for other names or lengths.
    """
    if set(own) != set(lengths):
        raise ConfigError(
            f"own_model: {source} returned other names than lengths has, got {sorted(own)}; "
            f"expected {sorted(lengths)}"
        )
    return [checked(own[name], length, source, repr(name)) for name, length in lengths.items()]


def checked(value: object, length: int, source: str, what: str) -> Tensor:
    """A vector that a rule returned.

    Args:
        value: what it returned.
        length: how many values it has to have.
        source: the function that returned it, for error lines, as ``"Ditto.serve"``.
        what: it is.

    Raises:
        ConfigError: if it is no vector of so many values.

    Example:
        >>> import torch
        >>> checked(torch.zeros(2), 3, "Mine.serve", "the model")
        Traceback (most recent call last):
        coterie.errors.ConfigError: own_model: Mine.serve: the model, got shape (2,); expected (3,)
    """
    if isinstance(value, Tensor) and value.shape == (length,):
        return value
    got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
    raise ConfigError(f"own_model: {source}: {what}, got {got}; expected ({length},)")


def split(values: Tensor, lengths: Mapping[str, int]) -> dict[str, Tensor]:
    """What a client stores, by name, as views into one vector.

    Example:
        >>> import torch
        >>> parts = split(torch.arange(3), {"v": 2, "alpha": 1})
        >>> parts["v"].tolist(), parts["alpha"].tolist()
        ([0, 1], [2])
    """
    parts = values.split(list(lengths.values()))
    return dict(zip(lengths, parts, strict=True))
