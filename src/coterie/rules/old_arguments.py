"""Arguments of version 0.1 that methods still accept. Used by the factories of grouped methods."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar, cast

from coterie.rules.migration import Migration

P = ParamSpec("P")
R = TypeVar("R")


def tau_in_migration(factory: Callable[P, R]) -> Callable[P, R]:
    """Accept the deprecated argument ``tau`` of a method, which is now a part of `Migration`.

    Args:
        factory: of a method, with an argument ``migration``.
    """

    # FlexCFL detects drift unless it is told not to; other methods do not.
    default = signature(factory).parameters["migration"].default

    @wraps(factory)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if "tau" not in kwargs:
            return factory(*args, **kwargs)
        others: dict[str, Any] = dict(kwargs)
        migration = Migration(others.pop("migration", default), others.pop("tau"))
        warnings.warn(
            f"tau is deprecated; use migration={migration}", DeprecationWarning, stacklevel=2
        )
        return cast(Callable[..., R], factory)(*args, migration=migration, **others)

    return call
