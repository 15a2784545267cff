"""A run with asynchronous rounds, with noised sums of updates, or with sums as secure aggregation
computes them."""

from __future__ import annotations

from dataclasses import replace

from coterie.clients.cohort import Sampler
from coterie.core.keys import Key
from coterie.data.population import Population
from coterie.errors import ConfigError
from coterie.methods.algorithm import as_algorithm, method_of
from coterie.methods.buffered import Buffering
from coterie.methods.override import with_buffer
from coterie.privacy.accounting import Release, check_package
from coterie.privacy.private import Privacy, Repeats, make_private
from coterie.privacy.secure_sums import SecureSums, make_secure
from coterie.runs.spec import RunSpec


def asynchronous_spec(spec: RunSpec, rule: Buffering | None) -> RunSpec:
    """The same run with asynchronous rounds, where there is a rule of when models move."""
    if rule is None:
        return spec
    if rule.buffer > rule.concurrency:
        expected = f"at most {rule.concurrency} (train.clients_per_round)"
        what = "more updates than clients that train at the same time"
        raise ConfigError(
            "out-of-range", "asynchronous.buffer", what, got=rule.buffer, allowed=expected
        )
    return replace(spec, algorithm=with_buffer(spec.algorithm, rule))


def private_spec(
    spec: RunSpec, privacy: Privacy | None, repeats: Repeats = Repeats(), secret: Key | None = None
) -> RunSpec:
    """The same run with noised sums in place of what its server computes of single updates, if
    ``privacy`` asks for it."""
    if privacy is None:
        return spec
    check_package()
    schedule = spec.schedule
    method = method_of(spec.algorithm)
    assert method is not None
    assert isinstance(schedule.sampler, Sampler)
    columns = _columns_release(spec.population)
    method, sampler, budget = make_private(
        method,
        privacy,
        schedule.sampler,
        schedule.rounds,
        schedule.key.seed,
        columns,
        repeats,
        secret,
    )
    schedule = replace(schedule, sampler=sampler, budget=budget)
    return replace(spec, algorithm=as_algorithm(method), schedule=schedule)


def secure_spec(spec: RunSpec, sums: SecureSums | None) -> RunSpec:
    """The same run with sums as secure aggregation computes them, where that is asked for."""
    if sums is None:
        return spec
    method = method_of(spec.algorithm)
    assert method is not None
    return replace(spec, algorithm=as_algorithm(make_secure(method, sums)))


def _columns_release(population: Population) -> Release | None:
    """What the description of a table's columns releases; ``None`` without noise or a table."""
    if population.table is None or population.table.raw.encode.noise is None:
        return None
    # All clients take part in it, so nothing is gained by sampling.
    return Release(population.table.raw.encode.noise)
