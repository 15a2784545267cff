"""A network of the user's own, named as ``module:factory``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from coterie.config.custom import import_factory
from coterie.errors import ConfigError, first_line, shown
from coterie.models.spec import ModelSpec, Shape


def custom_model(name: str) -> ModelSpec:
    """The network that ``module:factory`` makes; the module may lie in the current folder, and a
    subclass of ``nn.Module`` is a factory.

    The factory is called as ``factory(shape, classes)`` if it takes two such arguments, else as
    ``factory()``.

    Example:
        >>> custom_model("torch.nn:Identity").count((3,), 3)
        0
    """
    try:
        factory = import_factory(name)
    except Exception as error:  # importing runs the user's code, which may raise anything
        what = f"cannot be used ({type(error).__name__}: {first_line(error)})"
        raise ConfigError(
            "cannot-be-used", "model.name", what, got=name, allowed="module:factory"
        ) from error

    if isinstance(factory, nn.Module):
        what = f"{name} is a network, not a function that creates one"
        do = f"name its class, {type(factory).__name__}, or a function that returns it"
        raise ConfigError("wrong-type", "model.name", what, do=do)

    def build(shape: Shape, classes: int) -> nn.Module:
        try:
            made = _call(factory, shape, classes, name)
        except ConfigError:
            raise
        except Exception as error:
            what = f"{name} failed: {first_line(error)}"
            raise ConfigError("failed", "model.name", what) from error
        if not isinstance(made, nn.Module):
            what = f"{name} returned {shown(made)}"
            raise ConfigError("wrong-type", "model.name", what, allowed="an nn.Module")
        return made

    return ModelSpec(build, (), f"your own, {name}")


def check_trained(module: nn.Module) -> None:
    """Refuse a network that has nothing to train, or parameters without a shape."""
    if any(isinstance(one, UninitializedParameter) for one in module.parameters()):
        what = "a lazy layer has no shape yet"
        got = "a network that has not been called"
        expected = "a network that was called once, or layers with explicit sizes"
        raise ConfigError("wrong-shape", "model.name", what, found=got, allowed=expected)
    if not any(parameter.requires_grad for parameter in module.parameters()):
        frozen = sum(parameter.numel() for parameter in module.parameters())
        what = f"all {frozen:,} parameters are frozen"
        do = "set requires_grad of at least one"
        raise ConfigError("does-not-fit", "model.name", what, do=do)


def zeros_for(module: nn.Module, n: int, shape: Shape) -> torch.Tensor:
    """Inputs of zeros ``[n, *shape]`` for a network: numbers, or tokens where it embeds these."""
    # Only a network with an embedding takes whole numbers, and it takes nothing else.
    embeds = any(isinstance(layer, nn.Embedding) for layer in module.modules())
    dtype = torch.int64 if embeds and len(shape) == 1 else torch.float32
    return torch.zeros(n, *shape, dtype=dtype)


def _call(factory: Callable[..., Any], shape: Shape, classes: int, name: str) -> Any:
    signature = inspect.signature(factory)
    # By name first: a factory may take other arguments with defaults before these two.
    if {"shape", "classes"} <= set(signature.parameters):
        return factory(shape=shape, classes=classes)
    for arguments in ((), (shape, classes)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return factory(*arguments)
    what = f"{name} has the parameters {signature}"
    raise ConfigError("wrong-type", "model.name", what, allowed="() or (shape, classes)")
