"""A method, a task, a network and the clients' data, made to go together before a run, and how its
clients are scored in addition to the usual way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from coterie.core.augment import check_augment
from coterie.core.keys import Key
from coterie.core.objective import Objective, Reshaping
from coterie.core.solver import Solver
from coterie.core.task import Task
from coterie.core.work import Train
from coterie.data.population import Population
from coterie.errors import ConfigError
from coterie.experiment import Experiment
from coterie.measures.own_models import Adaptation
from coterie.measures.unseen import Unseen, unseen_clients
from coterie.methods.algorithm import Algorithm, as_algorithm, method_of
from coterie.methods.fit_to_model import check_records, check_solver, check_task, fit_to_model
from coterie.methods.method import Method
from coterie.methods.override import with_kept_optimizer
from coterie.methods.traits import Feature, Trait, traits_of
from coterie.objectives import plain
from coterie.runs.spec import Network
from coterie.tasks import check_network, check_tokens, fit_task


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a run is made of, each part made for the others.

    Args:
        population: the clients and their data; pooled for a method that asks for it.
        local: local SGD, with the budget that such a method has.
    """

    algorithm: Algorithm
    task: Task
    network: Network
    population: Population
    local: Solver


def fit_together(
    method: Method | Algorithm,
    task: Task | None,
    make_network: Callable[[int], Network],
    population: Population,
    local: Solver,
    clients_per_round: int,
    seed: int,
) -> Fitted:
    """Fit a method, a task (``None``: classification) and a network of as many outputs as it needs
    to each other and to the data."""
    # The task first: it says how many outputs the network has.
    fitted = fit_task(task, population)
    check_task(method, fitted)
    algorithm, network = fit(method, make_network(fitted.outputs), local, seed)
    # Samples of lazy federations are made client by client; what fails there names its client.
    if not population.lazy:
        check_augment(local.augment or (), population.x[:2], table=population.table is not None)
    check_tokens(network.module, population)
    # After the objective, which may have changed the network.
    check_network(fitted, network.module, population)
    check_solver(method, local, network.module)
    population, local = pool_if_asked(algorithm, population, local, clients_per_round)
    return Fitted(algorithm, fitted, network, population, local)


def fit(
    method: Method | Algorithm, network: Network, local: Solver, seed: int
) -> tuple[Algorithm, Network]:
    """The method and the network made for each other: an objective may need more parameters, which
    are drawn by the seed."""
    check_records(method)
    # The network's own stream: what an objective adds follows from the seed, and w_0 stays.
    fitted, module = fit_to_model(method, network.module, Key(seed).of("model"))
    fitted = with_kept_optimizer(fitted, local, module)
    return as_algorithm(fitted), Network(module, network.decay)


def pool_if_asked(
    algorithm: Algorithm, population: Population, local: Solver, per_round: int
) -> tuple[Population, Solver]:
    """All training data with the first client, for a method that says so. It takes the steps in a
    round that ``per_round`` clients take on average. Test data stay with their clients."""
    if "data" not in traits_of(algorithm):
        return population, local
    if population.lazy:
        raise ConfigError(
            "does-not-fit",
            "algorithm.name",
            "pooled needs all samples at once",
            found="a federation that is made client by client",
            allowed="lazy = false in [data]",
        )
    sizes = population.sizes("train")
    sizes = sizes[sizes > 0]
    steps = sum(local.count(int(size)) for size in sizes)
    share = min(per_round, len(sizes)) / len(sizes)
    everything = np.concatenate(population.train)
    nothing = np.empty(0, np.int64)
    train = (everything, *(nothing,) * (population.clients - 1))
    budget = replace(local, steps=max(1, round(share * steps)))
    return replace(population, train=train), budget


def adaptation_work(adapt: Adaptation | None, fitted: Fitted) -> Train | None:
    """The training after which clients are scored, too; ``None``: there is none."""
    if adapt is None:
        return None
    return adapt.work(fitted.network.module, _objective(fitted))


def unseen_ids(unseen: Unseen | None, fitted: Fitted, seed: int) -> tuple[int, ...]:
    """The numbers of the clients that never train, ascending."""
    if unseen is None:
        return ()
    return tuple(unseen_clients(unseen, fitted.population, Key(seed)).tolist())


_ONE_MODEL: Mapping[Trait, str] = {"mixture": "clients predict with several models"}
_OWN_DATA: Mapping[Trait, str] = {"data": "the method has all data in one place", **_ONE_MODEL}
_SCORES = (
    # The one client that has all data is scored by its last network as any other is.
    Feature("evaluate.local", "another algorithm, or false", _ONE_MODEL),
    Feature("evaluate.adapt", "another algorithm, or none", _OWN_DATA),
    Feature("evaluate.unseen", "another algorithm, or none", _OWN_DATA),
)


def check_scores(made: Method | Algorithm, experiment: Experiment) -> None:
    """Refuse ways of scoring, as an experiment asks for them, that its method's clients do not have."""
    for feature in _SCORES:
        if attrgetter(feature.path)(experiment):
            feature.check(traits_of(made), experiment.name("algorithm"))


def _objective(fitted: Fitted) -> Objective:
    """What an adapted model minimises: the loss of the task, without what a method adds to it."""
    method = method_of(fitted.algorithm)
    # A network that the objective has changed can be trained by this objective alone.
    if method is not None and isinstance(method.local.objective, Reshaping):
        return method.local.objective
    return plain
