"""The methods whose clients have their own model in addition to the shared one."""

from __future__ import annotations

from common import one_model
from panels import Arrow, Directions, Figure, Panel, Step


def averages(text: str) -> Step:
    """The server's part, which is that of FedAvg."""
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
        text,
    )


def own(name: str, title: str, sent: str, at_home: tuple[str, Panel, str]) -> Figure:
    """A method in three steps: what is sent, what a client does for itself, what the server does.

    Args:
        name: of the method.
        title: read aloud by screen readers.
        sent: what a client sends up.
        at_home: title, picture and text of what it does for itself.
    """
    return Figure(
        name,
        title,
        (
            Step(
                "A round: the cohort trains",
                one_model(sent),
                "Each client of the cohort receives the shared model and sends back its update.",
            ),
            Step(*at_home),
            averages("The shared model moves by the mean of the updates."),
        ),
    )


DITTO = own(
    "ditto",
    "Ditto: each client also trains its own model, which is pulled towards the shared one.",
    "update, $n_i$, loss",
    (
        "A client trains its own",
        Directions(
            (
                Arrow(-30, 0.95, 1, "its data"),
                Arrow(75, 0.75, 0, "$w_t$"),
                Arrow(8, 0.85, 1, "$v_i$", bold=True),
            ),
            origin="$v_i$",
            at=(0.25, 0.6),
        ),
        "Its own model follows its data and is pulled towards the shared one. It is never sent.",
    ),
)

APFL = own(
    "apfl",
    "APFL: each client predicts with a mixture of the shared model and its own model.",
    "update, $n_i$, loss",
    (
        "A client trains its own",
        Directions(
            (
                Arrow(-35, 0.95, 1, "$v_i$"),
                Arrow(65, 0.9, 0, "$w_t$"),
                Arrow(14, 0.72, 1, "mixture", bold=True),
            ),
            origin="$w_0$",
            at=(0.25, 0.6),
        ),
        "It predicts with a mixture of both, and learns its own model, and the share, for the mixture.",
    ),
)

PFEDME = own(
    "pfedme",
    "pFedMe: each client has a model near the shared one, and the shared one moves towards it.",
    "update, $n_i$, loss",
    (
        "The shared one follows",
        Directions(
            (
                Arrow(-25, 1.0, 1, "$θ_i$", bold=True),
                Arrow(-25, 0.5, 0, "$w$"),
                Arrow(70, 0.75, 0, "others"),
            ),
            origin="$w_t$",
            at=(0.25, 0.5),
        ),
        "Its own model takes a few steps near the shared one. Then the shared one follows a little.",
    ),
)

PERFEDAVG = own(
    "perfedavg",
    "Per-FedAvg: one model, from which each client is one gradient step away from its own.",
    "update, $n_i$, loss",
    (
        "A step ahead",
        Directions(
            (
                Arrow(40, 0.8, 1, "client 1", bold=True),
                Arrow(-10, 0.8, 2, "client 2", bold=True),
                Arrow(-60, 0.7, 3, "client 3", bold=True),
            ),
            origin="$w_t$",
            at=(0.28, 0.5),
        ),
        "A client moves the model by the gradient that it has after one step on its own data.",
    ),
)

FEDALA = own(
    "fedala",
    "FedALA: a client starts from a mixture of the shared model and its own, learned on its data.",
    "update, $n_i$, loss",
    (
        "A client mixes its start",
        Directions(
            (
                Arrow(-35, 0.95, 1, "its last"),
                Arrow(65, 0.9, 0, "$w_t$"),
                Arrow(10, 0.75, 1, "start", bold=True),
            ),
            origin="$w_0$",
            at=(0.25, 0.6),
        ),
        "In the last layers each parameter has a share of the shared model, which the client learns.",
    ),
)

MOON = own(
    "moon",
    "MOON: features stay near those of the shared model, and away from those of the last network.",
    "update, $n_i$, loss",
    (
        "Features are compared",
        Directions(
            (
                Arrow(60, 0.85, 0, "shared model"),
                Arrow(25, 0.8, 1, "in training", bold=True),
                Arrow(-50, 0.8, 2, "last network"),
            ),
            origin="0",
            at=(0.25, 0.55),
        ),
        "Features move towards those of the shared model, away from those of the client's last network.",
    ),
)

FEDROD = own(
    "fedrod",
    "FedROD: the logits of a client's own head are added to those of the shared model.",
    "update, $n_i$, loss",
    (
        "Own logits are added",
        Directions(
            (
                Arrow(62, 0.8, 0, "$m(x)$"),
                Arrow(-35, 0.75, 1, "$h_i(x)$"),
                Arrow(16, 1.0, 1, "sum", bold=True),
            ),
            origin="0",
            at=(0.25, 0.55),
        ),
        "The shared model trains by a balanced softmax. The own head fits what it leaves, and is not sent.",
    ),
)

SCAFFOLD = Figure(
    "scaffold",
    "SCAFFOLD: each step is corrected by the direction of all clients minus that of the client.",
    (
        Step(
            "A round: the cohort trains",
            one_model("update, $n_i$, loss", "$w_t$ and its variate $c$"),
            "Each client of the cohort receives the model and the server's control variate.",
        ),
        Step(
            "Each step is corrected",
            Directions(
                (
                    Arrow(-45, 0.9, 2, "own gradient"),
                    Arrow(70, 0.75, 0, "$c - c_i$"),
                    Arrow(8, 0.75, 1, "step", bold=True),
                ),
                origin="$w$",
                at=(0.25, 0.58),
            ),
            "The client's own direction, $c_i$, is subtracted, and the common direction $c$ is added.",
        ),
        averages("The model moves by the mean of the updates, and $c$ is updated from them."),
    ),
)
