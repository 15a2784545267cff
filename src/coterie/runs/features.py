"""A run with asynchronous rounds, with noised sums of updates, or with sums as secure aggregation
computes them."""

from __future__ import annotations

from dataclasses import replace

from coterie.data.population import Population
from coterie.errors import ConfigError
from coterie.methods.algorithm import Algorithm, as_algorithm
from coterie.methods.buffered import Buffering
from coterie.methods.override import with_buffer
from coterie.privacy.accounting import Release, check_package
from coterie.privacy.private import (
    Privacy,
    Repeats,
    check_columns,
    check_private,
    make_private,
    random_cohorts,
)
from coterie.privacy.secure_sums import SecureSums, make_secure
from coterie.runs.spec import RunSpec


def asynchronous_spec(spec: RunSpec, rule: Buffering | None, name: str = "method") -> RunSpec:
    """The same run with asynchronous rounds, where there is a rule of when models move."""
    if rule is None:
        return spec
    if rule.buffer > rule.concurrency:
        expected = f"at most {rule.concurrency} (train.clients_per_round)"
        what = "more updates than clients train at a time"
        raise ConfigError(
            "out-of-range", "asynchronous.buffer", what, got=rule.buffer, allowed=expected
        )
    return replace(spec, algorithm=with_buffer(spec.algorithm, rule, name))


def check_over_selection(algorithm: Algorithm, over_selection: float, name: str) -> None:
    """Refuse more clients than are needed where the method, called ``name``, draws its clients itself."""
    if over_selection > 1 and algorithm.samples_cohort:
        what = f"{name!r} samples its clients itself"
        raise ConfigError(
            "does-not-fit",
            "train.over_selection",
            what,
            got=over_selection,
            allowed="1 with this method",
        )


def private_spec(
    spec: RunSpec,
    privacy: Privacy | None,
    name: str = "method",
    repeats: Repeats = Repeats(),
) -> RunSpec:
    """The same run with noised sums in place of what its server computes of single updates, if
    ``privacy`` asks for it."""
    columns = _columns_release(spec.population)
    if privacy is None:
        if columns is not None:
            what = "is counted by a budget, and without [privacy] there is none"
            raise ConfigError(
                "in-conflict",
                "data.encode.noise",
                what,
                got=columns.noise,
                allowed="[privacy], or no noise",
            )
        return spec
    check_package()
    schedule = spec.schedule
    sampler = random_cohorts(schedule.sampler, privacy)
    # A client that can be reached is drawn more often than the `n` of `N` that is counted.
    if sampler.kind == "uniform" and schedule.participation.availability is not None:
        what = "cohorts of a fixed size are drawn from fewer clients than are counted"
        expected = "train.sampler 'poisson', or no [availability]"
        raise ConfigError("in-conflict", "availability", what, got=sampler.kind, allowed=expected)
    if columns is not None:
        check_columns(columns, sampler, privacy)
    # Of the method first: that it needs single updates is said before any noise is computed.
    method = check_private(spec.algorithm, name)
    method, sampler, budget = make_private(
        method, privacy, sampler, schedule.rounds, schedule.key.seed, columns, repeats
    )
    schedule = replace(schedule, sampler=sampler, budget=budget)
    return replace(spec, algorithm=as_algorithm(method), schedule=schedule)


def secure_spec(spec: RunSpec, sums: SecureSums | None, name: str = "method") -> RunSpec:
    """The same run with sums as secure aggregation computes them, where that is asked for."""
    if sums is None:
        return spec
    return replace(spec, algorithm=as_algorithm(make_secure(spec.algorithm, sums, name)))


def _columns_release(population: Population) -> Release | None:
    """What the description of a table's columns releases; ``None`` without noise or a table."""
    if population.table is None or population.table.raw.encode.noise is None:
        return None
    # All clients take part in it, so nothing is gained by sampling.
    return Release(population.table.raw.encode.noise)
