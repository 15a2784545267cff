"""The methods whose clients keep a part of the model."""

from __future__ import annotations

from common import one_model
from panels import Arrow, Directions, Figure, Step


def _averages(shared: str, own: str) -> Step:
    return Step(
        "The server averages",
        Directions(
            (
                Arrow(78, 0.85, 0, "$Δ_1$"),
                Arrow(-4, 1.05, 0, "$Δ_2$"),
                Arrow(-44, 0.65, 0, "$Δ_3$"),
                Arrow(20, 0.68, 1, "$w_{t+1}$", bold=True),
            ),
            origin="$w_t$",
            at=(0.32, 0.58),
        ),
        f"The {shared} move by the mean of the updates. The server never sees the {own}.",
    )


def _kept(name: str, title: str, shared: str, own: str) -> Figure:
    """A method whose clients send a part of the model and keep the rest.

    Args:
        name: of the method.
        title: read aloud by screen readers.
        shared: the layers that are sent.
        own: the layers that stay.
    """
    return Figure(
        name,
        title,
        (
            Step(
                "A round: the cohort trains",
                one_model(f"update of the {shared}, $n_i$", f"the {shared}"),
                f"Each client trains the {shared} with its own {own}, and keeps its own {own}.",
            ),
            _averages(shared, own),
        ),
    )


FEDPER = _kept(
    "fedper",
    "FedPer: clients send all layers except the classifier, and each keeps its own classifier.",
    "lower layers",
    "classifier",
)
LG_FEDAVG = _kept(
    "lg_fedavg",
    "LG-FedAvg: clients send only the weights of the classifier, and each keeps its own features.",
    "classifier's weights",
    "features",
)
FEDBN = _kept(
    "fedbn",
    "FedBN: clients send all layers except normalisation, and each keeps its own normalisation.",
    "other layers",
    "normalisation",
)
FEDREP = Figure(
    "fedrep",
    "FedRep: each client trains its own head first, then the shared layers. Only these are sent.",
    (
        Step(
            "A round: the cohort trains",
            one_model("update of the lower layers, $n_i$", "the lower layers"),
            "First a client trains only its own head, then the lower layers below this head.",
        ),
        _averages("lower layers", "heads"),
    ),
)
