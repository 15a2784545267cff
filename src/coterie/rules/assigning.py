"""The first slot of a method: who trains from which model, and after whom?"""

from __future__ import annotations

from collections.abc import Callable

from coterie.clients.round import Round
from coterie.core.groups import Groups
from coterie.core.plan import Plan

Assign = Callable[[Groups, Round], tuple[Groups, Plan]]


class PlacesClients:
    """Marks an assign rule that gives a group to every client of a cohort that has none.

    Newcomers are such clients. Clients whose data drifted become such clients when they lose their
    group, so migration needs a rule with this mark.
    """
