"""A federation in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import nn

from coterie.clients.bounds import Bounds
from coterie.clients.clients import Quorum
from coterie.clients.cohort import SamplerName
from coterie.config.arguments import validated
from coterie.config.tables import CLIENTS_PER_ROUND
from coterie.core.objective import Objective
from coterie.core.own_model import OwnModel
from coterie.core.reply_times import ReplyTimes
from coterie.core.solver import Solver
from coterie.core.task import Task
from coterie.data.population import Population
from coterie.data.shifts import Shift
from coterie.engines import Attack
from coterie.local.device import Precision
from coterie.measures.optional import Measure
from coterie.measures.own_models import Adaptation
from coterie.methods.algorithm import Algorithm
from coterie.methods.method import Method
from coterie.privacy.private import Privacy
from coterie.privacy.secure_sums import SecureSums
from coterie.python.checks import check_call
from coterie.python.folders import run_in_folder
from coterie.python.in_memory import in_memory
from coterie.python.result import Result
from coterie.rules.migration import Detector, Migration
from coterie.rules.server import Server
from coterie.rules.weighing import Weigh
from coterie.runs.availability import Availability
from coterie.runs.loop import RoundResult
from coterie.runs.spec import CohortSampler

# The name of a choice, or a table of its name and its options, as a configuration has it.
Choice = str | Mapping[str, Any]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Seconds = Annotated[float, Field(gt=0)]
OverSelection = Annotated[float, Field(ge=1, le=10)]


@validated
def run(
    method: Method | Algorithm,
    *,
    data: Population,
    model: nn.Module | str | Mapping[str, Any],
    local: Solver | None = None,
    rounds: Count = 100,
    clients_per_round: Count = CLIENTS_PER_ROUND,
    sampler: SamplerName | CohortSampler | None = None,
    over_selection: OverSelection = 1.0,
    availability: Availability | None = None,
    reply_times: ReplyTimes | None = None,
    seed: int = 0,
    shift: Shift | str | Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    engine: str = "pool",
    workers: Count | None = None,
    threads: Count = 1,
    device: str = "auto",
    precision: Precision = "float32",
    ray_address: str | None = None,
    round_timeout: Seconds | None = None,
    quorum: Quorum | None = None,
    evaluate_every: Count = 1,
    evaluate_clients: Count | None = None,
    evaluate_loss: bool = False,
    evaluate_local: bool = False,
    evaluate_training: bool = False,
    evaluate_adapt: Adaptation | None = None,
    evaluate_unseen: Share | tuple[str | int, ...] | None = None,
    evaluate_unseen_labels: bool = True,
    evaluate_rounds: Literal["evaluated", "last"] = "evaluated",
    evaluate_validation: Share | None = None,
    evaluate_order: Literal["after", "before"] = "after",
    hold_out: Share | None = None,
    measures: Sequence[Measure | str] = (),
    server: Server | Choice | None = None,
    weigh: Weigh | Choice | None = None,
    objective: Objective | Choice | None = None,
    migration: Migration | Detector | None = None,
    bounds: Bounds | bool | None = None,
    attack: Attack | Choice | None = None,
    task: Task | Choice | None = None,
    privacy: Privacy | None = None,
    personal: tuple[str, ...] = (),
    own_model: OwnModel | Choice | None = None,
    secure: SecureSums | None = None,
    on_round: Callable[[RoundResult], None] | None = None,
    out: str | PathLike[str] | None = None,
) -> Result:
    """Run a federated method on a population.

    Choices that a configuration names can be given as there: by name, or as a table of the name and
    the options, such as ``task={"kind": "regression", "loss": "absolute"}``. With ``out``, and for
    ``Result.save``, all of them must be, or be made by a factory such as `coterie.fedgroup`.

    Args:
        method: for instance ``coterie.fedgroup(groups=3)``.
        data: the population.
        model: a module, whose parameters are the start, or the name of one, or ``module:factory``,
            initialised from the seed.
        local: local SGD; default 10 epochs, batches of 10, learning rate 0.03.
        rounds: communication rounds.
        clients_per_round: clients that take part in a round, at most all.
        sampler: which clients, by name or as a function of the round; with a shift, of the round
            and of which clients are there and hold samples (bool ``[N]``). Default
            ``cover_then_uniform``, with privacy ``poisson``.
        over_selection: how many clients are asked for each reply that a round waits for; the others
            come too late.
        availability: which clients can be reached in which rounds, as
            ``coterie.runs.availability.Availability("day_night", share=0.5)``; ``None``: always all.
        reply_times: how long clients take, as
            ``coterie.core.reply_times.ReplyTimes(deadline=3.0)``; ``None``: all answer in time.
        seed: everything random follows from it.
        shift: how the clients' data change, for instance ``coterie.data.shifts.swaps()``.
        engine: ``pool`` (a process per core), ``serial``, ``vmap`` (many clients at once, for a
            GPU), ``ray`` (a cluster), or one of a plugin.
        workers: processes of the pool, or actors of Ray; default as many as there are cores for their
            threads.
        threads: how many the training of one client uses (``pool``, ``serial`` and ``ray``), for rounds
            with fewer clients than there are cores. Another number changes the last digits.
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
        evaluate_training: whether clients are also scored on their training samples, with the loss.
        evaluate_adapt: the training of a copy of the served model after which each client is scored,
            too, as ``coterie.Adaptation(epochs=1, layers=("head",))``; ``None``: none.
        evaluate_unseen: a share of the clients, or names or numbers of clients, that never train and
            are scored as newcomers.
        evaluate_unseen_labels: whether these have labels. Without them they are placed by their inputs
            alone, where the method can.
        evaluate_rounds: whether those two are done in every evaluated round, or in the last alone.
        evaluate_validation: share of each client's training samples on which it is scored in place
            of its test samples, and does not train; to choose settings by. ``None``: none.
        evaluate_order: whether the figures of a round are of the models ``after`` its update, or
            ``before`` it, as in a federation of real clients. The last round is scored after it.
        hold_out: share of each client's training samples that is kept from training, so that
            ``Result.predict`` can calibrate probabilities.
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
        personal: layers that stay with their client, as ``["head"]`` or ``["norm"]``, see
            ``coterie.core.keep.keep_layers``.
        own_model: what clients have of their own beside the method's models: a name of ``coterie list
            own_models``, or a record such as ``coterie.algorithms.ditto.Ditto(lam=0.1)``.
        secure: sums as secure aggregation computes them, as ``coterie.SecureSums(levels=2**16)``. Then
            there are no bounds by default, either.
        on_round: called after each round.
        out: the folder of the run, a new one: it is what ``coterie run`` leaves (docs/run-folder.md),
            so ``coterie resume``, ``report`` and all other commands know it. ``None``: the run is
            in memory alone.

    Raises:
        ConfigError: for an argument of another type or out of its range, for migration in a method that places no
            clients, and with ``out`` for an argument that no configuration can name.
        DataError: for targets that the task cannot learn.
        PrivacyError: if the rounds would spend more privacy than allowed.
        QuorumError: if too few clients answered for too long.

    Example:
        >>> import coterie as ct
        >>> data = ct.load("digits", partition={"kind": "planted", "clients": 12, "groups": 2})
        >>> result = ct.run(ct.fedgroup(groups=2, alpha=3), data=data, model="mclr", rounds=2, engine="serial")
        >>> len(result.accuracy), result.groups.shape
        (2, (12,))
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = ct.run(ct.fedavg(), data=data, model="mclr", rounds=1, engine="serial", out=f"{folder}/run")
        ...     sorted(path.name for path in result.folder.glob("*.json"))
        ['digests.json', 'summary.json']
    """
    # First of all, when there are no other local names.
    call = dict(locals())
    check_call(call)
    if out is not None:
        return Result.of(*run_in_folder(call, Path(out), on_round))
    return in_memory(call)
