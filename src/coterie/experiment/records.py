"""The tables of an experiment that belong to no other part of Coterie, as records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from coterie.config import registry
from coterie.config.arguments import check_record
from coterie.config.schema import Count, NotNegative, OneOf, Share
from coterie.core.arrays import IntArray
from coterie.measures.optional import Measure
from coterie.measures.own_models import Adaptation

# K of the experiments of FedGroup and FlexCFL.
CLIENTS_PER_ROUND = 20

SamplerName = Literal["cover_then_uniform", "uniform", "poisson"]
CohortSampler = Callable[..., IntArray]
MeasureName = Annotated[str, OneOf(partial(registry.names, "measure"))]
TrackerName = Annotated[str, OneOf(partial(registry.names, "tracker"))]
Client = str | Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Training:
    """``[train]``: rounds, who takes part in them, and when they are measured.

    Args:
        rounds: communication rounds.
        clients_per_round: clients that take part in a round; the default is lowered to all clients
            where there are fewer.
        sampler: which clients: ``cover_then_uniform``, ``uniform`` or ``poisson``. In Python also a
            function of the round, and with a shift of which clients are there and hold samples
            (bool ``[N]``). With privacy the default is ``poisson``.
        over_selection: how many clients are asked for each reply that a round waits for; the others
            come too late.
        hold_out: share of each client's training samples that is kept from training, to calibrate
            probabilities with.
        evaluate_every: rounds between evaluations.
        evaluate_clients: score a random sample of so many clients, and state its standard error;
            by default all are scored.
        evaluate_loss: whether the loss on test samples is measured in addition to the metrics.
        measures: what else to measure in every round, by name. In Python also functions.

    Raises:
        ConfigError: for a value out of its range.
    """

    rounds: Count
    clients_per_round: Count = CLIENTS_PER_ROUND
    sampler: SamplerName | CohortSampler = "cover_then_uniform"
    over_selection: Annotated[float, Field(ge=1, le=10)] = 1.0
    hold_out: Share | None = None
    evaluate_every: Count = 1
    evaluate_clients: Count | None = None
    evaluate_loss: bool = False
    measures: tuple[MeasureName | Measure, ...] = ()

    def __post_init__(self) -> None:
        check_record(self)


@dataclass(frozen=True, slots=True)
class Evaluate:
    """``[evaluate]``: with which models clients are scored in addition to those that serve them; see
    ``docs/measures.md``.

    Args:
        local: each client is also scored with the network that it trained last, as PACFL's scripts
            do.
        adapt: the training of a copy of the served model after which each client is scored, too.
        training: clients are also scored on their training samples, with the loss.
        unseen: a share of the clients, or names or numbers of clients, that never train and are
            scored as newcomers.
        unseen_labels: whether these have labels. Without them they are placed by their inputs alone,
            where the method can.
        rounds: whether adapted and unseen clients are scored in every ``evaluated`` round, or in the
            ``last`` alone.
        validation: share of each client's training samples on which it is scored in place of its
            test samples, and does not train; to choose settings by.
        order: whether the figures of a round are of the models ``after`` its update, or ``before``
            it. Real clients score the models that they are sent to train, which costs no exchange
            of its own, so ``before`` is their default. The last round is scored after it.

    Raises:
        ConfigError: for a value out of its range.
    """

    local: bool = False
    adapt: Adaptation | None = None
    training: bool = False
    unseen: Share | tuple[Client, ...] | None = None
    unseen_labels: bool | None = None
    rounds: Literal["evaluated", "last"] = "evaluated"
    validation: Share | None = None
    order: Literal["after", "before"] | None = None

    def __post_init__(self) -> None:
        check_record(self)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """``[checkpoint]``: how often the state is saved, and how many checkpoints are kept.

    Args:
        seconds: between two of them. By time and not by rounds: a round takes milliseconds or hours,
            and what a kill may cost is time.
        keep: how many are kept. Two, so that there is one to go on from if the newest is damaged.

    Raises:
        ConfigError: for a value out of its range.
    """

    seconds: NotNegative = 10.0
    keep: Count = 2

    def __post_init__(self) -> None:
        check_record(self)


@dataclass(frozen=True, slots=True)
class Log:
    """``[log]``: which trackers are sent the rounds.

    Args:
        to: their names: ``mlflow``, ``tensorboard``.
        uri: of the MLflow server; by default MLflow's own.
        experiment: of MLflow.

    Raises:
        ConfigError: for an unknown tracker.
    """

    to: tuple[TrackerName, ...] = ()
    uri: str | None = None
    experiment: str = "coterie"

    def __post_init__(self) -> None:
        check_record(self)


@dataclass(frozen=True, slots=True)
class PersonalLayers:
    """``[personal]``: layers that stay with their client; see ``docs/personal-layers.md``.

    Args:
        layers: as `coterie.core.keep.keep_layers` reads them, such as ``head`` or ``norm``.
    """

    layers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_record(self)


@dataclass(frozen=True, slots=True)
class Asynchronous:
    """``[asynchronous]``: rounds that do not wait for all of their clients; see
    ``docs/asynchronous.md``.

    Args:
        buffer: updates after which the models move; the paper's K.
        exponent: of ``1 / (1 + s)^exponent``, how much an update that is ``s`` moves late counts. The
            paper's is the square root.

    Raises:
        ConfigError: for a value out of its range.
    """

    buffer: Count = 10
    exponent: NotNegative = 0.5

    def __post_init__(self) -> None:
        check_record(self)
