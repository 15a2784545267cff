"""Coterie from Python: a federation in one call, and a run that is resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from coterie.clients.clients import Clients
from coterie.config.arguments import check_takes, refuse_arguments, validated
from coterie.config.kinds import KINDS
from coterie.config.registry import build
from coterie.config.schema import Count, Seed
from coterie.core import Objective, Solver, Task, headline_of
from coterie.core.target_scaling import scaling_of
from coterie.data.from_python import Choice, Table, data_table, population_of
from coterie.data.population import Population
from coterie.data.rows.reading import frame_columns
from coterie.data.samples import Targets
from coterie.data.shifts import Shift
from coterie.errors import ConfigError
from coterie.experiment import Experiment, Training, check
from coterie.experiment.defaults import without_lowered
from coterie.experiment.tables import CHOICES, table_names
from coterie.export.joining import reopen_with
from coterie.measures.scoring import Evaluate
from coterie.methods.algorithm import Algorithm
from coterie.methods.method import Method
from coterie.privacy.private import Privacy
from coterie.result import Result, Unsaved
from coterie.rules.server import Server
from coterie.rules.weighing import Aggregate, Weigh
from coterie.runs.compose import Composed, compose
from coterie.runs.folder.store import RunFolder
from coterie.runs.from_python import compose_in
from coterie.runs.loop import RoundResult
from coterie.runs.progress import kept_arrays
from coterie.runs.run import Run, execute

ROUNDS = 100  # where a call does not say how many
_ARGUMENTS = (*table_names(), "rounds", "clients_per_round")
OnRound = Callable[[RoundResult], None]


@validated
def run(
    method: Method | Algorithm | Choice | Experiment,
    *,
    data: Population | Table | Any = None,
    model: nn.Module | Choice | None = None,
    local: Solver | Table | None = None,
    rounds: Count | None = None,
    clients_per_round: Count | None = None,
    seed: Seed | None = None,
    train: Training | Table | None = None,
    evaluate: Evaluate | Table | None = None,
    engine: Choice | None = None,
    task: Task | Choice | None = None,
    objective: Objective | Choice | None = None,
    server: Server | Choice | None = None,
    weigh: Weigh | Aggregate | Choice | None = None,
    shift: Shift | Choice | Sequence[Table] | None = None,
    privacy: Privacy | Table | None = None,
    on_round: OnRound | None = None,
    out: str | PathLike[str] | None = None,
    **tables: Any,
) -> Result:
    """Run a federated method on a population.

    Each argument is a table of a configuration (docs/configuration.md has all of them with their
    keys): a record, such as ``ct.Solver(lr=0.1)``, or a mapping of its keys, such as
    ``{"lr": 0.1}``. A choice is a name, a mapping of a name and options, or an object, such as a
    module, a method or a rule. With ``out``, and for ``Result.save``, the folder has the type of an
    object that has no name, and `resume` takes the object again (docs/run-folder.md).

    Args:
        method: such as ``coterie.fedgroup(groups=3)``; or a complete `Experiment`, with which only
            ``on_round`` and ``out`` are allowed.
        data: a population; a source and its partition, as in ``[data]``; or a pandas DataFrame, or
            a table of pyarrow or Polars, with the columns ``client`` and ``y``. Other columns are
            named as in ``{"source": frame, "client": "hospital", "label": "disease"}``, see `load`.
        model: a module, whose parameters are the initial model; or the name of a model, or
            ``module:factory``, initialised from the seed.
        local: how clients train; default 10 epochs, batches of 10, learning rate 0.03.
        rounds: communication rounds; default 100.
        clients_per_round: clients that take part in a round; default 20, or all if there are fewer.
        seed: the seed of all random draws; default 0.
        train: other keys of ``[train]``: sampler, over-selection, when to evaluate, measures.
        evaluate: with which models clients are scored, such as ``{"local": True}``.
        engine: ``pool`` (a process per core), the default, ``serial``, ``vmap`` (many clients at once, for a
            GPU), ``ray`` (a cluster), or one of a plugin, with options such as
            ``{"name": "pool", "workers": 2}``.
        task: what is learned and measured; default classification.
        objective: what clients minimise, in place of the method's objective.
        server: a server optimiser, in place of the method's.
        weigh: the weights of replies, in place of the method's rule.
        shift: how the clients' data change, such as ``coterie.data.shifts.swap_all()``.
        privacy: differential privacy of updates, such as
            ``coterie.Privacy(epsilon=8.0, clip=0.5)``.
        on_round: called after each round.
        out: a new folder for the run, as ``coterie run`` writes it (docs/run-folder.md), so that
            ``coterie resume``, ``report`` and all other commands can read it. ``None``: the run is
            only kept in memory.
        tables: further tables by their names: ``quorum``, ``bounds``, ``checkpoint``, ``log``,
            ``attack``, ``migration``, ``personal``, ``own_model``, ``secure``, ``availability``,
            ``reply_times``, ``asynchronous``.

    Raises:
        ConfigError: for an argument of a wrong type or out of its range, for features that do not
            work together, and, with ``out``, for a function in a table, such as a sampler.
        DataError: for targets that the task cannot learn.
        PrivacyError: if the rounds would spend more privacy than allowed.
        QuorumError: if too few clients answered for too long.

    Example:
        >>> import coterie as ct
        >>> data = ct.load("digits", partition={"kind": "planted", "clients": 12, "groups": 2})
        >>> result = ct.run(ct.fedgroup(groups=2, alpha=3), data=data, model="mclr", rounds=2, engine="serial")
        >>> len(result.accuracy), result.groups.shape
        (2, (12,))
    """
    given = {
        **tables,
        "data": data,
        "model": model,
        "local": local,
        "rounds": rounds,
        "clients_per_round": clients_per_round,
        "seed": seed,
        "train": train,
        "evaluate": evaluate,
        "engine": engine,
        "task": task,
        "objective": objective,
        "server": server,
        "weigh": weigh,
        "shift": shift,
        "privacy": privacy,
    }
    if on_round is not None:
        check_takes("on_round", on_round, ("result",))
    experiment = _experiment(method, given)
    if out is None:
        if experiment.log.to:
            what = "trackers need a run with a folder"
            raise ConfigError("in-conflict", "log.to", what, got=experiment.log.to, do="set out")
        return _in_memory(compose(experiment), on_round)
    # Before anything is computed: digests of large data take a while, too.
    RunFolder.check_free(Path(out))
    composed, folder = compose_in(Path(out).absolute(), experiment)
    with folder.locked():
        execute(composed, folder, on_round)
    return Result.of(composed, folder)


def _experiment(method: Any, given: dict[str, Any]) -> Experiment:
    """What the arguments of a call say, of which ``None`` is one that was not given."""
    if isinstance(method, Experiment):
        others = [name for name, value in given.items() if value is not None]
        refuse_arguments(
            others, given, "only on_round and out with an Experiment", known=_ARGUMENTS
        )
        return method
    refuse_arguments([name for name in given if name == "algorithm"], given, "only the method")
    given["data"] = _loaded_frame(given["data"], given["seed"] or 0, given["task"])
    rounds = given.pop("rounds")
    given["train"] = _training(given["train"], rounds, given.pop("clients_per_round"))
    return check(_tables({"algorithm": method, **given}), file="")


def _is_number(value: Any, number: int) -> bool:
    """Whether a value of any type is this number; arrays compare as they like."""
    return isinstance(value, Integral) and value == number


def _loaded_frame(data: Any, seed: int, task: Any) -> Any:
    """The population of a frame, with or without the options of its columns; other data as they are."""
    table = data_table(data)
    if frame_columns(table.get("source")) is None:
        return data
    return population_of(table, seed, _targets_of(task))


def _targets_of(task: Any) -> Targets:
    """How the labels of a frame are read for a task."""
    if task is None:
        return "auto"
    if not isinstance(task, Task):
        task = build("task", _choice("task", task))
    return "classes" if task.class_labels else "numbers"


def _training(train: Any, rounds: Any, clients_per_round: Any) -> Any:
    """``[train]`` with the two of its keys that are arguments of their own."""
    own = {"rounds": rounds, "clients_per_round": clients_per_round}
    own = {name: value for name, value in own.items() if value is not None}
    table = {} if train is None else train
    if isinstance(train, Training):
        table = without_lowered("train", train)
    if not isinstance(table, Mapping):
        return train
    # The same in both places is no contradiction.
    refuse_arguments(
        [name for name in own if name in table and not _is_number(table[name], own[name])],
        own,
        "one value, here or in train",
    )
    return {"rounds": ROUNDS, **table, **own}


def _tables(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call as `coterie.experiment.check` has them."""
    found = {}
    for name, value in given.items():
        if value is None and name in table_names():
            continue
        if name in CHOICES:
            value = _choice(CHOICES[name], value)
        found[name] = value
    return found


