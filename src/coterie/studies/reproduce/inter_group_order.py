"""FlexCFL whose models are scored before they pull on each other.

In the authors' code, as in `coterie.flexcfl`, a round trains, lets the models of all groups pull on
each other, and then scores them. This variant tests whether a printed value fits the other order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from coterie import algorithms
from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core.groups import Groups
from coterie.core.plan import Plan
from coterie.methods.method import Method
from coterie.rules.assigning import Assign, PlacesClients
from coterie.rules.inter_group import InterGroupStep


@dataclass(frozen=True)
class StepFirst(PlacesClients):
    """An assign rule that lets the models pull on each other at the start of a round."""

    assign: Assign
    step: InterGroupStep

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        # Before the first round there are no group models yet: the cold start makes them.
        if round.number > 0:
            groups = self.step(groups)
        return self.assign(groups, round)


@validated
def flexcfl(
    groups: Annotated[int, Field(ge=1)] = 3,
    alpha: Annotated[int, Field(ge=1)] = 20,
    eta_g: Annotated[float, Field(gt=0)] = 5.0,
) -> Method:
    """FlexCFL with the inter-group step after the scoring of a round, before the next one.

    In a configuration: ``algorithm.name = "coterie.studies.reproduce.inter_group_order:flexcfl"``,
    with the detector in ``[migration]``.

    Args:
        groups: number of groups ``m``.
        alpha: ``alpha * m`` clients take part in the group cold start.
        eta_g: inter-group rate of the rule ``convex``.
    """
    plain = algorithms.flexcfl(groups=groups, alpha=alpha, migration="none")
    return replace(plain, assign=StepFirst(plain.assign, InterGroupStep(eta_g, "convex")))
