"""From an experiment to all that a run needs before its engine starts: data, network, method.

`compose` is the only place where a run is put together. The command line, Python, studies and
deployments call it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from coterie.clients.clients import Clients
from coterie.config.arguments import check_takes
from coterie.config.choice_tables import DataTable
from coterie.core.availability import Availability, parse_spans, read_spans_text
from coterie.core.keys import Key
from coterie.core.reply_times import ReplyTimes
from coterie.core.target_scaling import TargetScaling, in_units, scaling_of
from coterie.core.task import Task
from coterie.data import Partition, Population
from coterie.data.rows.texts import SHOWN
from coterie.data.shifts import make_shift
from coterie.engines import Attack
from coterie.errors import ConfigError
from coterie.experiment import Experiment
from coterie.experiment.experiment import fit_to_clients
from coterie.experiment.live import refuse_absent
from coterie.experiment.objects import make_choice
from coterie.experiment.traits import refuse_conflicts
from coterie.headline import Headline
from coterie.measures.optional import Measure, make_measures
from coterie.measures.scoring import Evaluation
from coterie.measures.unseen import unseen_clients
from coterie.methods.algorithm import Algorithm
from coterie.methods.buffered import Buffering
from coterie.runs.columns import A_REGRESSION, assume_task, warn_of_columns
from coterie.runs.data import load_data, read_inputs
from coterie.runs.fitting import (
    Fitted,
    adapted_objective,
    asynchronous_spec,
    check_samples,
    fit_together,
    make_method,
    private_spec,
    secure_spec,
)
from coterie.runs.folder.digests import AVAILABILITY
from coterie.runs.held_out import on_validation, without_held_out
from coterie.runs.noise_key import noise_key
from coterie.runs.schedule import Participation, Schedule, asked_clients
from coterie.runs.spec import CohortSampler, RunSpec, cohort_sampler
from coterie.runs.target_scaling import new_scaling, stored_scaling
from coterie.tasks import CLASSIFICATION
from coterie.tasks.fitting import refuse_numbered_classes
from coterie.terminal import warn

TRIED_INPUTS = 32  # made-up samples of each client whose data are elsewhere


@dataclass(frozen=True, slots=True)
class HeldData:
    """The clients' data, and who holds which samples, to be saved with the run: ``None`` for a
    population that was made in Python.

    Args:
        at_hand: ``False`` for a population that stands in for the data of real clients.
        scaling: how targets are scaled, where they are not at hand.
        booleans: columns of yes and no that are inputs as they are.
        warned: whether the user was warned of their columns, as before the trials of an advice.
    """

    population: Population
    partition: Partition | None = None
    label_names: tuple[str, ...] = ()
    at_hand: bool = True
    scaling: TargetScaling | None = None
    booleans: tuple[str, ...] = ()
    warned: bool = False


@dataclass(frozen=True, slots=True)
class Composed:
    """An experiment with all that its run needs before its engine starts; ``data`` are as they were
    before any of them was held out. ``noise``: the key of a private run's noise, ``None``: no noise
    is secret."""

    experiment: Experiment
    spec: RunSpec
    data: HeldData
    spans_text: str | None = None
    noise: Key | None = field(default=None, repr=False)

    @property
    def population(self) -> Population:
        """The clients and their data, as the run trains on them."""
        return self.spec.population

    @property
    def partition(self) -> Partition:
        """Who holds which samples."""
        assert self.data.partition is not None, "the data were created in Python"
        return self.data.partition

    @property
    def module(self) -> nn.Module:
        """The network with its first weights ``w_0``."""
        return self.spec.network.module

    @property
    def predictor(self) -> nn.Module:
        """The network as it predicts: its outputs are in the units of the targets."""
        return in_units(self.module, scaling_of(self.spec.task))

    @property
    def algorithm(self) -> Algorithm:
        return self.spec.algorithm

    @property
    def stem(self) -> str:
        """The default name of the run's folder, without its number."""
        names = [self.experiment.name("algorithm"), self.experiment.name("source")]
        # The name of a folder is on pages and in trackers.
        if self.experiment.privacy is None:
            names.append(str(self.experiment.seed))
        return "-".join(names)

    def clients(self) -> Clients:
        """The clients, reached as ``[engine]`` says. They are a context manager; leaving it ends
        the engine's processes."""
        engine = self.experiment.engine
        load = None
        has_objects = self.experiment.objects or self.experiment.unnamed()
        # A Ray actor on another machine reads the samples there, by the tables.
        if isinstance(self.experiment.data, DataTable) and not has_objects:
            load = partial(read_inputs, self.experiment.resolved(), self.noise)
        return self.spec.make_clients(engine.name, engine.options, load)


