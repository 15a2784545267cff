"""When the server of a method needs the updates of single clients, and not only their sums.

A sum of each group's updates is what secure aggregation would let a server see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from coterie.core.own_model import SendsBeside
from coterie.methods.method import Method
from coterie.rules.soft_groups import ByShare
from coterie.rules.weighing import WeighsAlone

Occasion = Literal[
    "start", "newcomers", "chains", "data", "grouping", "beside", "weights", "shares"
]
# In every round; the others only now and then.
IN_ROUNDS: tuple[Occasion, ...] = ("chains", "grouping", "beside", "weights", "shares")
# In the order in which a run comes to them.
WORDS: Mapping[Occasion, str] = {
    "start": "before the first groups",
    "newcomers": "of clients that join later",
    "chains": "a model passes from client to client",
    "grouping": "updates decide the groups",
    "beside": "each moves the vector beside the model by its own number of steps",
    "weights": "weights depend on other replies",
    "shares": "a reply counts for several models",
    "data": "all data are in one place",
}


def single_updates(method: Method) -> tuple[Occasion, ...]:
    """When the server needs updates of single clients; empty where the weighted sum of each group's
    updates, and the sum of their weights, are enough.

    What the rules `recluster` and `weigh` read follows from them. What `assign` reads is declared by
    the method (``Method.reads``); a method that declares nothing is taken to read updates before its
    first groups and those of newcomers. Bounds that compare norms of updates are an
    option of a run and are not counted here.

    Args:
        method: the method.

    Example:
        >>> from coterie.algorithms import fedavg, fedgroup, ida
        >>> single_updates(fedavg()), single_updates(fedgroup()), single_updates(ida())
        ((), ('start',), ('weights',))
    """
    found: set[str] = {"start", "newcomers"}
    if method.reads is not None:
        found = set(method.reads)
    if method.recluster is not None:
        moves_beside = isinstance(method.local.own_model, SendsBeside)
        found.add("beside" if moves_beside else "grouping")
    # A client adds to one sum in secure aggregation, and would have to add to each model's.
    if isinstance(method.weigh, ByShare):
        found.add("shares")
    # By its own samples alone, a client can multiply its update before it is added to the others.
    elif not (isinstance(method.weigh, WeighsAlone) and method.aggregate.sums):
        found.add("weights")
    return tuple(occasion for occasion in WORDS if occasion in found)
