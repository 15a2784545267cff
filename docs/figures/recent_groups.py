"""Methods of recent years with a model per group: who trains from what, and what is sent."""

from __future__ import annotations

from charts import Bars
from common import FROM_START, IN_GROUPS, TWO_GROUPS, grouped, member, one_model
from panels import (
    IDLE,
    Arrow,
    Client,
    Directions,
    Exchange,
    Figure,
    Mark,
    Plane,
    Route,
    Step,
)

CLOVE = Figure(
    "clove",
    "CLoVE: clients with like losses under all models form a group; each group gets the model that "
    "fits it best.",
    (
        Step(
            "All models are scored",
            Exchange(
                TWO_GROUPS,
                tuple(Client(receives=(0, 1), sends=None) for _ in range(4)),
                "all $k$ models",
                "the loss of each model",
            ),
            "A client of the round computes its mean training loss under every model.",
        ),
        Step(
            "Cluster the losses",
            Plane(
                marks=(
                    *(Mark(at, 1) for at in ((0.2, 0.56), (0.29, 0.66), (0.33, 0.5))),
                    *(Mark(at, 2) for at in ((0.66, 0.26), (0.75, 0.37), (0.82, 0.22))),
                ),
                rings=(((0.27, 0.57), 27, 1), ((0.74, 0.28), 27, 2)),
                notes=(((0.5, 0.95), "loss under $w_1$"), ((0.13, 0.07), "loss under $w_2$")),
            ),
            "Each client is a point of $k$ losses. Clients with like data are near each other, also "
            "if one model is better for all.",
        ),
        Step(
            "Match clusters to models",
            Bars(
                (("cluster 1", (0.3, 0.62), (1, 2)), ("cluster 2", (0.68, 0.74), (1, 2))),
                labels=("$w_1$", "$w_2$"),
                note="sum of its clients' losses",
                chosen=(0, 1),
            ),
            "Each cluster gets its own model, so that the total loss is lowest.",
        ),
        Step("Each group trains", grouped(), IN_GROUPS),
    ),
)

NEAR_A = ((0.16, 0.3), (0.31, 0.2), (0.29, 0.45))
NEAR_B = ((0.62, 0.62), (0.79, 0.56), (0.73, 0.8))

SR_FCA = Figure(
    "sr_fca",
    "SR-FCA: clients that do well with each other's models form groups, which are refined later.",
    (
        Step(
            "Once: train alone",
            Exchange(
                FROM_START,
                tuple(Client() for _ in range(5)),
                "the first model $w_0$",
                "update: its own model",
            ),
            "All clients train alone. Then each reports its loss with the model of every other.",
        ),
        Step(
            "Group who is near",
            Plane(
                marks=(
                    *(Mark(at, 1) for at in NEAR_A),
                    *(Mark(at, 2) for at in NEAR_B),
                    Mark((0.86, 0.16), hollow=True),
                ),
                routes=(
                    *(Route((NEAR_A[0], at), 1, head=False) for at in NEAR_A[1:]),
                    *(Route((NEAR_B[1], at), 2, head=False) for at in (NEAR_B[0], NEAR_B[2])),
                ),
            ),
            "Near are two clients that lose at most $λ$ with each other's models. A random client and "
            "its neighbours are a group; small ones are dissolved.",
        ),
        Step(
            "Each group trains", grouped(), "The updates of a group are combined by a trimmed mean."
        ),
        Step(
            "Refine",
            Plane(
                marks=(
                    *(Mark(at, 1) for at in NEAR_A),
                    *(Mark(at, 2) for at in NEAR_B),
                    Mark((0.86, 0.16), hollow=True),
                    Mark((0.24, 0.32), 1, "$w_1$", centre=True),
                    Mark((0.71, 0.66), 2, "$w_2$", centre=True),
                ),
                routes=(Route(((0.84, 0.22), (0.74, 0.57)), dashed=True),),
            ),
            "After some rounds each client joins the nearest group, and groups that are near each "
            "other are merged.",
        ),
    ),
)

