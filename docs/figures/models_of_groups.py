"""The methods with a model per group: who trains from what, and what is sent."""

from __future__ import annotations

from charts import Bars, Blocks, Box, Merge, Tree
from common import FROM_START, GROUPED_ARROWS, IN_GROUPS, TWO_GROUPS, grouped, member, one_model
from panels import IDLE, Arrow, Client, Directions, Exchange, Figure, Mark, Plane, Route, Step

FEDGROUP = Figure(
    "fedgroup",
    "FedGroup: directions of first updates are clustered; FedAvg runs in each group.",
    (
        Step(
            "Once: cold start",
            Exchange(
                FROM_START,
                (Client(), Client(), Client(), IDLE, Client()),
                "the first model $w_0$",
                "update of a short pre-training",
            ),
            "A sample of $αm$ clients trains briefly from the same model.",
        ),
        Step(
            "Cluster the directions",
            Directions(
                GROUPED_ARROWS, origin="$w_0$", cones=((50, 100, 1), (-38, 16, 2)), at=(0.38, 0.62)
            ),
            "Updates that point the same way make a group (EDC or MADC). Group $j$ starts from "
            "$w_0$ plus its mean update.",
        ),
        Step("Every round", grouped(), IN_GROUPS),
        Step(
            "A newcomer",
            Directions(
                (
                    Arrow(75, 0.9, 1, "group 1", bold=True),
                    Arrow(-12, 0.9, 2, "", bold=True),
                    Arrow(48, 0.8, 0, "?", dashed=True),
                ),
                origin="$w_0$",
                at=(0.38, 0.62),
            ),
            "A client that comes later pre-trains, too, and joins the group with the nearest "
            "direction.",
        ),
    ),
)

FLEXCFL = Figure(
    "flexcfl",
    "FlexCFL: FedGroup, and a client whose labels have changed is placed again.",
    (
        Step(
            "Groups as in FedGroup", grouped(), "Cold start, rounds and newcomers are FedGroup's."
        ),
        Step(
            "A client's labels change",
            Bars(
                (
                    ("when placed", (0.9, 0.8, 0.1, 0.05), (1, 1, 1, 1)),
                    ("now", (0.1, 0.15, 0.85, 0.75), (2, 2, 2, 2)),
                ),
                note="$W(c, r) > τ n / C$",
            ),
            "Before each round a client compares its label counts with those it had when it was "
            "placed.",
        ),
        Step(
            "It migrates",
            Directions(
                (
                    Arrow(75, 0.9, 1, "", bold=True),
                    Arrow(-12, 0.9, 2, "", bold=True),
                    Arrow(98, 0.7, 0, "before", dashed=True),
                    Arrow(9, 0.85, 0, "now", dashed=True),
                ),
                origin="$w_0$",
                at=(0.38, 0.62),
            ),
            "It pre-trains from $w_0$ and joins the nearest of the groups' first directions. It "
            "can do so alone.",
        ),
    ),
)

IFCA = Figure(
    "ifca",
    "IFCA: each client trains the model with its lowest loss; each model averages its clients.",
    (
        Step(
            "All models are sent",
            Exchange(
                TWO_GROUPS,
                tuple(Client(receives=(0, 1), sends=None, idle=index == 1) for index in range(4)),
                "all $m$ models",
                "nothing yet",
            ),
            "The models start from different initialisations, so that clients have a choice.",
        ),
        Step(
            "Each client chooses",
            Bars(
                (("client 1", (0.35, 0.8), (1, 2)), ("client 3", (0.75, 0.3), (1, 2))),
                labels=("$w_1$", "$w_2$"),
                note="training loss",
                chosen=(0, 1),
            ),
            "It computes its training loss under every model and takes the lowest.",
        ),
        Step(
            "It trains its choice",
            Exchange(
                TWO_GROUPS,
                (
                    Client(1, receives=(), sends=0),
                    IDLE,
                    Client(2, receives=(), sends=1),
                    Client(2, receives=(), sends=1),
                ),
                "nothing more",
                "the choice and the update $Δ_i$",
            ),
            "A model moves by the plain mean of the updates of the clients that chose it.",
        ),
    ),
)

NEAR_ONE = ((0.2, 0.28), (0.34, 0.18), (0.3, 0.42))

NEAR_TWO = ((0.7, 0.62), (0.82, 0.74), (0.64, 0.8))

