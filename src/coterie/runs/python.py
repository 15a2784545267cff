"""A federation in one call, for Python."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from coterie.config.arguments import validated
from coterie.config.problems import Problem, refuse
from coterie.config.wording import describe
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.objective import Objective
from coterie.core.solver import Solver
from coterie.core.vectors import Layout, state_dict
from coterie.data.population import Population
from coterie.data.shifts import Shift
from coterie.engines import make_clients
from coterie.measures.view import Measure
from coterie.methods.method import Method
from coterie.methods.override import fit_to_model, override
from coterie.methods.serving import model_for
from coterie.methods.step import Algorithm, as_algorithm
from coterie.models import build, decay_for, starts
from coterie.objectives import OBJECTIVES
from coterie.rules.server import SERVERS, Server
from coterie.runs.cohort import Sampler
from coterie.runs.loop import RoundResult, simulate

if TYPE_CHECKING:
    import pandas as pd


Count = Annotated[int, Field(ge=1)]
SAMPLERS = ("uniform", "cover_then_uniform")


@dataclass(frozen=True)
class Result:
    """What a run leaves: a row per round, the last state, and the way back to modules.

    Args:
        rows: one dictionary per round, as in ``rounds.jsonl``.
        state: the groups after the last round.
        module: the network; its own parameters are the start.
    """

    rows: Sequence[dict[str, Any]]
    state: Groups
    module: nn.Module

    @property
    def accuracy(self) -> list[float]:
        """Weighted accuracy per evaluated round, over the clients ever assigned, as fractions."""
        return [row["accuracy"] for row in self.rows if row["accuracy"] is not None]

    @property
    def groups(self) -> IntArray:
        """int64 ``[N]``, the group of each client, -1 without one."""
        return self.state.member

    def vector_for(self, client: int) -> Tensor:
        """The flat parameters that serve a client."""
        return model_for(self.state, client)

    def model_for(self, client: int) -> nn.Module:
        """The network that serves a client, ready to predict."""
        module = copy.deepcopy(self.module)
        values = state_dict(Layout.of(module), self.vector_for(client))
        module.load_state_dict(values, strict=False)
        return module.eval()

    def frame(self) -> pd.DataFrame:
        """The rows as a pandas frame, one column per measure (nested ones joined by a dot)."""
        import pandas as pd

        return pd.json_normalize(list(self.rows))


@validated
def run(
    method: Method | Algorithm,
    *,
    data: Population,
    model: nn.Module | str,
    local: Solver | None = None,
    rounds: Count = 100,
    clients_per_round: Count = 20,
    sampler: Literal["uniform", "cover_then_uniform"]
    | Callable[[int], IntArray] = "cover_then_uniform",
    seed: int = 0,
    shift: Shift | None = None,
    engine: Literal["pool", "serial", "vmap", "ray"] = "pool",
    workers: Count | None = None,
    device: str = "auto",
    precision: Literal["float32", "tf32", "bfloat16"] = "float32",
    ray_address: str | None = None,
    evaluate_every: Count = 1,
    evaluate_clients: Count | None = None,
    measures: Sequence[Measure] = (),
    server: Server | str | None = None,
    objective: Objective | str | None = None,
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
        clients_per_round: clients asked in a round, at most all.
        sampler: which clients, by name or as a function of the round; with a shift, of the round
            and of who is there and holds samples (bool ``[N]``).
        shift: how the clients' data change, for instance ``coterie.data.shifts.swap_all()``.
        seed: everything random follows from it.
        engine: ``pool`` (a process per core), ``serial``, ``vmap`` (many clients at once, for a
            GPU) or ``ray`` (a cluster).
        workers: processes of the pool, or actors of Ray; default one per core.
        device: of ``vmap``: ``auto`` (a GPU where there is one), ``cpu``, ``cuda``, ``cuda:1``, ...
        precision: of ``vmap``; ``tf32`` and ``bfloat16`` do not equal the other engines.
        ray_address: of the cluster, ``auto`` for one that runs on this machine; ``None``: one is
            started here.
        evaluate_every: rounds between evaluations.
        evaluate_clients: score a random sample of so many clients, and state its standard error;
            ``None``: all.
        measures: what else to measure in every round, see ``coterie.measures.optional``.
        server: how models move, in place of the method's own: a name of ``coterie list servers``,
            or a rule such as ``coterie.rules.server.yogi(lr=0.01)``.
        objective: what clients minimise, in place of the method's own: a name of ``coterie list
            objectives``, or a record such as ``coterie.objectives.proximal(mu=0.01)``.
        on_round: called after each round.

    Raises:
        ConfigError: for an argument out of its range.

    Example:
        >>> import coterie as ct
        >>> data = ct.load("digits", partition={"kind": "planted", "clients": 12, "groups": 2})
        >>> result = ct.run(ct.fedgroup(groups=2, alpha=3), data=data, model="mclr", rounds=2, engine="serial")
        >>> len(result.accuracy), result.groups.shape
        (2, (12,))
    """
    local = local or Solver()
    if not local.epochs and not local.steps:
        refuse(Problem("local.epochs", "out of range", 0, "an integer >= 1"))
    key = Key(seed)
    module = (
        build(model, data.shape, data.classes, key.of("model")) if isinstance(model, str) else model
    )
    decay = decay_for(model if isinstance(model, str) else None, module, local.l2)
    method = override(
        method,
        type(method).__name__,
        server=_named("server", server, SERVERS),
        objective=_named("objective", objective, OBJECTIVES),
    )
    method, module = fit_to_model(method, module, key.of("model"))
    if isinstance(sampler, str):
        if sampler not in SAMPLERS:
            expected = f"{describe(Literal[SAMPLERS])}, or a function of the round"
            refuse(Problem("sampler", "unknown choice", sampler, expected))
        clients = np.arange(data.clients) if shift else np.flatnonzero(data.sizes("train") > 0)
        sampler = Sampler(sampler, clients, clients_per_round, key)
    door = make_clients(
        engine,
        data,
        module,
        local,
        decay=decay,
        workers=workers,
        device=device,
        precision=precision,
        address=ray_address,
    )
    rows = []
    last = None
    with door:
        rounds_of = simulate(
            as_algorithm(method),
            door,
            data,
            starts(module, key),
            sampler,
            rounds,
            key,
            shift=shift,
            evaluate_every=evaluate_every,
            evaluate_clients=evaluate_clients,
            measures=measures,
        )
        for last in rounds_of:
            rows.append(last.row)
            if on_round is not None:
                on_round(last)
    assert last is not None
    return Result(tuple(rows), last.groups, module)


def _named(argument: str, value: Any, known: Mapping[str, Callable[..., Any]]) -> Any:
    """A rule by its name, with the defaults of its options; a rule as it is."""
    if not isinstance(value, str):
        return value
    if value not in known:
        refuse(
            Problem(
                argument,
                "unknown choice",
                value,
                f"{describe(Literal[tuple(known)])}, or a rule of coterie's",
            )
        )
    return known[value]()


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
    from pathlib import Path

    from coterie.data import load_population

    table = source if isinstance(source, Mapping) else {"kind": source}
    return load_population(
        {**table, **options}, partition, root=Path(root) if root else None, key=Key(seed).of("data")
    )