FEDDRIFT = Figure(
    "feddrift",
    "FedDrift: a client whose loss jumps opens a model, and models that perform alike are merged.",
    (
        Step(
            "All models are scored",
            Exchange(
                TWO_GROUPS,
                tuple(Client(receives=(0, 1), sends=None) for _ in range(4)),
                "all $k$ models",
                "the loss of each model",
            ),
            "Every client reports its training loss under every model.",
        ),
        Step(
            "Whose loss has jumped?",
            Bars(
                (
                    ("client 1", (0.32, 0.3), (0, 0)),
                    ("client 2", (0.28, 0.34), (0, 0)),
                    ("client 3", (0.3, 0.86), (0, 3)),
                ),
                labels=("before", "now"),
                note="lowest loss of any model",
                chosen=(-1, -1, 1),
            ),
            "More than $δ$ above the last time step is drift. The others join the model with their "
            "lowest loss.",
        ),
        Step(
            "A separate model",
            Exchange(
                (*TWO_GROUPS, ("$w_3$", 3)),
                (member(1), member(1), member(2), member(3)),
                "the model of its group",
                "update $Δ_i$, sample count $n_i$",
            ),
            "A drifted client opens a new model and trains it alone until the next time step.",
        ),
        Step(
            "Merge like models",
            Plane(
                marks=(
                    Mark((0.2, 0.35), 1, "$w_1$", centre=True),
                    Mark((0.68, 0.58), 2, "$w_2$", centre=True),
                    Mark((0.8, 0.42), 3, "$w_3$", centre=True),
                ),
                routes=(
                    Route(((0.2, 0.35), (0.68, 0.58)), dashed=True, head=False),
                    Route(((0.68, 0.58), (0.8, 0.42)), head=False, width=2.2),
                ),
                rings=(((0.74, 0.5), 40, 2),),
                notes=(((0.5, 0.95), "merged up to $δ'$"),),
            ),
            "The distance of two models: how much the loss of each increases on the data of the other.",
        ),
    ),
)

STOCFL = Figure(
    "stocfl",
    "StoCFL: every client begins as a cluster, and similar clusters merge as clients are selected.",
    (
        Step(
            "Who is new shows its data",
            Exchange(
                FROM_START,
                (Client(), IDLE, Client(), Client(), IDLE),
                "the anchor, a fixed model",
                "its update $Ψ_i$",
            ),
            "A client that is selected for the first time trains the anchor once. It is a cluster of one.",
        ),
        Step(
            "Merge like clusters",
            Directions(
                (
                    Arrow(75, 0.85, 1),
                    Arrow(52, 0.95, 1, "new"),
                    Arrow(-12, 0.9, 2),
                ),
                origin="",
                cones=((40, 88, 1),),
                at=(0.38, 0.62),
            ),
            "Clusters of which clients are in the round are merged if the cosine of their mean "
            "directions is at least $τ$.",
        ),
        Step(
            "Train the cluster's model",
            Exchange(
                (*TWO_GROUPS, ("$ω$", 0)),
                (
                    Client(colour=1, receives=(0, 2), sends=0),
                    Client(colour=1, receives=(0, 2), sends=0),
                    Client(colour=2, receives=(1, 2), sends=1),
                ),
                "the model of its cluster, and $ω$",
                "update $Δ_i$",
            ),
            "It is pulled towards the global model $ω$, with weight $λ$.",
        ),
        Step(
            "Train the global model",
            Exchange(
                (("$ω$", 0),),
                (Client(), IDLE, Client(), Client(), IDLE),
                "the global model $ω$",
                "update of $ω$",
            ),
            "All clients of the round train it, too. New clusters start from it.",
        ),
    ),
)

