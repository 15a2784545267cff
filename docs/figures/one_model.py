"""The methods that train one model: who trains from what, and what is sent."""

from __future__ import annotations

from charts import Bars, Blocks, Box, Chains, Sorting
from common import COHORT, GROUPED_ARROWS, ONE_MODEL, one_model
from panels import IDLE, Arrow, Client, Directions, Exchange, Figure, Mark, Plane, Route, Step

FEDAVG = Figure(
    "fedavg",
    "FedAvg: a cohort trains one model; the server averages the updates.",
    (
        COHORT,
        Step(
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
            "The model moves by the mean of the updates. A client with more samples counts more.",
        ),
    ),
)

# Receives nothing, and sends no model.
ALONE = Client(receives=(), sends=None)

LOCAL = Figure(
    "local",
    "Local training: every client trains its own model, and nothing is sent.",
    (
        Step(
            "A round: the cohort trains",
            Exchange((), (ALONE, IDLE, ALONE, ALONE, IDLE), "nothing", "sample count $n_i$, loss"),
            "Each client trains its own model on its own data and keeps it.",
        ),
        Step(
            "Models drift apart",
            Directions(
                (
                    Arrow(78, 0.85, 1, "$w_1$"),
                    Arrow(-4, 1.05, 2, "$w_3$"),
                    Arrow(-44, 0.65, 3, "$w_4$"),
                ),
                origin="$w_0$",
                at=(0.32, 0.58),
            ),
            "All start from the same weights. Nothing is averaged.",
        ),
    ),
)

GIVES = Client(receives=())

POOLED = Figure(
    "pooled",
    "Pooled training: all training data are in one place, and one model is trained on them.",
    (
        Step(
            "Once: data are collected",
            Exchange(ONE_MODEL, (GIVES,) * 5, "nothing", "all training data"),
            "All clients' training data leave them. No federated method does this.",
        ),
        Step(
            "A round: one model trains",
            Directions(
                (Arrow(20, 0.9, 1, "$w_{t+1}$", bold=True),),
                origin="$w_t$",
                at=(0.32, 0.58),
            ),
            "It takes as many steps as a cohort takes on average, one after another.",
        ),
    ),
)

FEDPROX = Figure(
    "fedprox",
    "FedProx: as FedAvg, but a client's training is pulled back to the model that it received.",
    (
        COHORT,
        Step(
            "Inside a client",
            Plane(
                marks=(
                    Mark((0.31, 0.6), 0, "$w_t$", centre=True, below=True),
                    Mark((0.9, 0.16), 2, "", radius=7),
                    Mark((0.55, 0.42), 1, "", radius=7),
                ),
                routes=(
                    Route(((0.31, 0.54), (0.36, 0.24), (0.58, 0.2), (0.86, 0.16)), 2, dashed=True),
                    Route(((0.33, 0.56), (0.38, 0.42), (0.44, 0.38), (0.51, 0.41)), 1, width=2.4),
                ),
                rings=(((0.31, 0.6), 64.0, 1),),
                notes=(((0.62, 0.07), "SGD alone"), ((0.61, 0.5), "with the term")),
            ),
            "The proximal term pulls every local step back towards $w_t$. Averaging is FedAvg's.",
        ),
    ),
)

FEDOPT = Figure(
    "fedopt",
    "FedOpt: the server treats the mean update as a gradient and takes an optimiser's step.",
    (
        COHORT,
        Step(
            "The server takes a step",
            Plane(
                marks=(
                    Mark((0.08, 0.85), 0, "$w_0$", centre=True),
                    Mark((0.93, 0.24), 0, "", hollow=True, radius=8),
                ),
                routes=(
                    Route(
                        (
                            (0.1, 0.8),
                            (0.16, 0.35),
                            (0.32, 0.74),
                            (0.42, 0.3),
                            (0.56, 0.66),
                            (0.66, 0.28),
                            (0.8, 0.52),
                        ),
                        0,
                        dashed=True,
                    ),
                    Route(
                        ((0.11, 0.82), (0.26, 0.64), (0.44, 0.53), (0.66, 0.4), (0.88, 0.28)),
                        1,
                        width=2.4,
                    ),
                ),
                notes=(((0.08, 0.14), "adding the mean"), ((0.5, 0.78), "with an optimiser")),
            ),
            "It takes the mean update $D_t$ for a gradient. Momentum, Adagrad, Adam or Yogi make "
            "the step.",
        ),
    ),
)

IDA = Figure(
    "ida",
    "IDA: clients are weighted by the inverse of their distance from the average model.",
    (
        COHORT,
        Step(
            "The server weighs",
            Plane(
                marks=(
                    Mark((0.34, 0.4), 0, "", centre=True),
                    Mark((0.22, 0.2), 1, "", radius=11),
                    Mark((0.18, 0.56), 1, "", radius=12),
                    Mark((0.44, 0.66), 1, "", radius=11),
                    Mark((0.86, 0.26), 2, "", radius=4.5),
                ),
                routes=(
                    Route(((0.34, 0.4), (0.22, 0.2)), 1, dashed=True, head=False, width=1.1),
                    Route(((0.34, 0.4), (0.18, 0.56)), 1, dashed=True, head=False, width=1.1),
                    Route(((0.34, 0.4), (0.44, 0.66)), 1, dashed=True, head=False, width=1.1),
                    Route(((0.34, 0.4), (0.86, 0.26)), 2, dashed=True, head=False, width=1.1),
                ),
                notes=(
                    ((0.4, 0.52), "average"),
                    ((0.66, 0.4), "far: counts"),
                    ((0.66, 0.49), "little"),
                ),
            ),
            "A model near the plain average of all replies counts more than one far from it.",
        ),
    ),
)

