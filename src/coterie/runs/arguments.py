"""Arguments of ``coterie.run`` as what a run is made of: rules of names, samplers, bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast, get_args

from coterie.clients.bounds import Bounds
from coterie.clients.cohort import SamplerName
from coterie.config import registry
from coterie.config.kinds import KINDS
from coterie.config.problems import Problem, refuse
from coterie.config.wording import describe_type, nearest
from coterie.core.objective import Objective
from coterie.core.own_model import OwnModel
from coterie.data.population import Population
from coterie.data.shifts import Shift, make_shift
from coterie.measures.optional import Measure, make_measures
from coterie.methods.algorithm import Algorithm
from coterie.methods.method import Method
from coterie.methods.override import override
from coterie.rules.migration import Detector, Migration
from coterie.rules.server import Server
from coterie.rules.weighing import Weigh
from coterie.runs.fitting import Fitted
from coterie.runs.spec import CohortSampler, cohort_sampler

RuleKind = Literal["server", "weigh", "objective", "own_model"]


def with_rules(
    method: Method | Algorithm,
    server: Server | str | None,
    weigh: Weigh | str | None,
    objective: Objective | str | None,
    migration: Migration | Detector | None,
    personal: Sequence[str],
    own_model: OwnModel | str | None,
) -> Method | Algorithm:
    """The method with these rules in place of its own; ``None`` leaves its own."""
    return override(
        method,
        type(method).__name__,
        server=named("server", server),
        weigh=named("weigh", weigh),
        objective=named("objective", objective),
        migration=Migration(migration) if isinstance(migration, str) else migration,
        personal=personal,
        own_model=named("own_model", own_model),
    )


def bounds_of(bounds: Bounds | bool | None, *, private: bool) -> Bounds:
    """How far one client may be from the others."""
    if bounds is None:
        bounds = not private
    if isinstance(bounds, bool):
        return Bounds(enabled=bounds)
    return bounds


def sampler_of(
    sampler: CohortSampler | str | None,
    data: Population,
    per_round: int,
    seed: int,
    *,
    shifts: bool,
    private: bool,
    unseen: Sequence[int] = (),
) -> CohortSampler:
    """Which clients are asked in a round."""
    if sampler is not None and not isinstance(sampler, str):
        return sampler
    name = sampler or "cover_then_uniform"
    if sampler is None and private:
        name = "poisson"
    if name not in get_args(SamplerName):
        expected = f"{describe_type(SamplerName)}, or a function of the round"
        refuse(Problem("sampler", "unknown choice", name, expected))
    return cohort_sampler(
        cast(SamplerName, name), data, per_round, seed, shifts=shifts, unseen=unseen
    )


def made_shift(shift: Any) -> Shift | None:
    """The shift of a name, of a table or of several; what is made already as it is."""
    if isinstance(shift, str):
        shift = {"kind": shift}
    if isinstance(shift, Mapping):
        shift = [shift]
    if isinstance(shift, Sequence):
        return make_shift(shift)
    made: Shift | None = shift
    return made


def measures_of(measures: Sequence[Measure | str], fitted: Fitted) -> tuple[Measure, ...]:
    """Measures, those of a name made for a run."""
    found: list[Measure] = []
    for one in measures:
        if isinstance(one, str):
            found += make_measures((one,), fitted.local, fitted.algorithm, fitted.task)
        else:
            found.append(one)
    return tuple(found)


def named(kind: RuleKind | Literal["attack", "task"], value: Any) -> Any:
    """What a name makes, with the defaults of its options, or a table of a name and options; what
    is made already as it is."""
    if isinstance(value, Mapping):
        return registry.build(kind, value)
    if not isinstance(value, str):
        return value
    check_choice(kind, kind, value, ", or a rule of coterie's")
    return registry.build(kind, {KINDS[kind].selector: value})


def check_choice(argument: str, kind: str, name: str, or_else: str = "") -> None:
    """Refuse a name that is not registered."""
    known = registry.names(kind)
    if name not in known:
        expected = f"{describe_type(Literal[known])}{or_else}"
        refuse(Problem(argument, "unknown choice", name, expected, nearest(name, known)))