CFL_GP = Figure(
    "cfl_gp",
    "CFL-GP: clients are clustered again and again by the mean of their updates of one model.",
    (
        Step(
            "All train one model",
            Exchange(
                (("$w_1$", 0),),
                tuple(Client() for _ in range(5)),
                "the first model",
                "its update",
            ),
            "In every second round, five times in all. The server keeps the mean $g_c$ of the updates "
            "of each client.",
        ),
        Step(
            "Cluster their means",
            Plane(
                marks=(
                    *(Mark(at, 1) for at in ((0.2, 0.56), (0.29, 0.66), (0.33, 0.5))),
                    *(Mark(at, 2) for at in ((0.66, 0.26), (0.75, 0.37), (0.82, 0.22))),
                ),
                rings=(((0.27, 0.57), 27, 1), ((0.74, 0.28), 27, 2)),
                notes=(
                    ((0.5, 0.95), "along direction 1"),
                    ((0.15, 0.07), "along direction 2"),
                ),
            ),
            "k-means in the $k$ leading singular directions of all means.",
        ),
        Step(
            "Keep the models",
            Bars(
                (("cluster 1", (0.8, 0.15), (1, 2)), ("cluster 2", (0.2, 0.7), (1, 2))),
                labels=("$w_1$", "$w_2$"),
                note="clients that had the model",
                chosen=(0, 1),
            ),
            "Each cluster takes one model, so that most clients keep theirs.",
        ),
        Step("Each group trains", grouped(), IN_GROUPS),
    ),
)


KNOWN_GROUPS = Figure(
    "known_groups",
    "Known groups: FedAvg inside groups that are given.",
    (
        Step(
            "Groups are given",
            Plane(
                marks=(
                    *(Mark(at, 1) for at in NEAR_A),
                    *(Mark(at, 2) for at in NEAR_B),
                ),
                rings=(((0.25, 0.32), 38, 1), ((0.71, 0.66), 38, 2)),
            ),
            "A table gives the group of each client in each time step. Nothing is measured.",
        ),
        Step("Each group trains", grouped(), IN_GROUPS),
    ),
)


K_FED = Figure(
    "k_fed",
    "k-FED: clients are clustered once, by the means of their inputs, before any training.",
    (
        Step(
            "Once: centres of inputs",
            Plane(
                marks=(
                    *(Mark(at, hollow=True) for at in ((0.2, 0.3), (0.36, 0.22), (0.4, 0.48))),
                    *(Mark(at, hollow=True) for at in ((0.24, 0.5), (0.5, 0.3), (0.55, 0.55))),
                    Mark((0.37, 0.38), centre=True),
                ),
                notes=(((0.5, 0.95), "the samples of one client"),),
            ),
            "Each client sends the centres of its inputs. By default it is one, their mean.",
        ),
        Step(
            "Seeds that are far apart",
            Plane(
                marks=(
                    *(Mark(at) for at in NEAR_A[1:]),
                    *(Mark(at) for at in NEAR_B[:2]),
                    Mark(NEAR_A[0], 1, centre=True),
                    Mark(NEAR_B[2], 2, centre=True),
                ),
                routes=(Route((NEAR_A[0], NEAR_B[2]), dashed=True),),
            ),
            "The server begins with the centres of one client, and adds the farthest centre until "
            "there are $k$.",
        ),
        Step(
            "The nearest seed draws",
            Plane(
                marks=(
                    *(Mark(at, 1) for at in NEAR_A),
                    *(Mark(at, 2) for at in NEAR_B),
                ),
                rings=(((0.25, 0.32), 30, 1), ((0.71, 0.66), 30, 2)),
            ),
            "A client joins the cluster that contains most of its samples.",
        ),
        Step("Each group trains", grouped(), IN_GROUPS),
    ),
)