FEDMMD = Figure(
    "fedmmd",
    "FedMMD: a client keeps its outputs like those of a frozen copy of the received model.",
    (
        COHORT,
        Step(
            "Inside a client",
            Blocks(
                boxes=(
                    Box((0.12, 0.5), "batch", 0, 48),
                    Box((0.47, 0.2), "received", 0, 72, dashed=True),
                    Box((0.47, 0.8), "training", 1, 72),
                    Box((0.85, 0.2), "outputs", None),
                    Box((0.85, 0.8), "outputs", None),
                    Box((0.85, 0.5), "MMD", 2, 48),
                    Box((0.47, 0.05), "frozen", None),
                ),
                links=(
                    ((0.24, 0.44), (0.3, 0.24)),
                    ((0.24, 0.56), (0.3, 0.76)),
                    ((0.64, 0.2), (0.72, 0.2)),
                    ((0.64, 0.8), (0.72, 0.8)),
                    ((0.85, 0.26), (0.85, 0.41)),
                    ((0.85, 0.74), (0.85, 0.59)),
                ),
            ),
            "The loss has a second term: the distance between the two distributions of outputs.",
        ),
    ),
)

FEDFUSION = Figure(
    "fedfusion",
    "FedFusion: a client fuses the features of the model it received with those it trains.",
    (
        Step(
            "A round: the cohort trains",
            one_model(up="update with $F$'s parameters"),
            "As in FedAvg. The operator $F$ is part of the model: it is trained, sent and "
            "averaged, too.",
        ),
        Step(
            "Inside a client",
            Blocks(
                boxes=(
                    Box((0.09, 0.5), "$x$", 0, 28),
                    Box((0.37, 0.2), "$E_g$", 0, 62, dashed=True),
                    Box((0.37, 0.8), "$E_l$", 1, 62),
                    Box((0.63, 0.5), "$F$", 2, 36),
                    Box((0.89, 0.5), "rest $h$", 1, 50),
                    Box((0.37, 0.05), "received, frozen", None),
                    Box((0.37, 0.95), "in training", None),
                ),
                links=(
                    ((0.15, 0.44), (0.22, 0.24)),
                    ((0.15, 0.56), (0.22, 0.76)),
                    ((0.52, 0.24), (0.6, 0.41)),
                    ((0.52, 0.76), (0.6, 0.59)),
                    ((0.71, 0.5), (0.77, 0.5)),
                ),
            ),
            "Both extractors see the batch. $F$ fuses their features for the rest of the network.",
        ),
    ),
)

RFEDAVG = Figure(
    "rfedavg",
    "RFedAvg: similar updates are clustered; clusters are weighted against class imbalance.",
    (
        Step(
            "A round: the cohort trains",
            one_model(up="$Δ_i$, $n_i$, loss, imbalance $I_i$"),
            "Devices send the loss of the model on their data, and how unbalanced their labels "
            "are.",
        ),
        Step(
            "Cluster like updates",
            Directions(
                (*GROUPED_ARROWS, Arrow(185, 0.75, 3)),
                origin="",
                cones=((50, 100, 1), (-38, 16, 2), (175, 195, 3)),
                at=(0.48, 0.62),
            ),
            "In every round. The smaller the loss, the wider the angle of a cluster.",
        ),
        Step(
            "Clusters count alike",
            Bars(
                (
                    ("devices", (0.9, 0.9, 0.3), (1, 2, 3)),
                    ("weight", (0.5, 0.5, 0.52), (1, 2, 3)),
                ),
            ),
            "The one model moves by the weighted mean of the clusters. A rare class has more "
            "weight.",
        ),
    ),
)

ALIKE = (((1,), (1,), (1, 2)), ((2,), (2, 3), (3,)), ((4,), (4,), (4,)))

MIXED = (((1,), (2, 3), (4,)), ((4,), (1,), (2,)), ((3,), (1, 2), (4,)))

COHORT_OF_MANY = (((1,), (4,), (2, 3)), ((4,), (2,), (1,)), ((1, 2), (4,), (3,)))

FEDGSP = Figure(
    "fedgsp",
    "FedGSP: clients train in sequence in groups with similar label distributions.",
    (
        Step(
            "Groups with like mixes",
            Sorting(ALIKE, MIXED, ("clusters: alike", "groups: mixed")),
            "Clients with similar labels are clustered. A group takes one client of each cluster.",
        ),
        Step(
            "Chains inside groups",
            Chains(MIXED),
            "In a group, clients train one after another. Groups run side by side; their ends are "
            "averaged.",
        ),
        Step(
            "More groups over rounds",
            Bars(
                (("number of groups", (0.15, 0.33, 0.5, 0.62, 0.72, 0.8), (0, 0, 0, 0, 0, 0)),),
                note="rounds →",
            ),
            "Few long chains at first, many short ones later, up to FedAvg.",
        ),
    ),
)

ASTRAEA = Figure(
    "astraea",
    "Astraea: clients train in sequence under mediators with nearly uniform labels.",
    (
        Step(
            "Deal the cohort",
            Sorting(COHORT_OF_MANY, MIXED, ("the cohort", "mediators")),
            "A mediator takes the client that makes its label counts most even, up to $γ$ clients.",
        ),
        Step(
            "Chains under mediators",
            Chains(MIXED),
            "Under a mediator, clients train one after another. The ends are averaged by sample "
            "counts.",
        ),
    ),
)
