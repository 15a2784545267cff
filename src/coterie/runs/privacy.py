"""A run whose server uses noised sums of updates: its noise, its cohorts and its budget."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal

from pydantic import Field

from coterie.config.arguments import check_arguments
from coterie.config.problems import Problem, refuse
from coterie.core.keys import Key
from coterie.errors import ConfigError, PrivacyError
from coterie.math import accounting
from coterie.math.accounting import Accountant, Release, least_noise
from coterie.methods.algorithm import as_algorithm
from coterie.methods.method import Method
from coterie.methods.private import PrivateStart, check_private, make_private, start_size
from coterie.rules.private_sums import PrivateSums
from coterie.runs.budget import Budget
from coterie.runs.cohort import Sampler
from coterie.runs.column_release import (
    check_columns,
    check_cost,
    columns_release,
    refuse_without_budget,
)
from coterie.runs.spec import RunSpec

Above = Annotated[float, Field(gt=0)]
Probability = Annotated[float, Field(gt=0, lt=1)]
# Epsilons are bounds that were computed to about five digits.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Privacy:
    """Differential privacy of updates, as ``[privacy]`` has it.

    Args:
        epsilon: all that the run may spend; ``None``: as much as the noise costs.
        delta: the guarantee is ``(epsilon, delta)``.
        noise: standard deviation of the noise in multiples of the clip; ``None``: the least that
            ``epsilon`` allows.
        clip: the longest update that counts in full; with a quantile that of the first round.
        quantile: of the lengths of updates that the clip follows; ``None``: it stays.
        start_noise: noise of a whole cold start, in multiples of that of a round.
        least_group: clients of a round that each group should have: some of larger groups train the
            models of smaller ones; ``None``: no client moves.
        accountant: ``pld`` or ``rdp``, see `coterie.math.accounting`.
        randomness: of the noise and the cohorts: ``seed``, so that a run can be repeated, or
            ``system``, which nobody can.

    Raises:
        ConfigError: for a value out of its range, and without an epsilon and a noise.

    Example:
        >>> Privacy(epsilon=8.0, clip=0.5).delta
        1e-05
    """

    epsilon: Above | None = None
    delta: Probability = 1e-5
    noise: Above | None = None
    clip: Above = 1.0
    quantile: Probability | None = None
    start_noise: Above = 1.0
    least_group: Above | None = None
    accountant: Accountant = "pld"
    randomness: Literal["seed", "system"] = "seed"

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        check_arguments(Privacy, values)
        if self.epsilon is None and self.noise is None:
            expected = "a number, or a noise"
            raise ConfigError(f"privacy.epsilon: missing, got none; expected {expected}")


@dataclass(frozen=True, slots=True)
class Repeats:
    """What an earlier process of the same run released already, and does not count as done.

    Args:
        process: how many processes there were before.
        rounds: rounds that are done again.
        starts: cold starts that are done again.
    """

    process: int = 0
    rounds: int = 0
    starts: int = 0

    def stream(self, privacy: Privacy, seed: int) -> Key | None:
        """The stream of noise and cohorts; ``None``: the run's own."""
        if privacy.randomness == "system":
            return Key(secrets.randbits(63))
        # The same noise on other replies: their difference would be what one client sent.
        if self.process:
            return Key(seed).of(f"process/{self.process}")
        return None


def private_spec(
    spec: RunSpec,
    privacy: Privacy | None,
    name: str = "method",
    repeats: Repeats = Repeats(),
) -> RunSpec:
    """The same run with noised sums in place of what its server computes of single updates.

    Args:
        spec: of the run.
        privacy: what is asked for; ``None``: the run stays as it is.
        name: what to call the method in an error.
        repeats: of real clients, where the run was stopped.

    Raises:
        ConfigError: for a run that goes not with it, or without the package ``dp-accounting``.
        PrivacyError: if the rounds would spend more than allowed.
    """
    columns = columns_release(spec.population)
    if privacy is None:
        refuse_without_budget(columns)
        return spec
    accounting.check_package()
    _check_clients(spec)
    sampler = _random_sampler(spec, privacy)
    if columns is not None:
        check_columns(sampler, privacy.randomness)
    # Cohorts from the same stream: whoever knew them would undo what sampling gains.
    secret = repeats.stream(privacy, spec.seed)
    if secret is not None:
        sampler = replace(sampler, key=secret)
    # Of the method first: that it needs single updates is said before any noise is computed.
    method = check_private(spec.algorithm, name)
    rate = _start_rate(method, sampler)
    noise, budget = _plan(privacy, sampler, spec.rounds, rate, columns)
    budget = budget.with_repeats(repeats.rounds, repeats.starts)
    _check_budget(budget, privacy, spec.rounds, noise)
    sums = PrivateSums(privacy.clip, noise, sampler.per_round, privacy.quantile, secret=secret)
    start = None
    if rate is not None:
        start = PrivateStart(noise * privacy.start_noise, rate, len(sampler.clients))
    method = make_private(method, sums, start, privacy.least_group)
    return replace(spec, algorithm=as_algorithm(method), sampler=sampler, budget=budget)


