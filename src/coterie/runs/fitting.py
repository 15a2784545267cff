"""A method, a task, a network and the clients' data, made to go together before a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from coterie.core.augment import check_augment
from coterie.core.keys import Key
from coterie.core.solver import Solver
from coterie.core.task import Task
from coterie.data.population import Population
from coterie.errors import ConfigError
from coterie.methods.algorithm import Algorithm, as_algorithm
from coterie.methods.fit_to_model import check_records, check_solver, check_task, fit_to_model
from coterie.methods.method import Method
from coterie.methods.override import with_kept_optimizer
from coterie.methods.traits import traits_of
from coterie.runs.spec import Network
from coterie.tasks import check_network, check_tokens, fit_task


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a run is made of, each part made for the others.

    Args:
        network: with the parameters that the method's objective adds.
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
    """Fit a method, a task and a network to each other and to the data.

    Args:
        task: what is learned; ``None``: classification.
        make_network: number of outputs -> network with its first weights.
        seed: of what the method's objective adds to the network.
    """
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
    """The method and the network made for each other: an objective may need more parameters.

    Args:
        seed: of what an objective adds.
    """
    check_records(method)
    # The network's own stream: what an objective adds follows from the seed, and w_0 stays.
    fitted, module = fit_to_model(method, network.module, Key(seed).of("model"))
    fitted = with_kept_optimizer(fitted, local, module)
    return as_algorithm(fitted), Network(module, network.decay)


def pool_if_asked(
    algorithm: Algorithm, population: Population, local: Solver, per_round: int
) -> tuple[Population, Solver]:
    """All training data in one place, for a method that says so.

    The first client holds them, and takes the steps in a round that ``per_round`` clients take on
    average. Test data stay with their clients.
    """
    if "data" not in traits_of(algorithm):
        return population, local
    if population.lazy:
        raise ConfigError(
            "algorithm.name: pooled needs all samples at once, got a federation that is made "
            "client by client; expected lazy = false in [data]"
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
