"""Federations of real clients: what runs on a node, on the server, and on the machine that starts
them; and Coterie's methods as a strategy for anybody's Flower app."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.flower.strategy import ClusteredResult as ClusteredResult
    from coterie.flower.strategy import ClusteredStrategy as ClusteredStrategy

__all__ = ["ClusteredResult", "ClusteredStrategy"]


def __getattr__(name: str) -> Any:
    # On first use: the processes of a node import this package, and wait for no PyTorch.
    if name in __all__:
        try:
            return getattr(import_module("coterie.flower.strategy"), name)
        except ModuleNotFoundError as error:
            if error.name != "flwr":
                raise
            from coterie.errors import ConfigError, install_command

            what = "Flower is not installed"
            do = f"install it with {install_command('flower')}"
            raise ConfigError("not-installed", name, what, do=do) from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
