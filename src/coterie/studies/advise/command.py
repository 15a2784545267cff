"""``coterie advise``: reads the data, advises, prints the answer and writes it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from coterie.data import Population
from coterie.errors import ConfigError, CoterieError
from coterie.experiment import Experiment
from coterie.experiment.experiment import fit_to_clients
from coterie.files import refuse_unwritable_output
from coterie.runs.columns import A_REGRESSION, assume_task, warn_of_columns
from coterie.runs.data import load_data
from coterie.studies.advise.advice import advise
from coterie.studies.advise.answer import Advice, evidence
from coterie.studies.advise.configuration import is_bare
from coterie.studies.advise.output import (
    comparison,
    table_notes,
    trial_columns,
    trial_rows,
    write_advice,
)
from coterie.studies.advise.trials import TrialBudget
from coterie.terminal import columns_table, console, counted, duration, say, warn

# A run without [task] stays a classification; advice on a bare table is free to choose.
A_BINARY = (
    "task.kind: the labels have two values, so this is a binary task, measured by AUROC; "
    "--set task.kind=classification measures accuracy"
)
TRY_BINARY = (
    "task.kind: the labels have two values, and without [task] accuracy is measured; "
    "--set task.kind=binary also measures AUROC and calibration"
)


def print_advice(
    path: Path,
    config: Experiment,
    out: Path | None = None,
    set_by_user: Sequence[str] = (),
    budget: TrialBudget = TrialBudget(),
    methods: Sequence[str] = (),
) -> Advice:
    """Advise on a configuration or a file of samples; print the answer and write it. For a file,
    the learning rate and the cohort are chosen unless ``set_by_user`` has them."""
    samples, _, population = load_data(config)
    if not samples.classes and config.task is None:
        warn(A_REGRESSION)
        config = assume_task(fit_to_clients(config, population.clients))
    if population.classes == 2 and config.task is None:
        config = _of_two_classes(config, population, bare=is_bare(path))
    # Columns that are left out, and scales that differ, decide what a short run can show.
    warn_of_columns(config, population)
    if population.lazy:
        what = "a lazy federation"
        expected = "data that are not lazy"
        raise ConfigError("does-not-fit", "advise", what, found=path, allowed=expected)
    # Before any training, so that a folder that cannot be written costs no time.
    folder = _make_folder(out)
    say(f"{_data_text(population)}, {config.name('model')}")
    # For a file of samples, what the user sets is not searched for.
    keys = {assignment.partition("=")[0].strip() for assignment in set_by_user}
    bare = is_bare(path)
    with _taken_away_if_refused(folder):
        found = advise(
            config,
            population,
            search=bare and "local.lr" not in keys,
            bare=bare and "train.clients_per_round" not in keys,
            budget=budget,
            methods=methods,
            report=lambda line: say(f"  {line}"),
        )
    files = write_advice(found, folder)
    _print(found)
    names = ", ".join(file.name for file in files)
    written = f"{counted(len(files), 'file')} in {folder}: {names}"
    say(f"\n{written}; took {duration(found.seconds)}")
    suggested = folder / "suggested.toml"
    say(f"next: coterie run {suggested}")
    say(f"or compare whole runs: {comparison(found, suggested)}")
    return found


def _of_two_classes(config: Experiment, population: Population, *, bare: bool) -> Experiment:
    """The configuration of labels with two values that names no task; one line says which it has."""
    if not bare:
        say(TRY_BINARY)
        return config
    say(A_BINARY)
    return assume_task(fit_to_clients(config, population.clients), "binary")


def _data_text(population: Population) -> str:
    clients = counted(population.clients, "client")
    samples = counted(int(population.sizes("train").sum()), "training sample")
    if not population.classes:
        return f"{clients}, {samples}"
    classes = f"{population.classes} classes"
    if population.classes == 1:
        classes = "1 class"
    return f"{clients}, {samples}, {classes}"


def _print(found: Advice) -> None:
    table = columns_table(trial_columns(found), trial_rows(found))
    lines = ["", found.headline, *evidence(found), "", table, "", *table_notes(found)]
    console().print(*lines, sep="\n", soft_wrap=True)


@contextmanager
def _taken_away_if_refused(folder: Path) -> Iterator[None]:
    """Remove the folder where nothing is written into it; one with other files stays."""
    try:
        yield
    except CoterieError:
        with suppress(OSError):
            folder.rmdir()
        raise


def _make_folder(out: Path | None) -> Path:
    """The folder to write into, made if need be; by default the first new ``runs/advise-<n>``."""
    with refuse_unwritable_output("--out", out or Path("runs")):
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            return out
        for n in itertools.count(1):
            # Made in one step, so that two commands at the same time do not take the same folder.
            with suppress(FileExistsError):
                path = Path("runs") / f"advise-{n}"
                path.mkdir(parents=True)
                return path
    raise AssertionError("itertools.count does not end")
