"""The tables of a configuration, as typed records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, PrivateAttr

from coterie.config.choice_tables import (
    ChoiceKind,
    ChoiceTable,
    DataTable,
    EngineTable,
    KindTable,
    NamedTable,
)
from coterie.config.local_table import Count, LocalTable, NotNegative, Positive
from coterie.config.participation_table import (
    AsynchronousTable,
    AvailabilityTable,
    ReplyTimesTable,
)
from coterie.config.privacy_table import PrivacyTable
from coterie.config.schema import Bool, Float, Int, Table
from coterie.config.secure_table import SecureTable

# Of drift; coterie.rules.migration has their distances.
Detector = Literal["none", "per_label", "counts", "ordinal"]
# K of the experiments of FedGroup and FlexCFL.
CLIENTS_PER_ROUND = 20  # by default, or all clients where there are fewer


class TrainTable(Table):
    """``[train]``: rounds, and who takes part in them."""

    rounds: Count
    clients_per_round: Count = CLIENTS_PER_ROUND
    sampler: Literal["cover_then_uniform", "uniform", "poisson"] = "cover_then_uniform"
    # Asked for each reply that a round waits for.
    over_selection: Annotated[Float, Field(ge=1, le=10)] = 1.0
    # Kept from training, to calibrate probabilities with.
    hold_out: Annotated[Float, Field(gt=0, lt=1)] | None = None
    evaluate_every: Count = 1
    evaluate_clients: Count | None = None
    evaluate_loss: bool = False
    measures: tuple[str, ...] = ()


class AdaptTable(Table):
    """``adapt`` of ``[evaluate]``: the training of a copy of the served model before it is scored."""

    epochs: Count = 1
    layers: tuple[str, ...] = ()


Share = Annotated[Float, Field(gt=0, lt=1)]


class EvaluateTable(Table):
    """``[evaluate]``: with which models clients are scored beside those that serve them; see
    ``docs/measures.md``."""

    # The network that each client trained last, as PACFL's scripts score it.
    local: Bool = False
    adapt: AdaptTable | None = None
    # Also on the samples that clients train on, with the loss.
    training: Bool = False
    # Clients that never train: a share of them, or their names or numbers.
    unseen: Share | tuple[str | Annotated[Int, Field(ge=0)], ...] | None = None
    # Without labels they are placed by their inputs alone, where the method can.
    unseen_labels: Bool | None = None
    # Adapted and unseen clients cost training, so they may be left to the last round.
    rounds: Literal["evaluated", "last"] = "evaluated"
    # Scores choose settings here, so they must not be those of the test samples.
    validation: Share | None = None
    # Of which models a round's figures are, those after its update or those before it. By default
    # real clients score those that they are sent to train, which costs no exchange of its own.
    order: Literal["after", "before"] | None = None


class QuorumTable(Table):
    """``[quorum]``: when a round counts; ``max_wait`` is the time in seconds that skipped rounds in
    a row may take."""

    min_replies: Count = 1
    # A run without any reply must end by itself, and one bad minute must not end it.
    max_skipped_rounds: Annotated[Int, Field(ge=0)] = 10
    max_wait: Positive | None = None


class CheckpointTable(Table):
    """``[checkpoint]``: how often the state is saved, and how many are kept."""

    # By time and not by rounds: a round takes milliseconds or hours, and what a kill may
    # cost is time.
    seconds: NotNegative = 10.0
    # Two, so that there is one to go on from where the newest was damaged.
    keep: Count = 2


class LogTable(Table):
    """``[log]``: which trackers are sent the rounds; ``uri`` and ``experiment`` are those of
    MLflow."""

    to: tuple[str, ...] = ()
    uri: str | None = None
    experiment: str = "coterie"


class MigrationTable(Table):
    """``[migration]``: which clients lose their group because their data drifted; see
    ``docs/shifts.md``."""

    # Not FlexCFL's code, which is `counts`: that compares sorted histograms, so it does not see two
    # clients swap {50, 50, 0, 0} for {0, 0, 50, 50}.
    detector: Detector = "per_label"
    # "20% training data change" is drift: FlexCFL, eq. 9.
    tau: NotNegative = 0.2


class BoundsTable(Table):
    """``[bounds]``: how far one client may be from the others of a request; see
    ``docs/attacks.md``."""

    enabled: Bool = True
    # Multiples of the typical update or claim: always allowed, and never allowed for updates.
    # Chosen on honest runs of six federations, so that hardly anything of them is clipped.
    floor: Annotated[Float, Field(ge=1)] = 3.0
    ceiling: Annotated[Float, Field(ge=1)] = 20.0


class PersonalTable(Table):
    """``[personal]``: layers that stay with their client; see ``docs/personal-layers.md``."""

    layers: tuple[str, ...] = ()


class RunConfig(Table):
    """A checked configuration. Tables are records: ``config.train.rounds``,
    ``config.algorithm.name``.

    Args:
        seed: of every random draw.
        data: the source and its options, and the table ``partition``.
        model: a registered network, or ``module:factory``.
        local: local training.
        train: rounds and sampling.
        evaluate: with which models clients are scored beside those that serve them.
        algorithm: a registered algorithm, or ``module:factory``, and its options.
        engine: how clients are reached.
        quorum: when a round counts.
        bounds: how far one client may be from the others.
        checkpoint: how often the state is saved.
        log: which trackers are sent the rounds.
        shift: what moves as the rounds go by: a table, a list of tables, or nothing.
        server: a server optimiser in place of the algorithm's own, or nothing.
        weigh: how much replies count in place of the algorithm's own rule, or nothing.
        objective: what clients minimise in place of the algorithm's own, or nothing.
        own_model: what clients have of their own beside the algorithm's models, or nothing.
        attack: what some clients of a simulation do to the run, or nothing.
        task: what is learned and measured; nothing: a classification.
        migration: which clients lose their group because their data drifted, in place of the
            algorithm's own; nothing where it has none.
        privacy: differential privacy of updates, or nothing.
        personal: layers that stay with their client.
        secure: sums as secure aggregation computes them, or nothing.
        availability: which clients of a simulation can be reached when, or nothing.
        reply_times: how long clients of a simulation take, or nothing.
        asynchronous: rounds that do not wait for all of their clients, or nothing.
        folder: where ``module:factory`` is found; filled in with the folder that the run was
            started in.
    """

    # Up to the largest integer of TOML; other numbers end at `schema.LARGEST`.
    seed: Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)] = 0
    data: DataTable
    model: NamedTable
    local: LocalTable = LocalTable()
    train: TrainTable
    evaluate: EvaluateTable = EvaluateTable()
    algorithm: NamedTable
    engine: EngineTable = EngineTable()
    quorum: QuorumTable = QuorumTable()
    bounds: BoundsTable = BoundsTable()
    checkpoint: CheckpointTable = CheckpointTable()
    log: LogTable = LogTable()
    shift: KindTable | tuple[KindTable, ...] | None = None
    server: NamedTable | None = None
    weigh: NamedTable | None = None
    objective: NamedTable | None = None
    own_model: NamedTable | None = None
    attack: KindTable | None = None
    task: KindTable | None = None
    migration: MigrationTable | None = None
    privacy: PrivacyTable | None = None
    personal: PersonalTable | None = None
    secure: SecureTable | None = None
    availability: AvailabilityTable | None = None
    reply_times: ReplyTimesTable | None = None
    asynchronous: AsynchronousTable | None = None
    folder: str | None = None
    # Private, so that it is no key of the file and no part of the hash.
    _file: str = PrivateAttr(default="configuration")

    @property
    def file(self) -> str:
        """Where it was read from, for error lines."""
        return self._file

    def choice(self, kind: ChoiceKind) -> ChoiceTable | None:
        """The table of a choice, ``None`` where the configuration has none."""
        tables: Mapping[ChoiceKind, ChoiceTable | None] = {
            "source": self.data,
            "partition": self.data.partition,
            "model": self.model,
            "algorithm": self.algorithm,
            "server": self.server,
            "weigh": self.weigh,
            "objective": self.objective,
            "own_model": self.own_model,
            "attack": self.attack,
            "task": self.task,
        }
        return tables[kind]

    def options(self, kind: ChoiceKind) -> dict[str, Any]:
        """The options of a choice, by the names of its factory's parameters, without the choice
        itself.

        ``options("source")`` leaves out ``root``, which is a place on this machine.
        """
        table = self.choice(kind)
        if table is None:
            return {}
        return table.options

    def shifts(self) -> list[dict[str, Any]]:
        """The tables of ``[shift]`` or ``[[shift]]``, each with its ``kind``, for
        `coterie.data.shifts`.

        Example:
            >>> from coterie.config import check
            >>> tables = {"data": {"source": "digits", "partition": {"kind": "iid"}}, "model": {"name": "mclr"},
            ...           "train": {"rounds": 3, "clients_per_round": 4}, "algorithm": {"name": "fedavg"}}
            >>> check(tables).shifts(), check(tables | {"shift": {"kind": "swap_all"}}).shifts()[0]["p"]
            ([], 0.05)
        """
        if self.shift is None:
            return []
        tables = self.shift if isinstance(self.shift, tuple) else (self.shift,)
        return [{"kind": table.kind, **table.options} for table in tables]

    def resolved(self) -> dict[str, Any]:
        """The configuration with every default filled in, as TOML can hold it (what is ``None`` is
        left out)."""
        # TOML has no null. Mode "json" makes text of paths and lists of tuples.
        return _without_none(self.model_dump(mode="json"))

    def toml(self) -> str:
        """The resolved configuration as TOML."""
        return tomli_w.dumps(self.resolved())


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_none(v) for v in value if v is not None]
    return value
