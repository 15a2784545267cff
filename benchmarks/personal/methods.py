"""The methods that are compared, each with the parameters of its own that its paper or code has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import coterie as ct
from benchmarks.personal.federations import Federation
from coterie.algorithms.local import local
from coterie.methods.method import Method


@dataclass(frozen=True)
class Entry:
    """A line of the tables.

    Args:
        make: the method for a federation.
        personal: layers that stay with a client, in any method.
        normalised: whether the network has batch normalisation.
        several_models: whether a client predicts with several models. Then it is scored neither
            after adaptation nor as a newcomer.
    """

    make: Callable[[Federation], Method]
    personal: tuple[str, ...] = ()
    normalised: bool = False
    several_models: bool = False


def _fedgroup(federation: Federation) -> Method:
    """FedGroup whose cold start has as many clients as a round can have."""
    alpha = federation.per_round // federation.groups
    return ct.fedgroup(groups=federation.groups, alpha=alpha, on_shortage="fewer")


def _ifca(federation: Federation) -> Method:
    return ct.ifca(groups=federation.groups)


METHODS: dict[str, Entry] = {
    "Local": Entry(lambda _: local()),
    "FedAvg": Entry(lambda _: ct.fedavg()),
    "FedPer": Entry(lambda _: ct.fedper()),
    "FedRep": Entry(lambda _: ct.fedrep()),
    "Ditto": Entry(lambda _: ct.ditto()),
    "APFL": Entry(lambda _: ct.apfl()),
    "pFedMe": Entry(lambda _: ct.pfedme()),
    "Per-FedAvg": Entry(lambda _: ct.perfedavg()),
    "FedALA": Entry(lambda _: ct.fedala()),
    "SCAFFOLD": Entry(lambda _: ct.scaffold()),
    "MOON": Entry(lambda _: ct.moon()),
    "FedGroup": Entry(_fedgroup),
    "IFCA": Entry(_ifca),
    "FedClust": Entry(lambda _: ct.fedclust()),
    "FedSoft": Entry(lambda federation: ct.fedsoft(groups=federation.groups)),
    "FedEM": Entry(lambda federation: ct.fedem(groups=federation.groups), several_models=True),
    "FedGroup + personal head": Entry(_fedgroup, personal=("head",)),
    "IFCA + personal head": Entry(_ifca, personal=("head",)),
    "FedAvg, batch norm": Entry(lambda _: ct.fedavg(), normalised=True),
    "FedBN": Entry(lambda _: ct.fedbn(), normalised=True),
}
