"""The tables of an experiment that belong to no other part of Coterie, as records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from pydantic import Field

from coterie.clients.cohort import SamplerName
from coterie.config import registry
from coterie.config.arguments import CheckedRecord
from coterie.config.schema import Count, NotNegative, OneOf, Share
from coterie.core.arrays import IntArray
from coterie.measures.optional import Measure

# K of the experiments of FedGroup and FlexCFL.
CLIENTS_PER_ROUND = 20

CohortSampler = Callable[..., IntArray]
MeasureName = Annotated[str, OneOf(partial(registry.names, "measure"))]
TrackerName = Annotated[str, OneOf(partial(registry.names, "tracker"), custom=True)]


@dataclass(frozen=True, slots=True)
class Training(CheckedRecord):
    """``[train]``: rounds, which clients take part in them, and when models are evaluated.

    Args:
        rounds: communication rounds.
        clients_per_round: clients that take part in a round; by default all clients if there are
            fewer than 20.
        sampler: how clients are selected: ``cover_then_uniform``, ``uniform`` or ``poisson``. In
            Python also a function of the round and, with a shift, of the clients that are present
            and hold samples (bool ``[N]``). With privacy the default is ``poisson``.
        over_selection: how many clients receive a request for each reply that a round waits for;
            the other replies are too late.
        hold_out: share of each client's training samples that is not used for training, but to
            calibrate probabilities.
        evaluate_every: rounds between evaluations.
        evaluate_clients: score a random sample of this many clients, and state the standard error;
            by default all clients are scored.
        evaluate_loss: whether the loss on test samples is measured in addition to the metrics.
        measures: names of further measures of every round; in Python also functions.

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


@dataclass(frozen=True, slots=True)
class Checkpoints(CheckedRecord):
    """``[checkpoint]``: how often the state is saved, and how many checkpoints are kept.

    Args:
        seconds: time between two checkpoints. It is a time and not a number of rounds, because a
            round takes milliseconds or hours, and a kill costs time.
        keep: number of checkpoints that are kept. With two, the run can continue even if the newest
            one is damaged.

    Raises:
        ConfigError: for a value out of its range.
    """

    seconds: NotNegative = 10.0
    keep: Count = 2


@dataclass(frozen=True, slots=True)
class Log(CheckedRecord):
    """``[log]``: the trackers that receive the rounds.

    Args:
        to: names of trackers: ``mlflow``, ``tensorboard``, ``wandb``, or ``module:factory`` for one
            of your own.
        uri: address of the MLflow server; by default MLflow's own setting.
        experiment: name of the experiment in MLflow, and of the project in Weights & Biases.

    Raises:
        ConfigError: for an unknown tracker.
    """

    to: tuple[TrackerName, ...] = ()
    uri: str | None = None
    experiment: str = "coterie"


@dataclass(frozen=True, slots=True)
class PersonalLayers(CheckedRecord):
    """``[personal]``: layers that stay with their client; see ``docs/personal-layers.md``.

    Args:
        layers: names of layers, as in `coterie.core.keep.layers_to_keep`, such as ``head`` or
            ``norm``.
    """

    layers: tuple[str, ...] = ()