def compose(experiment: Experiment, saved: Path | None = None) -> Composed:
    """Load the data, and put the run together. The partition ``saved`` of an earlier run is used
    where it exists, and so are other files in its folder that the run was given."""
    refuse_absent(experiment)
    if isinstance(experiment.data, Population):
        return compose_on(experiment, HeldData(experiment.data))
    noise = noise_key(experiment, saved)
    samples, partition, population = load_data(experiment, saved, noise=noise)
    if not samples.classes and experiment.task is None:
        warn(A_REGRESSION)
        experiment = assume_task(experiment)
    labels = tuple(samples.label_names)
    data = HeldData(population, partition, labels, booleans=samples.booleans)
    return compose_on(experiment, data, saved, noise)


def compose_on(
    experiment: Experiment, data: HeldData, saved: Path | None = None, noise: Key | None = None
) -> Composed:
    """Put a run together on data that are read, or on those that stand in for them. ``noise``: the
    key of a private run that has one already."""
    refuse_absent(experiment)
    experiment = fit_to_clients(experiment, data.population.clients)
    refuse_numbered_classes(make_choice(experiment, "task"), data.population)
    if data.at_hand and not data.warned:
        warn_of_columns(experiment, data.population)
    method = make_method(experiment)
    refuse_conflicts(experiment, method, data.population)
    key = Key(experiment.seed)
    population = without_held_out(data.population, experiment.train.hold_out, key)
    population = on_validation(population, experiment.evaluate.validation, key)
    scaling = _target_scaling(experiment, data, saved)
    fitted = fit_together(experiment, method, population, scaling)
    refuse_conflicts(experiment, method, data.population, fitted.network.module)
    if data.at_hand:
        check_samples(fitted)
    spans_text = _spans_text(experiment.availability, saved)
    spec = _spec(experiment, fitted, spans_text)
    spec = asynchronous_spec(spec, _buffering(experiment))
    # With sums, noised or rounded, in place of what the server computes of single updates.
    noise = noise or _noise_of_columns(experiment, data.population)
    noise = noise or noise_key(experiment, saved)
    spec = private_spec(spec, experiment.privacy, secret=noise)
    spec = secure_spec(spec, experiment.secure)
    return Composed(experiment, spec, data, spans_text, noise)


def _target_scaling(
    experiment: Experiment, data: HeldData, saved: Path | None
) -> TargetScaling | None:
    """How the targets of a run are scaled: as its folder says, or by the training samples that new
    runs begin with, also those that are held out."""
    if not data.at_hand:
        return data.scaling
    if saved is not None and saved.exists():
        return stored_scaling(saved.parent)
    return new_scaling(experiment, data.population)


def _noise_of_columns(experiment: Experiment, population: Population) -> Key | None:
    """The key by which the columns of a private run were noised when its data were loaded, so that
    whoever reads them again draws the same; ``None`` where none were."""
    if experiment.privacy is None or population.table is None:
        return None
    noise = population.table.noise
    if experiment.privacy.randomness == "system":
        return noise
    if noise in (None, Key(experiment.seed)):
        return None
    what = "the columns got noise from a secret when the data were loaded"
    expected = "'system', or data as a table of the configuration"
    raise ConfigError(
        "in-conflict",
        "privacy.randomness",
        what,
        got=experiment.privacy.randomness,
        allowed=expected,
    )


def compose_stand_in(
    experiment: Experiment,
    names: tuple[str, ...],
    shape: Sequence[int],
    classes: tuple[str, ...],
    target_shape: Sequence[int],
    scaling: TargetScaling | None = None,
) -> Composed:
    """A run put together for clients whose data are elsewhere: all hold the same random inputs, and
    no test samples. ``scaling``: of the targets of a regression."""
    train = (np.arange(TRIED_INPUTS),) * len(names)
    test = (np.empty(0, np.int64),) * len(names)
    generator = Key(experiment.seed).of("export").torch()
    inputs = torch.randn(TRIED_INPUTS, *shape, generator=generator)
    # Nothing is scored with these.
    targets = torch.zeros(TRIED_INPUTS, *target_shape)
    if classes:
        targets = targets.long()
    population = Population(inputs, targets, train, test, len(classes), names)
    parts = Partition(train, test, names)
    held = HeldData(population, parts, classes, at_hand=False, scaling=scaling)
    return compose_on(experiment, held)


