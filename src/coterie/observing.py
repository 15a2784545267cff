"""Optional measures of a run, ``[train] measures = [...]``: each adds its own fields to every row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coterie.rounds import Look, Measure
from coterie.theory import Constants, bound, gradient_divergence
from coterie.types import Solver

MeasureFactory = Callable[[Solver, Mapping[str, Any]], Measure]


def theory(solver: Solver, options: Mapping[str, Any]) -> Measure:
    """The divergence of Definition 2 at the current models and, for logistic regression, the bound of eq. 19 or 22.

    Adds ``theory``: ``divergence`` with these groups, ``divergence_one`` as if all were one group served by the mean of
    their models, and the ``bound`` of each (``None`` for a network that is not convex).
    """
    eta_g = float(options.get("eta_g", 0.0))

    def measure(look: Look) -> Mapping[str, Any]:
        found: dict[str, Any] = {"bound": None, "bound_one": None}
        groups = look.groups
        one = groups.together()
        found["divergence"] = gradient_divergence(look.door, groups, look.key)
        found["divergence_one"] = gradient_divergence(look.door, one, look.key.of("one"))
        if groups.models.shape[1] == (look.door.features + 1) * look.door.classes:
            constants = Constants.of(look.population)
            found["bound"] = bound(found["divergence"], constants, solver, eta_g, groups.k)
            found["bound_one"] = bound(found["divergence_one"], constants, solver)
        return {"theory": found}

    return measure


MEASURES: Mapping[str, MeasureFactory] = {"theory": theory}


def make_measures(names: tuple[str, ...], solver: Solver, options: Mapping[str, Any]) -> tuple[Measure, ...]:
    """The measures of these names, for a run with this solver and these options of its algorithm."""
    return tuple(MEASURES[name](solver, options) for name in names)