FLUX = Figure(
    "flux",
    "FLUX: clients describe their data by moments in the latent space of a first model; dense regions "
    "are groups.",
    (
        Step(
            "First rounds: FedAvg",
            one_model(),
            "One model for all, for a few rounds, so that its hidden layer is informative.",
        ),
        Step(
            "Once: describe the data",
            Exchange(
                (("$w$", 0),),
                tuple(Client() for _ in range(4)),
                "the joint model",
                "moments of its data",
            ),
            "Means and standard deviations of the hidden layer's outputs for the samples.",
        ),
        Step(
            "Cluster by density",
            Plane(
                marks=(
                    *(Mark(at, 1) for at in NEAR_A),
                    *(Mark(at, 2) for at in NEAR_B),
                    Mark((0.86, 0.16), 3),
                    Mark((0.2, 0.74), hollow=True),
                ),
                routes=(
                    *(Route((NEAR_A[0], at), 1, head=False) for at in NEAR_A[1:]),
                    *(Route((NEAR_B[1], at), 2, head=False) for at in (NEAR_B[0], NEAR_B[2])),
                    Route(((0.21, 0.68), (0.25, 0.36)), dashed=True),
                ),
            ),
            "Neighbours within a radius are a group. A newcomer joins the nearest group; without "
            "labels it is compared by the moments of all its samples.",
        ),
        Step("Each group trains", grouped(), "FedAvg inside each group, from the joint model."),
    ),
)


CORNFLQS = Figure(
    "cornflqs",
    "CORNFLQS: the server clusters trained models, and clients choose by loss, until both agree.",
    (
        Step(
            "First round: one model",
            one_model(),
            "All clients have the same weight, regardless of their samples.",
        ),
        Step(
            "The server clusters",
            Plane(
                marks=(
                    *(Mark(at, 1) for at in NEAR_A),
                    *(Mark(at, 2) for at in NEAR_B),
                ),
                rings=(((0.25, 0.32), 30, 1), ((0.71, 0.66), 30, 2)),
                notes=(((0.5, 0.95), "trained models"),),
            ),
            "Ward's linkage. The mean of each cluster, weighted by samples, is the model of a group.",
        ),
        Step(
            "Clients choose",
            Exchange(
                TWO_GROUPS,
                tuple(Client(receives=(0, 1), sends=None) for _ in range(4)),
                "all $k$ models",
                "the loss of each model",
            ),
            "A client trains the model with its least loss. When all choose the cluster that they were "
            "put in, the server clusters no more.",
        ),
        Step(
            "Each group trains",
            grouped(),
            "Clients choose again until all keep their group. Then the groups are fixed.",
        ),
    ),
)


AUXO = Figure(
    "auxo",
    "Auxo: a cohort splits when its clients' updates show two halves, and clients earn their place.",
    (
        Step(
            "Train with the best cohort",
            grouped("the model of its cohort"),
            "A client trains in the cohort with the highest reward. At first all are in one cohort.",
        ),
        Step(
            "Halves of a cohort",
            Plane(
                marks=(
                    *(Mark(at, 1) for at in NEAR_A),
                    *(Mark(at, 2) for at in NEAR_B),
                ),
                rings=(((0.25, 0.32), 30, 1), ((0.71, 0.66), 30, 2)),
                notes=(((0.5, 0.95), "directions of updates"),),
            ),
            "k-means finds two. Later a client is of the half of its nearest neighbour.",
        ),
        Step(
            "Rewards by the distance",
            Bars(
                (
                    ("client 1", (0.2, 0.9), (0, 1)),
                    ("client 2", (0.3, 0.85), (0, 1)),
                    ("client 3", (0.95, 0.15), (0, 2)),
                ),
                labels=("distance", "reward"),
                note="far away is little",
            ),
            "Of a client's update to those of the known members. A distant client tries another cohort.",
        ),
        Step(
            "Split",
            grouped("the model of its cohort"),
            "When enough clients of both halves are known, each half becomes a cohort.",
        ),
    ),
)