FESEM = Figure(
    "fesem",
    "FeSEM: k-means on local solutions, one step per round.",
    (
        Step(
            "Clients train from a centre",
            Exchange(
                (("$c_1$", 1), ("$c_2$", 2)),
                (member(1), member(1), IDLE, member(2), member(2)),
                "the client's centre",
                "update: its local solution $w_i$",
            ),
            "A client trains from the centre that it joined last.",
        ),
        Step(
            "Each joins the nearest",
            Plane(
                marks=(
                    *(Mark(at, 1) for at in NEAR_ONE),
                    *(Mark(at, 2) for at in NEAR_TWO),
                    Mark((0.4, 0.34), 1, "$c_1$", centre=True),
                    Mark((0.58, 0.6), 2, "$c_2$", centre=True, below=True),
                ),
                routes=(
                    *(
                        Route((at, (0.4, 0.34)), 1, dashed=True, head=False, width=1)
                        for at in NEAR_ONE
                    ),
                    *(
                        Route((at, (0.58, 0.6)), 2, dashed=True, head=False, width=1)
                        for at in NEAR_TWO
                    ),
                ),
            ),
            "The server compares the trained model of a client with all centres, by Euclidean distance.",
        ),
        Step(
            "Centres move",
            Plane(
                marks=(
                    *(Mark(at, 1) for at in NEAR_ONE),
                    *(Mark(at, 2) for at in NEAR_TWO),
                ),
                routes=(
                    Route(((0.42, 0.36), (0.29, 0.3)), 1, width=2.6),
                    Route(((0.57, 0.56), (0.71, 0.71)), 2, width=2.6),
                ),
            ),
            "Each centre becomes the plain mean of the solutions that joined it.",
        ),
    ),
)

FEDSOFT = Figure(
    "fedsoft",
    "FedSoft: a client has a share of every centre, and trains from their mixture.",
    (
        Step(
            "Samples choose",
            Bars(
                (("client 1", (0.7, 0.3), (1, 2)), ("client 3", (0.3, 0.7), (1, 2))),
                labels=("$c_1$", "$c_2$"),
                note="share of samples",
            ),
            "Every $τ$ rounds a client counts for how many of its samples each centre is the best.",
        ),
        Step(
            "It trains from its mixture",
            Exchange(
                (("$c_1$", 1), ("$c_2$", 2)),
                (
                    Client(receives=(0, 1)),
                    IDLE,
                    Client(receives=(0, 1)),
                    Client(receives=(0, 1)),
                    IDLE,
                ),
                "one model: the mixture $u_1 c_1 + u_2 c_2$",
                "update, sample count",
            ),
            "A proximal term keeps the client near its mixture.",
        ),
        Step(
            "Centres move",
            Plane(
                marks=(
                    Mark((0.3, 0.35), 0, "$w_1$"),
                    Mark((0.72, 0.7), 0, "$w_3$", below=True),
                    Mark((0.42, 0.44), 1, "$c_1$", centre=True),
                    Mark((0.6, 0.6), 2, "$c_2$", centre=True, below=True),
                ),
                routes=(
                    Route(((0.3, 0.35), (0.42, 0.44)), 1, head=False, width=2.6),
                    Route(((0.3, 0.35), (0.6, 0.6)), 2, dashed=True, head=False, width=1),
                    Route(((0.72, 0.7), (0.42, 0.44)), 1, dashed=True, head=False, width=1),
                    Route(((0.72, 0.7), (0.6, 0.6)), 2, head=False, width=2.6),
                ),
            ),
            "Each centre becomes the mean of all solutions, weighted by the clients' shares.",
        ),
    ),
)

FEDEM = Figure(
    "fedem",
    "FedEM: every client trains all components, each on the samples that it explains best.",
    (
        Step(
            "All components are sent",
            Exchange(
                TWO_GROUPS,
                tuple(Client(receives=(0, 1), sends=None, idle=index == 1) for index in range(4)),
                "all components, the client's shares",
                "nothing yet",
            ),
            "The components start from different initialisations.",
        ),
        Step(
            "Samples are shared out",
            Bars(
                (("sample 1", (0.9, 0.1), (1, 2)), ("sample 2", (0.35, 0.65), (1, 2))),
                labels=("$w_1$", "$w_2$"),
                note="$q_s(m)$",
            ),
            "A component counts for a sample by how likely it explains it, and by its share.",
        ),
        Step(
            "Each component is trained",
            Exchange(
                TWO_GROUPS,
                (
                    Client(receives=(), sends=0),
                    IDLE,
                    Client(receives=(), sends=1),
                    Client(receives=(), sends=0),
                ),
                "nothing more",
                "all updates, new shares",
            ),
            "A client predicts with the mean of all components' predictions, weighted by its shares.",
        ),
    ),
)

