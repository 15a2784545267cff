"""A federation in one call, for Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from torch import nn

from coterie.clients.bounds import Bounds
from coterie.clients.clients import Clients
from coterie.clients.quorum import Quorum
from coterie.config.arguments import validated
from coterie.config.problems import Problem, refuse
from coterie.config.tables import CLIENTS_PER_ROUND
from coterie.core.keys import Key
from coterie.core.objective import Objective
from coterie.core.solver import Solver
from coterie.core.task import Task, headline_of
from coterie.data import load_population
from coterie.data.population import Population
from coterie.data.shifts import Shift
from coterie.engines import Attack
from coterie.local.device import Precision
from coterie.measures.view import Measure
from coterie.methods.algorithm import Algorithm
from coterie.methods.method import Method
from coterie.rules.migration import Detector, Migration
from coterie.rules.server import Server
from coterie.rules.weighing import Weigh
from coterie.runs.arguments import bounds_of, check_choice, named, sampler_of, with_rules
from coterie.runs.cohort import SamplerName
from coterie.runs.fitting import fit_together
from coterie.runs.loop import RoundResult
from coterie.runs.privacy import Privacy, private_spec
from coterie.runs.result import Result
from coterie.runs.run import Run
from coterie.runs.schedule import Evaluation
from coterie.runs.spec import CohortSampler, Network, RunSpec

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


@validated
def run(
    method: Method | Algorithm,
    *,
    data: Population,
    model: nn.Module | str,
    local: Solver | None = None,
    rounds: Count = 100,
    clients_per_round: Count = CLIENTS_PER_ROUND,
    sampler: SamplerName | CohortSampler | None = None,
    seed: int = 0,
    shift: Shift | None = None,
    engine: str = "pool",
    workers: Count | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    ray_address: str | None = None,
    round_timeout: Seconds | None = None,
    quorum: Quorum | None = None,
    evaluate_every: Count = 1,
    evaluate_clients: Count | None = None,
    evaluate_loss: bool = False,
    evaluate_local: bool = False,
    measures: Sequence[Measure] = (),
    server: Server | str | None = None,
    weigh: Weigh | str | None = None,
    objective: Objective | str | None = None,
    migration: Migration | Detector | None = None,
    bounds: Bounds | bool | None = None,
    attack: Attack | str | None = None,
    task: Task | str | None = None,
    privacy: Privacy | None = None,
    on_round: Callable[[RoundResult], None] | None = None,
) -> Result:
    """Run a federated method on a population.

    Args:
        method: for instance ``coterie.fedgroup(groups=3)``.
        data: the population.
        model: a module, whose parameters are the start, or the name of one, initialised from the
            seed.
        local: local SGD; default 10 epochs, batches of 10, learning rate 0.03.
        rounds: communication rounds.
        clients_per_round: clients that take part in a round, at most all.
        sampler: which clients, by name or as a function of the round; with a shift, of the round
            and of which clients are there and hold samples (bool ``[N]``). Default
            ``cover_then_uniform``, with privacy ``poisson``.
        seed: everything random follows from it.
        shift: how the clients' data change, for instance ``coterie.data.shifts.swap_all()``.
        engine: ``pool`` (a process per core), ``serial``, ``vmap`` (many clients at once, for a
            GPU), ``ray`` (a cluster), or one of a plugin.
        workers: processes of the pool, or actors of Ray; default one per core.
        device: of ``vmap``: ``auto`` (a GPU where there is one), ``cpu``, ``cuda``, ``cuda:1``, ...
        precision: of ``vmap``; ``tf32`` and ``bfloat16`` do not equal the other engines.
        ray_address: of the cluster, ``auto`` for one that runs on this machine; ``None``: one is
            started on it.
        round_timeout: seconds after which the replies of a request count as lost; ``None``: all are
            waited for.
        quorum: when a round counts; default one reply.
        evaluate_every: rounds between evaluations.
        evaluate_clients: score a random sample of so many clients, and state its standard error;
            ``None``: all.
        evaluate_loss: whether the loss on test samples is measured beside the accuracy.
        evaluate_local: whether each client is also scored with the network that it trained last.
        measures: what else to measure in every round, see ``coterie.measures.optional``.
        server: how models move, in place of the method's own: a name of ``coterie list servers``,
            or a rule such as ``coterie.rules.server.yogi(lr=0.01)``.
        weigh: how much replies count, in place of the method's own rule: a name of ``coterie list
            weighs``, or a rule such as ``coterie.rules.robust.trimmed_mean(share=0.1)``.
        objective: what clients minimise, in place of the method's own: a name of ``coterie list
            objectives``, or a record such as ``coterie.objectives.proximal(mu=0.01)``.
        migration: which clients lose their group because their data drifted, in place of the
            method's own: a detector, ``none`` for none, or
            ``coterie.rules.migration.Migration("per_label", tau=0.3)``.
        bounds: how far one client may be from the others of a request, see
            ``coterie.clients.bounds``; ``False``: as far as it likes. By default there are bounds,
            but with privacy, which clips each update by itself, there are none.
        attack: what some clients do to the run: a name of ``coterie list attacks``, or an attack
            such as ``coterie.engines.attacks.sign_flip(share=0.1)``. Accuracies are then of the
            honest clients.
        task: what is learned and measured: a name of ``coterie list tasks``, or a record such as
            ``coterie.tasks.regression("absolute")``; default classification.
        privacy: differential privacy of updates, as ``coterie.Privacy(epsilon=8.0, clip=0.5)``.
        on_round: called after each round.

    Raises:
        ConfigError: for an argument out of its range, and for migration in a method that places no
            clients.
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
    local = (local or Solver()).over_rounds(rounds)
    _check_budget(local)
    # Plain text and no Literal in the signature, since plugins add names.
    check_choice("engine", "engine", engine)
    method = with_rules(method, server, weigh, objective, migration)
    network = partial(Network.of, model, data.shape, seed=seed, l2=local.l2)
    fitted = fit_together(
        method, named("task", task), network, data, local, clients_per_round, seed
    )
    # From here on the data as the method trains on them, which may be pooled.
    data = fitted.population
    private = privacy is not None
    shifts = shift is not None
    sampler = sampler_of(sampler, data, clients_per_round, seed, shifts=shifts, private=private)
    evaluation = Evaluation(
        every=evaluate_every,
        clients=evaluate_clients,
        loss=evaluate_loss,
        local=evaluate_local,
        measures=measures,
        task=fitted.task,
    )
    spec = RunSpec(
        fitted.algorithm,
        data,
        fitted.network,
        rounds=rounds,
        seed=seed,
        sampler=sampler,
        local=fitted.local,
        quorum=quorum or Quorum(),
        shift=shift,
        evaluation=evaluation,
        bounds=bounds_of(bounds, private=private),
        attack=named("attack", attack),
    )
    spec = private_spec(spec, privacy)
    options = _engine_options(workers, round_timeout, device, precision, ray_address)
    with spec.make_clients(engine, options) as clients:
        return _carry_out(spec, clients, on_round)


