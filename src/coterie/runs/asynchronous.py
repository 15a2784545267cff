"""A run with asynchronous rounds, or with rounds that wait for the first replies alone."""

from __future__ import annotations

from dataclasses import replace

from coterie.config.problems import Problem, refuse
from coterie.methods.algorithm import Algorithm
from coterie.methods.buffered import Buffering
from coterie.methods.override import with_buffer
from coterie.runs.spec import RunSpec


def asynchronous_spec(spec: RunSpec, rule: Buffering | None, name: str = "method") -> RunSpec:
    """The same run with asynchronous rounds.

    Args:
        spec: of the run.
        rule: when models move; ``None``: the run stays as it is.
        name: what to call the method in an error.

    Raises:
        ConfigError: for a method that needs all replies of a round, and for a buffer that so many
            clients at a time would not fill.
    """
    if rule is None:
        return spec
    if rule.buffer > rule.concurrency:
        expected = f"at most {rule.concurrency} (train.clients_per_round)"
        what = "more updates than clients train at a time"
        refuse(Problem("asynchronous.buffer", what, rule.buffer, expected))
    return replace(spec, algorithm=with_buffer(spec.algorithm, rule, name))


def check_over_selection(algorithm: Algorithm, over_selection: float, name: str) -> None:
    """Refuse more clients than are needed where the method, called ``name``, draws its clients itself.

    Raises:
        ConfigError: for such a method.
    """
    if over_selection > 1 and algorithm.samples_cohort:
        what = f"{name!r} samples its clients itself"
        refuse(Problem("train.over_selection", what, over_selection, "1 with this method"))
