"""Cross-entropy, alone (FedAvg) or with FedProx's proximal term."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coterie.config.arguments import validated
from coterie.core.objective import CrossEntropy, plain


def cross_entropy() -> CrossEntropy:
    """Cross-entropy alone, as in FedAvg.

    Example:
        >>> cross_entropy() == plain
        True
    """
    return plain


@validated
def proximal(mu: Annotated[float, Field(ge=0)] = 1.0) -> CrossEntropy:
    """Cross-entropy and FedProx's proximal term, ``F_k(w) + mu/2 ||w - w_t||^2``.

    Args:
        mu: weight of the proximal term; 0 is plain.

    Raises:
        ConfigError: if ``mu`` is negative.

    Example:
        >>> proximal(0.1).mu
        0.1
    """
    return CrossEntropy(mu)