def _choice(kind: str, value: Any) -> Any:
    """The table of a choice that is given by its name alone."""
    if isinstance(value, str):
        return {KINDS[kind].selector: value}
    if isinstance(value, tuple):
        return list(value)
    return value


def _in_memory(composed: Composed, on_round: OnRound | None) -> Result:
    """All rounds of a run that stores nothing, and what they leave."""
    with composed.clients() as clients:
        running = Run.start(composed.spec, clients)
        rows = []
        for result in running.rounds():
            rows.append(result.row)
            if on_round is not None:
                on_round(result)
        return _result(composed, running, clients, rows)


def _result(
    composed: Composed, running: Run, clients: Clients, rows: list[dict[str, Any]]
) -> Result:
    spec = composed.spec
    return Result(
        tuple(rows),
        running.groups,
        spec.network.module,
        spec.algorithm.serve(running.groups),
        clients.stores.parts.state(),
        clients.stores.own_models.state(),
        headline_of(spec.task),
        unsaved=Unsaved(composed, running.progress, kept_arrays(clients)),
        evaluate=composed.experiment.evaluate,
        scaling=scaling_of(spec.task),
    )


@validated
def resume(
    folder: str | PathLike[str],
    *,
    rounds: Count | None = None,
    data: Any = None,
    trust: bool = False,
    on_round: OnRound | None = None,
    **objects: Any,
) -> Result:
    """Continue the run of a folder from its newest checkpoint, as ``coterie resume`` does.

    Args:
        folder: the folder of a run, from Python or from the command line.
        rounds: total number of rounds of the run, more or fewer than before; ``None``: as before.
            The result is bitwise identical to that of a run with this number from the start.
        data: a table of new clients that join the run, with the columns of its own data: a file or
            a pandas DataFrame. The method places them like any newcomers.
        trust: run the code that its configuration names as ``module:factory``, even if it is not
            known to be your own.
        on_round: called after each round.
        objects: the Python objects that the run was given, by the arguments of `run`, such as
            ``model=net`` or ``method=mine``. A network begins with the first weights of the run.

    Raises:
        ConfigError: for an object that is missing or that differs, for fewer rounds than have been
            completed, and if a setting depends on the number of rounds: a cosine schedule of the
            learning rate without ``over``, or noise that was computed from ``epsilon``.
        CheckpointError: if a file of the run is damaged.
        InUseError: if another process is writing to the folder.

    Example:
        >>> import tempfile
        >>> import coterie as ct
        >>> data = ct.load("digits", partition={"kind": "iid", "clients": 6})
        >>> with tempfile.TemporaryDirectory() as place:
        ...     _ = ct.run(ct.fedavg(), data=data, model="mclr", rounds=1, engine="serial", out=f"{place}/run")
        ...     len(ct.resume(f"{place}/run", rounds=3).rows)
        3
    """
    if on_round is not None:
        check_takes("on_round", on_round, ("result",))
    run_folder = replace(RunFolder.open(Path(folder)), objects=objects)
    with run_folder.locked():
        composed, checkpoint = reopen_with(run_folder, data, {}, rounds=rounds, trust=trust)
        execute(composed, run_folder, on_round, checkpoint=checkpoint, resume=True)
    return Result.of(composed, run_folder)
