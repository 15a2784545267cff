"""Which methods ordinary clients can carry out, and how a method is fitted to their arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg

from coterie.algorithms.stocfl import PulledToGlobal
from coterie.clients.bounds import Bounds
from coterie.clients.cohort import Quorum
from coterie.core import Describe
from coterie.core.training import WithOwnModel
from coterie.core.traits import of_traits, refuse_traits
from coterie.core.vectors import Layout
from coterie.core.work import Train
from coterie.errors import ConfigError
from coterie.methods.algorithm import Algorithm, InitAndStep, as_algorithm, method_of, with_method
from coterie.methods.fit_to_model import check_records, on_parameters
from coterie.methods.method import Method
from coterie.methods.traits import traits_of

FirstModel = Callable[[int], ArrayRecord]
# What an ordinary ClientApp does not do, and what it would have to offer.
_EXPECTED = "a method whose clients only train and evaluate models"
_ORDINARY_CLIENTS = of_traits(
    "method",
    _EXPECTED,
    {
        "data": "brings all training data to one place",
        "mixture": "clients would have to train several models on weighted samples",
        "own_model": "clients would have to keep and train their own model",
        "keeps_layers": "clients would have to keep layers: with ct.fedavg(), the mod "
        "keep_layers of coterie.flower.client_mods does this",
        "phases": "clients would have to train layers one after another",
        "full_gradient": "clients would have to send one gradient of their whole loss",
    },
)
_COUNTS = "of their labels, which is set by classes and the mod count_labels"
_WITHOUT_COUNTS = of_traits(
    "method",
    _EXPECTED,
    {
        "class_labels": f"clients would have to send counts {_COUNTS}",
        "migrates": f"drift is found by counts {_COUNTS}",
    },
)
_MORE_THAN_COUNTS = of_traits(
    "method",
    _EXPECTED,
    {"class_labels": "clients would have to tell more of their data than counts of their labels"},
)


class WithMethod(FedAvg):
    """Flower's ``FedAvg`` with the attributes of `coterie.flower.ClusteredStrategy`."""

    algorithm: Algorithm
    classes: int
    first_models: FirstModel | None
    max_nodes: int | None
    quorum: Quorum
    bounds: Bounds
    seed: int


def checked_method(method: Method | Algorithm | InitAndStep, classes: int) -> Algorithm:
    """The method as an algorithm, if ordinary clients can do what it asks of them.

    Args:
        classes: of the labels that clients count; 0: they do not.
    """
    if isinstance(method, str) or callable(method):
        found = method if isinstance(method, str) else getattr(method, "__name__", "a function")
        allowed = "a method, such as coterie.fedgroup(groups=3)"
        raise ConfigError("wrong-type", "method", found=found, allowed=allowed)
    # The request of the counts, which checks the number.
    Describe("histogram", classes)
    algorithm = as_algorithm(method)
    check_records(algorithm)
    name = "a method"
    slots = method_of(algorithm)
    if slots is not None:
        name = str((slots.made_by or {}).get("name", name))
    # Without its pull, what StoCFL's clients do is an ordinary training.
    if slots is not None and slots.local == Train(how=WithOwnModel(PulledToGlobal(lam=0.0))):
        slots = replace(slots, local=Train())
        algorithm = as_algorithm(with_method(algorithm, slots))
    traits = traits_of(algorithm)
    refuse_traits(_ORDINARY_CLIENTS, traits, name)
    # Chains are made of counts; other statistics of labelled data are more than these.
    if "statistics" in traits and "chains" not in traits:
        refuse_traits(_MORE_THAN_COUNTS, traits, name)
    if not classes:
        refuse_traits(_WITHOUT_COUNTS, traits, name)
    if slots is not None and getattr(slots.local.objective, "form", "") != "cross_entropy":
        what = f"{name} uses its own loss, which this ClientApp does not compute"
        raise ConfigError("does-not-fit", "method", what)
    return algorithm


def fitted(algorithm: Algorithm, layout: Layout) -> Algorithm:
    """The algorithm with a server that averages running statistics."""
    slots = method_of(algorithm)
    parameters = sum(layout.sizes[: layout.trainable])
    if slots is None or parameters == layout.d:
        return algorithm
    server = on_parameters(slots.server, parameters)
    return as_algorithm(with_method(algorithm, replace(slots, server=server)))
