"""The traits of a run's method, task, attack, data and network, and the refusal of what does not
work with them."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from coterie.core.traits import Feature, Trait, conflicts
from coterie.data.population import Population
from coterie.engines import Attack
from coterie.errors import ConfigError
from coterie.experiment.crosscheck import as_tables
from coterie.experiment.exclusions import FEATURES
from coterie.experiment.experiment import Experiment
from coterie.experiment.objects import make_choice
from coterie.experiment.tables import table_names
from coterie.methods.algorithm import Algorithm
from coterie.methods.method import Method
from coterie.methods.traits import traits_of, traits_of_network, traits_of_task
from coterie.tasks import CLASSIFICATION


def traits_of_run(
    experiment: Experiment,
    made: Method | Algorithm,
    population: Population | None = None,
    module: nn.Module | None = None,
) -> dict[Trait, str]:
    """The traits of a run's method, task, attack, data and network, each with the name of what has
    it."""
    found: dict[Trait, str] = dict.fromkeys(traits_of(made), experiment.name("algorithm"))
    task = make_choice(experiment, "task") or CLASSIFICATION
    found |= dict.fromkeys(traits_of_task(task), task.name)
    attack: Attack | None = make_choice(experiment, "attack")
    if attack is not None and attack.poison is not None:
        found["poisons"] = experiment.name("attack")
    if attack is not None and attack.changes_data:
        found["changes_data"] = experiment.name("attack")
    if population is not None and population.lazy:
        found["lazy"] = "lazy data"
    if module is not None:
        found |= dict.fromkeys(traits_of_network(module), experiment.name("model"))
    return found


def refuse_conflicts(
    experiment: Experiment,
    made: Method | Algorithm,
    population: Population | None = None,
    module: nn.Module | None = None,
    more: Iterable[Feature] = (),
) -> None:
    """Refuse features that do not work with each other, or with a method, a task, an attack, data or
    a network.

    Args:
        made: the method of the experiment.
        population: none where the data are with real clients.
        module: the network; none before it is made.
        more: further features than `FEATURES`.

    Raises:
        ConfigError: with one line for each problem.
    """
    tables = as_tables({name: getattr(experiment, name) for name in table_names()})
    traits = traits_of_run(experiment, made, population, module)
    found = conflicts((*FEATURES, *more), tables, traits)
    if found:
        raise ConfigError.of(found).located(experiment.file)
