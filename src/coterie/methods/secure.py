"""A method whose server sees sums of whole numbers, where its rules allow it."""

from __future__ import annotations

from dataclasses import replace

from coterie.config.participation_table import NOT_SECURE
from coterie.errors import ConfigError
from coterie.methods.algorithm import Algorithm
from coterie.methods.method import Method
from coterie.methods.override import method_of
from coterie.methods.single_updates import single_updates
from coterie.rules.secure_sums import SecureSums, secure_sum
from coterie.rules.weighing import WeighsAlone


def make_secure(made: Method | Algorithm, sums: SecureSums, name: str = "method") -> Method:
    """The method with sums as secure aggregation computes them.

    What it asks of single clients before its first groups, and of newcomers, stays as it is.

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
    method = method_of(made)
    # SCAFFOLD's server takes the number of steps of each client from its update.
    if method is not None and "beside" in single_updates(method):
        raise ConfigError(
            "algorithm.name: its server also moves a vector beside the model, by the single update and "
            f"the number of steps of each client, got {name!r}; expected one that sends the model "
            "alone, or no [secure]"
        )
    if method is None or not set(single_updates(method)) <= {"start", "newcomers"}:
        raise ConfigError(
            f"algorithm.name: its server needs single updates in every round, got {name!r}; expected "
            "one that does with sums, as fedavg, ifca, fedgroup, or no [secure]"
        )
    if method.asynchronous is not None:
        raise ConfigError(
            f"asynchronous: {NOT_SECURE}, got asynchronous rounds; expected none with [secure]"
        )
    if method.local.mixture:
        raise ConfigError(
            f"algorithm.name: its clients train several models, got {name!r}; expected one that "
            "trains one, or no [secure]"
        )
    if method.local.upload is not None or method.local.keep is not None:
        raise ConfigError(
            f"algorithm.name: its clients keep a part of the model, got {name!r}; expected whole "
            "updates, or no [secure]"
        )
    assert isinstance(method.weigh, WeighsAlone)
    return replace(method, aggregate=secure_sum(sums, method.weigh))