def _spec(experiment: Experiment, fitted: Fitted, spans_text: str | None) -> RunSpec:
    """The run of an experiment whose parts are fitted to each other."""
    # The data as the method trains on them, which may be pooled.
    population = fitted.population
    key = Key(experiment.seed)
    shift = make_shift(experiment.shifts())
    if callable(experiment.shift):
        shift = experiment.shift
    attack = make_choice(experiment, "attack")
    evaluation = _evaluation(experiment, fitted)
    unseen = evaluation.unseen
    schedule = Schedule(
        _sampler(experiment, population, shifts=shift is not None, unseen=unseen),
        experiment.train,
        key,
        shift=shift,
        evaluation=evaluation,
        attackers=_attackers(attack, population, unseen, key),
        participation=_participation(experiment, tuple(population.names), spans_text),
        quorum=experiment.quorum,
    )
    _check_functions(schedule)
    return RunSpec(
        fitted.algorithm,
        population,
        fitted.network,
        schedule,
        local=fitted.local,
        bounds=experiment.bounds,
        attack=attack,
    )


def _check_functions(schedule: Schedule) -> None:
    """Refuse functions of the user's own that cannot be called as a run does."""
    if schedule.shift is not None:
        check_takes("shift", schedule.shift, ("snapshot", "initial", "round", "placed", "key"))
    takes = ("round", "present") if schedule.asks_with_present else ("round",)
    check_takes("train.sampler", schedule.sampler, takes)
    for measure in schedule.evaluation.measures:
        check_takes("train.measures", measure, ("view",))


def task_headline(experiment: Experiment) -> Headline:
    """What runs of an experiment are measured by."""
    return task_metrics(experiment)[0]


def task_metrics(experiment: Experiment) -> tuple[Headline, ...]:
    """All metrics of an experiment's task, its headline first."""
    task: Task | None = make_choice(experiment, "task")
    return tuple(metric.headline for metric in (task or CLASSIFICATION).metrics)


def _sampler(
    experiment: Experiment, population: Population, *, shifts: bool, unseen: tuple[int, ...]
) -> CohortSampler:
    train = experiment.train
    if callable(train.sampler):
        return train.sampler
    asked = asked_clients(train.clients_per_round, train.over_selection, population.clients)
    return cohort_sampler(
        train.sampler, population, asked, experiment.seed, shifts=shifts, unseen=unseen
    )


def _attackers(
    attack: Attack | None, population: Population, unseen: tuple[int, ...], key: Key
) -> tuple[int, ...]:
    if attack is None:
        return ()
    able = np.flatnonzero(population.sizes("train") > 0)
    # A client that never trains could not attack either.
    able = np.setdiff1d(able, unseen)
    return tuple(attack.attackers(able, population.clients, key).tolist())


def _evaluation(experiment: Experiment, fitted: Fitted) -> Evaluation:
    evaluate = experiment.evaluate
    adapt = None
    if evaluate.adapt is not None:
        adapt = evaluate.adapt.work(fitted.network.module, adapted_objective(fitted))
    unseen: list[int] = []
    if evaluate.unseen is not None:
        key = Key(experiment.seed)
        unseen = unseen_clients(evaluate.unseen, fitted.population, key).tolist()
    found: list[Measure] = []
    for one in experiment.train.measures:
        if isinstance(one, str):
            found += make_measures((one,), fitted.local, fitted.algorithm)
        else:
            found.append(one)
    return Evaluation(
        evaluate,
        fitted.task,
        tuple(found),
        adapt=adapt,
        unseen=tuple(unseen),
        loss=experiment.train.evaluate_loss,
    )


def _spans_text(availability: Availability | None, saved: Path | None) -> str | None:
    """The text of the file that ``[availability]`` names; ``None`` without one."""
    if availability is None or availability.file is None:
        return None
    # A resumed run keeps the file that it began with, whatever the user's own says by now.
    if saved is not None and (saved.parent / AVAILABILITY).is_file():
        return read_spans_text(saved.parent / AVAILABILITY)
    return read_spans_text(Path(availability.file))


def _participation(
    experiment: Experiment, names: tuple[str, ...], spans_text: str | None
) -> Participation:
    availability = experiment.availability
    if availability is not None:
        spans = availability.spans
        if availability.file is not None and spans_text is not None:
            spans = parse_spans(spans_text, Path(availability.file))
        availability = replace(availability, spans=spans, names=names)
        unknown = availability.unknown_clients(len(names))
        if unknown:
            shown = ", ".join(map(repr, unknown[:SHOWN]))
            warn(f"availability: spans of {shown} are ignored: no such client")
    # The clock of asynchronous rounds is that of the method.
    if experiment.asynchronous is not None:
        return Participation(availability)
    times = experiment.reply_times
    if experiment.train.over_selection == 1:
        return Participation(availability, times)
    # Who comes first has to follow from something: without the user's own times from the defaults.
    return Participation(availability, times or ReplyTimes(), experiment.train.clients_per_round)


def _buffering(experiment: Experiment) -> Buffering | None:
    """Asynchronous rounds; ``None``: each round waits for its clients."""
    table = experiment.asynchronous
    if table is None:
        return None
    times = experiment.reply_times or ReplyTimes()
    return replace(table, concurrency=experiment.train.clients_per_round, times=times)
