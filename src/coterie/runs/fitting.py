"""A method, a task, a network and the clients' data, made to go together before a run, and how its
clients are scored in addition to the usual way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from coterie.clients.cohort import Sampler
from coterie.config import registry
from coterie.core.augment import check_augment
from coterie.core.keys import Key
from coterie.core.objective import Objective, Reshaping
from coterie.core.solver import Solver
from coterie.core.target_scaling import TargetScaling, without_units
from coterie.core.task import Task
from coterie.data.population import Population
from coterie.errors import ConfigError
from coterie.experiment import Experiment
from coterie.experiment.objects import make_choice
from coterie.methods.algorithm import Algorithm, as_algorithm, method_of
from coterie.methods.buffered import Buffering
from coterie.methods.fit_to_model import check_records, fit_to_model
from coterie.methods.method import Method
from coterie.methods.override import override, with_buffer, with_kept_optimizer
from coterie.methods.traits import traits_of
from coterie.models import Network, zeros_for
from coterie.objectives import plain
from coterie.privacy.accounting import Release, check_package
from coterie.privacy.private import Privacy, Repeats, make_private
from coterie.privacy.secure_sums import SecureSums, make_secure
from coterie.runs.spec import RunSpec
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


def make_method(experiment: Experiment) -> Method | Algorithm:
    """The method of an experiment, with the server, the weighing, the objective, the migration, the
    personal layers and the own models of their tables."""
    personal: tuple[str, ...] = ()
    if experiment.personal is not None:
        personal = experiment.personal.layers
    made = override(
        make_choice(experiment, "algorithm"),
        experiment.name("algorithm"),
        server=make_choice(experiment, "server"),
        objective=make_choice(experiment, "objective"),
        migration=experiment.migration,
        weigh=make_choice(experiment, "weigh"),
        personal=personal,
        own_model=make_choice(experiment, "own_model"),
    )
    check_records(made)
    return made


def can_migrate(algorithm: str) -> bool:
    """Whether an algorithm takes ``[migration]``: whether it places clients in groups."""
    # Built, not listed: so it also holds for algorithms of plugins and of the user's own.
    traits = traits_of(registry.build("algorithm", {"name": algorithm}))
    return traits.isdisjoint(("own_step", "places_nobody"))


def make_network(experiment: Experiment, shape: tuple[int, ...], outputs: int) -> Network:
    """The network of an experiment: a module as it is, or that of a name, with weights from the
    seed."""
    model: Any = experiment.model
    if isinstance(model, Network):
        return model
    if isinstance(model, nn.Module):
        # A model of an earlier result predicts in the units of its targets.
        model = without_units(model)
    else:
        model = model.name
    options = experiment.options("model")
    return Network.of(model, shape, outputs, experiment.seed, experiment.local.l2, options)


def fit_together(
    experiment: Experiment,
    made: Method | Algorithm,
    population: Population,
    scaling: TargetScaling | None = None,
) -> Fitted:
    """The method, the task and the network of an experiment, fitted to each other and to the
    data. ``scaling``: of the targets of a regression."""
    # The task first: it says how many outputs the network has.
    task = fit_task(make_choice(experiment, "task"), population, scaling)
    network = make_network(experiment, population.shape, task.outputs)
    # The network's own stream: what an objective adds follows from the seed, and w_0 stays.
    stream = Key(experiment.seed).of("model")
    method, module = fit_to_model(made, network.module, stream)
    local = experiment.solver
    algorithm = as_algorithm(with_kept_optimizer(method, local, module))
    per_round = experiment.train.clients_per_round
    population, local = pool_if_asked(algorithm, population, local, per_round)
    return Fitted(algorithm, task, replace(network, module=module), population, local)


def check_samples(fitted: Fitted) -> None:
    """Refuse samples that the network, the task or the augmentation do not take."""
    population = fitted.population
    module = fitted.network.module
    # Samples of lazy federations are made client by client; what fails there names its client.
    if population.lazy:
        if population.classes:
            x = zeros_for(module, 2, population.shape)
            check_network(fitted.task, module, x, torch.zeros(2, dtype=torch.int64))
        return
    x = population.x[:2]
    check_augment(fitted.local.augment or (), x, table=population.table is not None)
    check_tokens(module, population)
    check_network(fitted.task, module, x, population.y[:2])


def pool_if_asked(
    algorithm: Algorithm, population: Population, local: Solver, per_round: int
) -> tuple[Population, Solver]:
    """All training data with the first client, for a method that says so. It takes the steps in a
    round that ``per_round`` clients take on average. Test data stay with their clients."""
    if "data" not in traits_of(algorithm):
        return population, local
    sizes = population.sizes("train")
    sizes = sizes[sizes > 0]
    steps = sum(local.count(int(size)) for size in sizes)
    share = min(per_round, len(sizes)) / len(sizes)
    everything = np.concatenate(population.train)
    nothing = np.empty(0, np.int64)
    train = (everything, *(nothing,) * (population.clients - 1))
    budget = replace(local, steps=max(1, round(share * steps)))
    return replace(population, train=train), budget


def adapted_objective(fitted: Fitted) -> Objective:
    """What an adapted model minimises: the loss of the task, without what a method adds to it."""
    method = method_of(fitted.algorithm)
    # A network that the objective has changed can be trained by this objective alone.
    if method is not None and isinstance(method.local.objective, Reshaping):
        return method.local.objective
    return plain


# --- asynchronous, private and secure runs --------------------------------------------------------


def asynchronous_spec(spec: RunSpec, rule: Buffering | None) -> RunSpec:
    """The same run with asynchronous rounds, where there is a rule of when models move."""
    if rule is None:
        return spec
    if rule.buffer > rule.concurrency:
        expected = f"at most {rule.concurrency} (train.clients_per_round)"
        what = "more updates than clients that train at the same time"
        got = rule.buffer
        raise ConfigError("out-of-range", "asynchronous.buffer", what, got=got, allowed=expected)
    return replace(spec, algorithm=with_buffer(spec.algorithm, rule))


def private_spec(
    spec: RunSpec, privacy: Privacy | None, repeats: Repeats = Repeats(), secret: Key | None = None
) -> RunSpec:
    """The same run with noised sums in place of what its server computes of single updates, if
    ``privacy`` asks for it."""
    if privacy is None:
        return spec
    check_package()
    schedule = spec.schedule
    method = method_of(spec.algorithm)
    assert method is not None
    assert isinstance(schedule.sampler, Sampler)
    columns = _columns_release(spec.population)
    method, sampler, budget = make_private(
        method,
        privacy,
        schedule.sampler,
        schedule.rounds,
        schedule.key.seed,
        columns,
        repeats,
        secret,
    )
    schedule = replace(schedule, sampler=sampler, budget=budget)
    return replace(spec, algorithm=as_algorithm(method), schedule=schedule)


def secure_spec(spec: RunSpec, sums: SecureSums | None) -> RunSpec:
    """The same run with sums as secure aggregation computes them, where that is asked for."""
    if sums is None:
        return spec
    method = method_of(spec.algorithm)
    assert method is not None
    return replace(spec, algorithm=as_algorithm(make_secure(method, sums)))


def _columns_release(population: Population) -> Release | None:
    """What the description of a table's columns releases; ``None`` without noise or a table."""
    if population.table is None or population.table.raw.encode.noise is None:
        return None
    # All clients take part in it, so nothing is gained by sampling.
    return Release(population.table.raw.encode.noise)