def _check_clients(spec: RunSpec) -> None:
    """Refuse what lets one client change how others count, or how many do.

    Raises:
        ConfigError: naming the first of them.
    """
    what = {
        "bounds": "compare clients with each other",
        "attack": "attackers send what they know of others' updates",
        "shift": "moves data between clients",
        "quorum": "a round that does not count tells how many clients replied",
    }
    given = {
        "bounds": spec.bounds.enabled,
        "attack": spec.attack is not None,
        "shift": spec.shift is not None,
        "quorum": spec.quorum.min_replies > 1,
    }
    for name, reason in what.items():
        if given[name]:
            refuse(Problem(name, reason, getattr(spec, name), "none with privacy"))


def _random_sampler(spec: RunSpec, privacy: Privacy) -> Sampler:
    """The sampler of cohorts, if it is one that the accountant knows."""
    sampler = spec.sampler
    # A function of the user's own may draw as it likes, and the first rounds of the default sampler
    # are no draw at all: in both an accountant would count an amplification that is not there.
    if not isinstance(sampler, Sampler) or sampler.kind == "cover_then_uniform":
        got = "a function"
        if isinstance(sampler, Sampler):
            got = repr(sampler.kind)
        raise ConfigError(
            f"train.sampler: [privacy] needs cohorts that are drawn at random, got {got}; "
            "expected 'poisson' or 'uniform'"
        )
    if sampler.kind == "uniform" and privacy.accountant == "pld":
        raise ConfigError(
            "privacy.accountant: knows no sampling without replacement, got 'pld'; expected 'rdp', "
            "or train.sampler 'poisson'"
        )
    # A client that can be reached is then drawn more often than the `n` of `N` that is counted.
    if sampler.kind == "uniform" and spec.participation.availability is not None:
        raise ConfigError(
            "availability: cohorts of a fixed size are drawn from fewer clients than are counted, got "
            "train.sampler 'uniform'; expected 'poisson', or no [availability]"
        )
    return sampler


def _start_rate(method: Method, sampler: Sampler) -> float | None:
    """The probability with which a client takes part in a cold start; ``None`` where there is none.

    Raises:
        ConfigError: for cohorts of a fixed size, which are counted in another way.
    """
    size = start_size(method)
    if size is None:
        return None
    if sampler.kind != "poisson":
        raise ConfigError(
            "train.sampler: a private cold start draws clients one by one, and cannot be counted "
            f"together with other cohorts, got {sampler.kind!r}; expected 'poisson'"
        )
    return min(1.0, size / len(sampler.clients))


def _plan(
    privacy: Privacy,
    sampler: Sampler,
    rounds: int,
    start_rate: float | None,
    columns: Release | None,
) -> tuple[float, Budget]:
    """The noise of a round, and what the rounds spend.

    Args:
        privacy: what is asked for.
        sampler: of the cohorts.
        rounds: of the run.
        start_rate: of a cold start, ``None``: there is none.
        columns: the description of a table's columns, ``None``: it has no noise.

    Raises:
        PrivacyError: if that description alone costs more than allowed.
    """
    # One client more or less moves the sums by a clip, one in the place of another by two.
    if sampler.kind == "poisson":
        unit = Release(1.0, sampler.rate)
    else:
        population = len(sampler.clients)
        unit = Release(1 / 2, (min(sampler.per_round, population), population))
    start: tuple[Release, ...] = ()
    if start_rate is not None:
        start = (Release(privacy.start_noise, start_rate),)
    described: tuple[Release, ...] = ()
    if columns is not None:
        if privacy.epsilon is not None:
            check_cost(columns, privacy.epsilon, privacy.delta, privacy.accountant)
        described = (columns,)
    noise = privacy.noise
    if noise is None:
        assert privacy.epsilon is not None
        all_of_it = (*start, replace(unit, count=rounds))
        noise = least_noise(
            all_of_it, privacy.epsilon, privacy.delta, privacy.accountant, described
        )
    each = replace(unit, noise=noise * unit.noise)
    before = tuple(replace(one, noise=noise * one.noise) for one in start)
    return noise, Budget(each, privacy.delta, privacy.accountant, (*described, *before))


def _check_budget(budget: Budget, privacy: Privacy, rounds: int, noise: float) -> None:
    # A noise without a budget: the rows say what it costs.
    if privacy.epsilon is None:
        return
    spent = budget.epsilon(rounds)
    if spent <= privacy.epsilon * (1 + _ROUNDING):
        return
    expected = f"at least {spent:.4g}, fewer rounds, or more noise"
    if budget.repeated:
        expected = "a run that was not stopped while its models were sent"
    again = f" and {budget.repeated} done again" if budget.repeated else ""
    raise PrivacyError(
        f"privacy.epsilon: {rounds} rounds{again} with noise {noise:g} cost {spent:.4g} at delta "
        f"{privacy.delta:g}, got {privacy.epsilon:g}; expected {expected}"
    )
