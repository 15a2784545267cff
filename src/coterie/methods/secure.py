"""A method whose server sees sums of whole numbers, where its rules allow it."""

from __future__ import annotations

from dataclasses import replace

from coterie.config.participation_table import NOT_SECURE
from coterie.methods.algorithm import Algorithm, method_of
from coterie.methods.method import Method
from coterie.methods.traits import Feature, traits_of
from coterie.rules.secure_sums import SecureSums, secure_sum
from coterie.rules.weighing import WeighsAlone

_SINGLE = "its server needs single updates in every round"
_PART = "its clients keep a part of the model"
# What is asked of single clients before the first groups, and of newcomers, stays as it is.
_SECURE = Feature(
    "algorithm.name",
    "one that does with sums of whole updates, as fedavg, ifca, fedgroup, or no [secure]",
    {
        # SCAFFOLD's server takes the number of steps of each client from its update.
        "beside": "its server also moves a vector beside the model, by the single update and the "
        "number of steps of each client",
        "own_step": _SINGLE,
        "chains": _SINGLE,
        "data": _SINGLE,
        "grouping": _SINGLE,
        "weights": _SINGLE,
        "shares": _SINGLE,
        "mixture": "its clients train several models",
        "uploads_a_part": _PART,
        "keeps_layers": _PART,
    },
)
_SECURE_ROUNDS = Feature("asynchronous", "none with [secure]", {"asynchronous": NOT_SECURE})


def make_secure(made: Method | Algorithm, sums: SecureSums, name: str = "method") -> Method:
    """The method with sums as secure aggregation computes them.

    Args:
        made: a method.
        sums: how they are computed.
        name: what to call the method in an error.

    Raises:
        ConfigError: for a method that needs single updates in every round.

    Example:
        >>> from coterie.algorithms import fedavg
        >>> make_secure(fedavg(), SecureSums()).aggregate.sums
        True
    """
    traits = traits_of(made)
    _SECURE.check(traits, name)
    _SECURE_ROUNDS.check(traits, name)
    method = method_of(made)
    assert method is not None
    assert isinstance(method.weigh, WeighsAlone)
    return replace(method, aggregate=secure_sum(sums, method.weigh))
