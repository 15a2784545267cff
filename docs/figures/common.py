"""Panels that several methods share."""

from __future__ import annotations

from panels import IDLE, Arrow, Client, Exchange, Step

ONE_MODEL = (("$w_t$", 0),)
TWO_GROUPS = (("$w_1$", 1), ("$w_2$", 2))
FROM_START = (("$w_0$", 0),)
GROUPED_ARROWS = (
    Arrow(75, 0.85, 1),
    Arrow(58, 0.95, 1),
    Arrow(92, 0.7, 1),
    Arrow(-12, 0.9, 2),
    Arrow(8, 0.75, 2),
    Arrow(-30, 0.8, 2),
)
IN_GROUPS = "FedAvg inside each group: a group's model moves by the mean update of its members."


def member(group: int) -> Client:
    """A client that trains the model of its group."""
    return Client(colour=group, receives=(group - 1,), sends=group - 1)


def one_model(
    up: str = "update $Δ_i$, sample count $n_i$", down: str = "the model $w_t$"
) -> Exchange:
    return Exchange(ONE_MODEL, (Client(), IDLE, Client(), Client(), IDLE), down, up)


def grouped(
    down: str = "the model of its group", up: str = "update $Δ_i$, sample count $n_i$"
) -> Exchange:
    clients = (member(1), IDLE, member(1), member(2), member(2))
    return Exchange(TWO_GROUPS, clients, down, up)


COHORT = Step(
    "A round: the cohort trains",
    one_model(),
    "Some clients are sent the model. Each trains it on its own data and sends back the "
    "difference.",
)
