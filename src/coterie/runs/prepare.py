"""From a configuration to all that a run needs before its engine starts: data, network, method."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch import nn

from coterie.clients.clients import Clients
from coterie.config import RunConfig
from coterie.config.reading import fit_to_clients
from coterie.core.keys import Key
from coterie.data import Partition, Population
from coterie.data.shifts import make_shift
from coterie.measures.optional import make_measures
from coterie.methods.algorithm import Algorithm
from coterie.runs.availability import read_spans_text
from coterie.runs.columns import A_REGRESSION, assume_task, warn_of_columns
from coterie.runs.configured import (
    make_adaptation,
    make_attack,
    make_bounds,
    make_buffering,
    make_method,
    make_network,
    make_participation,
    make_privacy,
    make_quorum,
    make_secure_sums,
    make_solver,
    make_task,
)
from coterie.runs.data import load_data, read_inputs
from coterie.runs.digests import AVAILABILITY
from coterie.runs.evaluating import adaptation_work, scores_local, unseen_ids
from coterie.runs.features import asynchronous_spec, check_over_selection, private_spec, secure_spec
from coterie.runs.fitting import Fitted, fit_together
from coterie.runs.held_out import on_validation, without_held_out
from coterie.runs.participation import asked_clients
from coterie.runs.schedule import Evaluation
from coterie.runs.spec import CohortSampler, RunSpec, cohort_sampler
from coterie.terminal import warn


@dataclass(frozen=True, slots=True)
class Prepared:
    """A configuration with all that its run needs before its engine starts.

    Args:
        config: the configuration.
        spec: what the run computes.
        partition: who holds which samples, to be saved with the run.
        label_names: of the classes, or none.
        spans_text: of the file that ``[availability]`` names, to be saved with the run.
    """

    config: RunConfig
    spec: RunSpec
    partition: Partition
    label_names: tuple[str, ...] = ()
    spans_text: str | None = None

    @property
    def population(self) -> Population:
        """The clients and their data."""
        return self.spec.population

    @property
    def module(self) -> nn.Module:
        """The network with its first weights ``w_0``."""
        return self.spec.network.module

    @property
    def algorithm(self) -> Algorithm:
        """What runs."""
        return self.spec.algorithm

    @property
    def stem(self) -> str:
        """The default name of the run's folder, without its number."""
        config = self.config
        return f"{config.algorithm.name}-{config.data.source}-{config.seed}"

    def clients(self) -> Clients:
        """The clients, reached as ``[engine]`` says. They are a context manager; leaving it ends
        the engine's processes."""
        engine = self.config.engine
        # A Ray actor on another machine reads the samples there, by the configuration.
        load = partial(read_inputs, self.config.resolved())
        return self.spec.make_clients(engine.name, engine.options, load)


def prepare(config: RunConfig, saved: Path | None = None) -> Prepared:
    """Load the data, build the network and the algorithm.

    Args:
        config: the configuration.
        saved: the partition of an earlier run, used where it is there, and so are other files beside
            it that the run was given.

    Raises:
        DataError: if the data cannot be read.
        ConfigError: if data, network and options do not go together.
    """
    samples, partition, population = load_data(config, saved)
    config = fit_to_clients(config, population.clients)
    if not samples.classes and config.task is None:
        warn(A_REGRESSION)
        config = assume_task(config)
    warn_of_columns(config, population)
    population = without_held_out(population, config.train.hold_out, Key(config.seed))
    population = on_validation(population, config.evaluate.validation, Key(config.seed))
    return prepare_on(config, population, partition, tuple(samples.label_names), saved)


def prepare_on(
    config: RunConfig,
    population: Population,
    partition: Partition,
    label_names: tuple[str, ...],
    saved: Path | None = None,
) -> Prepared:
    """Build the network and the algorithm for data that are at hand.

    Args:
        config: the configuration.
        population: the clients and their data.
        partition: who holds which samples.
        label_names: of the classes, or none.
        saved: see `prepare`.

    Raises:
        ConfigError: if data, network and options do not go together.
        DataError: for a file of ``[availability]`` that cannot be read.
    """
    spans_text = _spans_text(config, saved)
    fitted = fit_together(
        make_method(config),
        make_task(config),
        partial(make_network, config, population.shape),
        population,
        make_solver(config),
        config.train.clients_per_round,
        config.seed,
    )
    # The data as the method trains on them, which may be pooled.
    population = fitted.population
    unseen = unseen_ids(config.evaluate.unseen, fitted, config.seed)
    shift = make_shift(config.shifts())
    spec = RunSpec(
        fitted.algorithm,
        population,
        fitted.network,
        rounds=config.train.rounds,
        seed=config.seed,
        sampler=_sampler(config, population, shifts=bool(shift), unseen=unseen),
        local=fitted.local,
        quorum=make_quorum(config),
        shift=shift,
        evaluation=_evaluation(config, fitted, unseen),
        attack=make_attack(config),
        bounds=make_bounds(config),
        participation=make_participation(config, tuple(population.names), spans_text),
    )
    check_over_selection(fitted.algorithm, config.train.over_selection, config.algorithm.name)
    spec = asynchronous_spec(spec, make_buffering(config), config.algorithm.name)
    return Prepared(config, _with_sums(spec, config), partition, label_names, spans_text)


def _spans_text(config: RunConfig, saved: Path | None) -> str | None:
    """The text of the file that ``[availability]`` names; ``None`` without one."""
    table = config.availability
    if table is None or table.file is None:
        return None
    # A run goes on with the file that it began with, whatever the user's own says by now.
    if saved is not None and (saved.parent / AVAILABILITY).is_file():
        return read_spans_text(saved.parent / AVAILABILITY)
    return read_spans_text(Path(table.file))


def _sampler(
    config: RunConfig, population: Population, *, shifts: bool, unseen: tuple[int, ...]
) -> CohortSampler:
    """Which clients are asked in a round; more than are needed where some come too late."""
    train = config.train
    asked = asked_clients(train.clients_per_round, train.over_selection, population.clients)
    return cohort_sampler(
        train.sampler, population, asked, config.seed, shifts=shifts, unseen=unseen
    )


def _evaluation(config: RunConfig, fitted: Fitted, unseen: tuple[int, ...]) -> Evaluation:
    """What is measured of the rounds."""
    train = config.train
    evaluate = config.evaluate
    return Evaluation(
        every=train.evaluate_every,
        clients=train.evaluate_clients,
        loss=train.evaluate_loss,
        local=scores_local(evaluate.local, fitted),
        measures=make_measures(train.measures, fitted.local, fitted.algorithm, fitted.task),
        task=fitted.task,
        adapt=adaptation_work(make_adaptation(config), fitted),
        unseen=unseen,
        unseen_labels=config.evaluate.unseen_labels is not False,
        often=evaluate.rounds == "evaluated",
        training=evaluate.training,
        order=evaluate.order or "after",
    )


def _with_sums(spec: RunSpec, config: RunConfig) -> RunSpec:
    """The run whose server sees sums, noised or rounded, where the configuration asks for them."""
    name = config.algorithm.name
    spec = private_spec(spec, make_privacy(config), name)
    return secure_spec(spec, make_secure_sums(config), name)
