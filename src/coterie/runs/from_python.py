"""The folder of a run from Python: names in place of its objects, and the data that have none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coterie.config.choice_tables import Absent
from coterie.core.keys import Key
from coterie.data.population import Population
from coterie.data.sources.saved import POPULATION, partition_of_population, population_bytes
from coterie.experiment import Experiment
from coterie.experiment.experiment import fit_to_clients
from coterie.experiment.naming import has_origin, named
from coterie.runs.compose import Composed, HeldData, compose, compose_on
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import make_folder


def compose_in(
    place: Path, experiment: Experiment, data: HeldData | None = None, noise: Key | None = None
) -> tuple[Composed, RunFolder]:
    """A run put together, and its new folder, which names all that it follows from."""
    files: dict[str, bytes] = {}
    if isinstance(experiment.data, Population):
        population = experiment.data
        experiment = named(fit_to_clients(experiment, population.clients), place)
        data, files = _held(population, experiment.seed)
    else:
        experiment = named(experiment, place)
    if data is None:
        composed = compose(experiment)
    else:
        composed = compose_on(experiment, data, noise=noise)
    return composed, make_folder(composed, place, files)


def _held(population: Population, seed: int) -> tuple[HeldData, dict[str, bytes]]:
    """A population with its partition, and the files that hold it where nothing names it."""
    origin = population.origin
    if origin is not None and has_origin(population, seed):
        data = HeldData(population, origin.parts, origin.label_names, booleans=origin.booleans)
        return data, {}
    parts = partition_of_population(population)
    names = tuple(str(label) for label in range(population.classes))
    booleans: tuple[str, ...] = ()
    if origin is not None and origin.from_frame:
        names = origin.label_names
        booleans = origin.booleans
    data = HeldData(population, parts, names, booleans=booleans)
    return data, {POPULATION: population_bytes(population)}


def objects_of(experiment: Experiment) -> dict[str, Any]:
    """The objects of a run with a folder, by the arguments of `coterie.run`."""
    return {
        Absent(place, table).argument: getattr(experiment, place)
        for place, table in experiment.objects.items()
    }