def _check_budget(local: Solver) -> None:
    """Refuse local training without an end."""
    # `Solver` allows neither, for work that brings its own budget; a run needs one.
    if not local.epochs and not local.steps:
        refuse(Problem("local.epochs", "out of range", 0, "an integer >= 1"))


def _engine_options(
    workers: int | None,
    round_timeout: float | None,
    device: str,
    precision: Precision,
    ray_address: str | None,
) -> dict[str, Any]:
    """The options by the names that engines have for them; each engine takes those it knows."""
    return {
        "workers": workers,
        "round_timeout": round_timeout,
        "device": device,
        "precision": precision,
        "address": ray_address,
    }


def _carry_out(
    spec: RunSpec, clients: Clients, on_round: Callable[[RoundResult], None] | None
) -> Result:
    """All rounds of a run, and what they leave."""
    running = Run.start(spec, clients)
    rows = []
    for result in running.rounds():
        rows.append(result.row)
        if on_round is not None:
            on_round(result)
    served = spec.algorithm.serve(running.groups)
    kept = clients.store.state()
    headline = headline_of(spec.task)
    return Result(tuple(rows), running.groups, spec.network.module, served, kept, headline)


def load(
    source: str | Mapping[str, Any] = "digits",
    *,
    partition: dict[str, Any],
    seed: int = 0,
    root: str | None = None,
    **options: Any,
) -> Population:
    """A population from a named source and partition.

    Args:
        source: a name of ``coterie list datasets``; or a table of ``kind`` and options, as for a
            source with a seed of its own, ``{"kind": "synthetic", "seed": 1}``.
        partition: ``kind`` and its parameters.
        seed: of the partition.
        root: folder of the datasets; default the environment variable ``COTERIE_DATA``.
        options: of the source.

    Example:
        >>> load("digits", partition={"kind": "iid", "clients": 5}).clients
        5
    """
    table = {"kind": source} if isinstance(source, str) else source
    folder = None
    if root:
        folder = Path(root)
    return load_population({**table, **options}, partition, root=folder, key=Key(seed).of("data"))