LCFED = Figure(
    "lcfed",
    "LCFed: clusters by few dimensions of the models, in which clients share an embedding with all.",
    (
        Step(
            "First round: one model",
            one_model(),
            "FedAvg. Principal directions of the models that were trained are kept.",
        ),
        Step(
            "Models in few dimensions",
            Plane(
                marks=(
                    *(Mark(at, 1) for at in NEAR_A),
                    *(Mark(at, 2) for at in NEAR_B),
                ),
                rings=(((0.25, 0.32), 30, 1), ((0.71, 0.66), 30, 2)),
                notes=(((0.5, 0.95), "few dimensions"),),
            ),
            "k-means finds the first clusters. Later a client joins the one whose model is most like "
            "its own.",
        ),
        Step(
            "Train with two pulls",
            Exchange(
                (("$w_1$", 1), ("$w_2$", 2), ("$Φ$", 0)),
                tuple(Client(colour=c, receives=(c - 1, 2), sends=c - 1) for c in (1, 1, 2, 2)),
                "its cluster's model, the joint $Φ$",
                "update $Δ_i$",
            ),
            "The model is pulled towards that of its cluster, and its embedding to that of all clients.",
        ),
        Step(
            "Average twice",
            grouped(),
            "Models inside each cluster, embeddings over all clients.",
        ),
    ),
)


FEROMA = Figure(
    "feroma",
    "Feroma: each client starts from a mixture of the models with the most similar data.",
    (
        Step(
            "First rounds: FedAvg",
            one_model(),
            "One model for all, for a few rounds. It is kept, and all profiles are made with it.",
        ),
        Step(
            "Each round: profiles",
            Exchange(
                (("$w$", 0),),
                tuple(Client() for _ in range(4)),
                "the kept model",
                "its profile $s_i$",
            ),
            "Moments of the hidden layer's outputs for random halves of the samples.",
        ),
        Step(
            "Near profiles count more",
            Plane(
                marks=(
                    *(Mark(at, 1) for at in NEAR_A),
                    *(Mark(at, 2) for at in NEAR_B),
                    Mark((0.42, 0.34), 3, "$s_i$", centre=True),
                ),
                routes=(
                    *(Route((at, (0.42, 0.34)), 1, head=False, width=2.2) for at in NEAR_A),
                    *(Route((at, (0.42, 0.34)), 2, head=False, dashed=True) for at in NEAR_B),
                ),
                notes=(((0.5, 0.95), "profiles that models were trained on"),),
            ),
            "The share of a model falls with the distance between its profile and that of the client.",
        ),
        Step(
            "Train the mix",
            Exchange(
                (("$w_1$", 1), ("$w_2$", 2), ("$w_3$", 3)),
                tuple(
                    Client(colour=colour, receives=(0, 1, 2), sends=colour - 1)
                    for colour in (1, 2, 3)
                ),
                "its mix of all models",
                "update $Δ_i$",
            ),
            "The trained model replaces the client's own. One without labels gets the nearest model.",
        ),
    ),
)


FEDGWC = Figure(
    "fedgwc",
    "FedGWC: clients whose losses stay near the round's mean when sampled together form a group.",
    (
        Step(
            "Losses of a round",
            Exchange(
                (("$w_1$", 0),),
                (Client(), IDLE, Client(), Client(), Client()),
                "the model of its group",
                "its loss",
            ),
            "Each client of the round reports its mean training loss under the model of its group.",
        ),
        Step(
            "Rewards by a Gaussian",
            Bars(
                (
                    ("client 1", (0.45, 0.95), (0, 1)),
                    ("client 2", (0.5, 0.98), (0, 1)),
                    ("client 3", (0.95, 0.25), (0, 2)),
                ),
                labels=("loss", "reward"),
                note="near the mean is much",
            ),
            "A matrix stores the share of $i$ in the rewards of rounds that $j$ was also in.",
        ),
        Step(
            "Split a settled group",
            Plane(
                marks=(
                    *(Mark(at, 1) for at in NEAR_A),
                    *(Mark(at, 2) for at in NEAR_B),
                ),
                rings=(((0.25, 0.32), 30, 1), ((0.71, 0.66), 30, 2)),
                notes=(((0.5, 0.95), "rows of the matrix"),),
            ),
            "When the matrix changes no more, spectral clustering splits the group, if its parts are "
            "apart.",
        ),
        Step("Each group continues", grouped(), IN_GROUPS),
    ),
)
