"""A call of ``coterie.run`` that stores nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from torch import nn

from coterie.clients.clients import Clients, Quorum
from coterie.config.crosscheck import check_engine
from coterie.config.participation_table import check_participation
from coterie.config.problems import Problem, refuse
from coterie.core.keys import Key
from coterie.core.solver import Solver
from coterie.core.task import headline_of
from coterie.data.population import Population
from coterie.python.folders import Call, Unsaved
from coterie.python.result import Result
from coterie.python.tables import evaluate_table
from coterie.runs.arguments import (
    RuleKind,
    bounds_of,
    check_choice,
    made_shift,
    measures_of,
    named,
    sampler_of,
    with_rules,
)
from coterie.runs.evaluating import adaptation_work, scores_local, unseen_ids
from coterie.runs.features import check_over_selection, private_spec, secure_spec
from coterie.runs.fitting import Fitted, fit_together
from coterie.runs.held_out import on_validation, without_held_out
from coterie.runs.kept import kept_arrays
from coterie.runs.participation import Participation, asked_clients, participation_of
from coterie.runs.run import Run
from coterie.runs.schedule import Evaluation
from coterie.runs.spec import Network, RunSpec

# Rules in place of the method's own.
RULES: tuple[RuleKind, ...] = ("server", "weigh", "objective", "own_model")


def in_memory(call: Call) -> Result:
    """Carry out a call of `run` that stores nothing."""
    local = (call["local"] or Solver()).over_rounds(call["rounds"])
    _check_budget(local)
    # Plain text and no Literal in the signature, since plugins add names.
    check_choice("engine", "engine", call["engine"])
    found = check_engine({"engine": {"name": call["engine"], "threads": call["threads"]}})
    if found:
        refuse(*found)
    _check_participation(call)
    spec = private_spec(_spec_of(call, local), call["privacy"])
    spec = secure_spec(spec, call["secure"])
    # Each engine takes those of them that it knows.
    options = _engine_options(call)
    with spec.make_clients(call["engine"], options) as clients:
        return _carry_out(spec, clients, call)


def _spec_of(call: Call, local: Solver) -> RunSpec:
    """What a call computes, without its noised or rounded sums."""
    seed = call["seed"]
    fitted = _fitted(call, local)
    shift = made_shift(call["shift"])
    if shift is not None and call["evaluate_validation"] is not None:
        what = "samples that are kept from training, in a federation whose data move"
        share = call["evaluate_validation"]
        refuse(Problem("evaluate.validation", what, share, "no shift, or no validation"))
    private = call["privacy"] is not None
    unseen = unseen_ids(call["evaluate_unseen"], fitted, seed)
    per_round = call["clients_per_round"]
    check_over_selection(fitted.algorithm, call["over_selection"], type(call["method"]).__name__)
    sampler = sampler_of(
        call["sampler"],
        fitted.population,
        asked_clients(per_round, call["over_selection"], fitted.population.clients),
        seed,
        shifts=shift is not None,
        private=private,
        unseen=unseen,
    )
    return RunSpec(
        fitted.algorithm,
        fitted.population,
        fitted.network,
        rounds=call["rounds"],
        seed=seed,
        sampler=sampler,
        local=fitted.local,
        quorum=call["quorum"] or Quorum(),
        shift=shift,
        evaluation=_evaluation(call, fitted, unseen),
        bounds=bounds_of(call["bounds"], private=private or call["secure"] is not None),
        attack=named("attack", call["attack"]),
        participation=_participation(call, fitted.population),
    )


def _check_participation(call: Call) -> None:
    """Refuse what does not go together, in the lines of a configuration."""
    tables: dict[str, Any] = {
        "train": {"over_selection": call["over_selection"], "sampler": call["sampler"]},
        "privacy": call["privacy"],
    }
    if call["reply_times"] is not None:
        tables["reply_times"] = asdict(call["reply_times"])
    availability = call["availability"]
    if availability is not None and availability.kind != "file":
        # A configuration has a file where a call has its spans, so these are not compared.
        tables["availability"] = {"kind": availability.kind, "period": availability.period}
    found = check_participation(tables)
    if found:
        refuse(*found)


def _participation(call: Call, data: Population) -> Participation:
    """Who can be asked, and who answers in time."""
    availability = call["availability"]
    if availability is not None:
        availability = replace(availability, names=tuple(data.names))
    return participation_of(
        availability, call["reply_times"], call["over_selection"], call["clients_per_round"]
    )


def _fitted(call: Call, local: Solver) -> Fitted:
    """Method, data, network and task of a call, fitted to each other."""
    seed = call["seed"]
    # A rule may be given as a name, as a table or as a record.
    rules = {name: named(name, call[name]) for name in RULES}
    method = with_rules(
        call["method"], migration=call["migration"], personal=call["personal"], **rules
    )
    data = without_held_out(call["data"], call["hold_out"], Key(seed))
    data = on_validation(data, call["evaluate_validation"], Key(seed))
    network = partial(_network, call["model"], data.shape, seed=seed, l2=local.l2)
    task = named("task", call["task"])
    return fit_together(method, task, network, data, local, call["clients_per_round"], seed)


def _evaluation(call: Call, fitted: Fitted, unseen: tuple[int, ...]) -> Evaluation:
    """What is measured of the rounds of a call."""
    return Evaluation(
        every=call["evaluate_every"],
        clients=call["evaluate_clients"],
        loss=call["evaluate_loss"],
        local=scores_local(call["evaluate_local"], fitted),
        measures=measures_of(call["measures"], fitted),
        task=fitted.task,
        adapt=adaptation_work(call["evaluate_adapt"], fitted),
        unseen=unseen,
        unseen_labels=call["evaluate_unseen_labels"],
        often=call["evaluate_rounds"] == "evaluated",
        training=call["evaluate_training"],
        order=call["evaluate_order"],
    )


def _network(
    model: nn.Module | str | Mapping[str, Any],
    shape: tuple[int, ...],
    outputs: int,
    *,
    seed: int,
    l2: float,
) -> Network:
    """The network of a name, of a table of a name and options, or of a module."""
    options: dict[str, Any] = {}
    # As `[model]` of a configuration.
    if isinstance(model, Mapping):
        options = dict(model)
        model = str(options.pop("name", ""))
    return Network.of(model, shape, outputs, seed, l2, options)


def _check_budget(local: Solver) -> None:
    """Refuse local training without an end."""
    # `Solver` allows neither, for work that brings its own budget; a run needs one.
    if not local.epochs and not local.steps:
        refuse(Problem("local.epochs", "out of range", 0, "an integer >= 1"))


def _engine_options(call: Call) -> dict[str, Any]:
    """The options by the names that engines have for them; each engine takes those it knows."""
    return {
        "workers": call["workers"],
        "threads": call["threads"],
        "round_timeout": call["round_timeout"],
        "device": call["device"],
        "precision": call["precision"],
        "address": call["ray_address"],
    }


def _carry_out(spec: RunSpec, clients: Clients, call: Call) -> Result:
    """All rounds of a run, and what they leave."""
    running = Run.start(spec, clients)
    on_round = call["on_round"]
    # Kept here, since there is no folder that holds them.
    rows = []
    for result in running.rounds():
        rows.append(result.row)
        if on_round is not None:
            on_round(result)
    return Result(
        tuple(rows),
        running.groups,
        spec.network.module,
        spec.algorithm.serve(running.groups),
        clients.stores.parts.state(),
        clients.stores.own_models.state(),
        headline_of(spec.task),
        unsaved=Unsaved(call, running.progress, kept_arrays(clients)),
        evaluate=evaluate_table(call),
    )