FEDRC = Figure(
    "fedrc",
    "FedRC: FedEM in which a component counts less for a class that it saw often.",
    (
        Step(
            "What components saw",
            Bars(
                (("class 1", (0.8, 0.2), (1, 2)), ("class 2", (0.2, 0.8), (1, 2))),
                labels=("$w_1$", "$w_2$"),
                note="$C_m(y)$",
            ),
            "The server knows how often the samples of each component have each class.",
        ),
        Step(
            "Samples are shared out",
            Bars(
                (("explained", (0.8, 0.4), (1, 2)), ("corrected", (0.33, 0.67), (1, 2))),
                labels=("$w_1$", "$w_2$"),
                note="a sample of class 1",
            ),
            "How well a component explains a sample is divided by how often it saw the class.",
        ),
        Step(
            "Each component is trained",
            Exchange(
                TWO_GROUPS,
                (
                    Client(receives=(0, 1), sends=0),
                    IDLE,
                    Client(receives=(0, 1), sends=1),
                    Client(receives=(0, 1), sends=0),
                ),
                "all components, $C_m$",
                "all updates, shares, sums",
            ),
            "Everything else is as in FedEM.",
        ),
    ),
)

LEAVES = (1, 1, 1, 2, 2, 2)

MERGES = (
    Merge(0, 1, 0.18, 1),
    Merge(3, 4, 0.14, 2),
    Merge(6, 2, 0.3, 1),
    Merge(7, 5, 0.34, 2),
    Merge(8, 9, 0.95),
)

FEDCLUST = Figure(
    "fedclust",
    "FedClust: final layers are clustered once; FedAvg runs in each group.",
    (
        Step(
            "Once: upload one layer",
            Blocks(
                boxes=(
                    Box((0.16, 0.76), "conv", 0, 52),
                    Box((0.5, 0.76), "dense", 0, 52),
                    Box((0.84, 0.76), "final", 1, 52),
                    Box((0.5, 0.2), "server", 0, 150),
                    Box((0.58, 0.5), "$u_i$", None),
                    Box((0.34, 0.5), "$w_0$", None),
                ),
                links=(
                    ((0.28, 0.76), (0.38, 0.76)),
                    ((0.62, 0.76), (0.72, 0.76)),
                    ((0.84, 0.67), (0.64, 0.3)),
                ),
                dashed_links=(((0.3, 0.29), (0.18, 0.67)),),
            ),
            "All clients train $w_0$ for a few epochs and send only the final layer.",
        ),
        Step(
            "The server merges",
            Tree(LEAVES, MERGES, 0.6, "threshold"),
            "The two nearest clusters merge, again and again, up to a threshold. No number of "
            "groups is given.",
        ),
        Step("Every round", grouped(), "FedAvg inside each group. All groups start from $w_0$."),
    ),
)

PACFL = Figure(
    "pacfl",
    "PACFL: subspaces of the clients' data are clustered once; FedAvg runs in each group.",
    (
        Step(
            "Before training: directions",
            Directions(
                (
                    Arrow(80, 0.95, 1, "$U_1$"),
                    Arrow(62, 0.95, 1, "$U_2$"),
                    Arrow(5, 0.95, 2, "$U_3$"),
                ),
                cones=((62, 80, 1), (5, 62, 0)),
                at=(0.3, 0.78),
            ),
            "Each client sends a few leading singular vectors of its samples, class by class.",
        ),
        Step(
            "The server merges",
            Tree(LEAVES, MERGES, 0.6, "threshold"),
            "Clients merge while the angle between their subspaces is below a threshold.",
        ),
        Step("Every round", grouped(), "FedAvg inside each group. All groups start from $w_0$."),
    ),
)

FLHC = Figure(
    "flhc",
    "FL+HC: rounds of FedAvg, one clustering of all updates, then FedAvg in each cluster.",
    (
        Step(
            "First rounds: FedAvg",
            one_model(),
            "One model for all, for a few rounds, so that it has learned something.",
        ),
        Step(
            "Once: cluster all updates",
            Tree(LEAVES, MERGES, 0.6, "threshold"),
            "All clients train the joint model. Their whole updates are merged up to a threshold.",
        ),
        Step(
            "After that", grouped(), "FedAvg inside each cluster. All start from the joint model."
        ),
    ),
)

CFL = Figure(
    "cfl",
    "CFL: a cluster splits in two when its mean update is short but individual updates are long.",
    (
        Step(
            "FedAvg in a cluster",
            one_model(),
            "At first all clients are one cluster with one model.",
        ),
        Step(
            "The updates disagree",
            Directions(
                (
                    Arrow(150, 0.85, 1),
                    Arrow(170, 0.75, 1),
                    Arrow(132, 0.7, 1),
                    Arrow(-20, 0.85, 2),
                    Arrow(-2, 0.75, 2),
                    Arrow(-42, 0.7, 2),
                    Arrow(75, 0.22, 0, "mean", bold=True),
                ),
            ),
            "The mean update is short, but some updates are long: clients need different models.",
        ),
        Step(
            "The cluster splits",
            grouped("the model of its cluster"),
            "Each half continues from the same model, and may split again.",
        ),
    ),
)
