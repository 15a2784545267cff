"""The strategy: its arguments, and how it starts."""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import Grid

from coterie.clients.bounds import Bounds
from coterie.clients.cohort import Quorum
from coterie.engines.flower.arrays import RecordLayout
from coterie.engines.flower.ordinary import OrdinaryEngine
from coterie.engines.flower.ordinary_messages import Configs, OrdinaryMessages
from coterie.errors import ConfigError
from coterie.flower.strategy.methods import FirstModel, WithMethod, checked_method
from coterie.flower.strategy.metrics import Aggregator
from coterie.flower.strategy.result import ClusteredResult
from coterie.flower.strategy.rounds import EvaluateFn, Rounds
from coterie.flower.strategy.store import Store
from coterie.methods.algorithm import Algorithm, InitAndStep
from coterie.methods.method import Method
from coterie.record_keys import RecordKeys

log = logging.getLogger("flwr")


class ClusteredStrategy(WithMethod):
    """A strategy that runs one of Coterie's methods in any Flower app.

    The ``ClientApp`` stays as it is: each node is sent the model of its group. The arguments are those
    of Flower's ``FedAvg``, and the result has one model for each group.

    Args:
        method: such as ``ct.fedgroup(groups=3)``.
        fraction_train: share of the nodes that trains in a round.
        fraction_evaluate: share of the nodes that evaluates the models after a round.
        min_train_nodes: nodes that train at least.
        min_evaluate_nodes: nodes that evaluate at least.
        min_available_nodes: nodes without which no round begins.
        weighted_by_key: the metric that says how many samples are behind a reply.
        arrayrecord_key: the record of a message with the model.
        configrecord_key: the record of a message with the config.
        train_metrics_aggr_fn: how metrics of a round's training become one record. It gets replies
            without their arrays.
        evaluate_metrics_aggr_fn: how metrics of an evaluation become one record.
        loss_key: the metric of an evaluation with the mean loss, for methods that compare losses; by
            default ``loss``, or the only metric whose name ends so.
        final_layer: the name of the classifier, for methods that compare it; by default the last
            weight matrix and what follows it.
        first_models: ``j ->`` the arrays that model ``j`` begins with, for methods whose models begin
            differently. By default the initial arrays, each with its values in a random order.
        max_nodes: nodes that may take part in the whole run; by default twice those at its start, and
            ten.
        min_replies: replies without which a round does not count.
        bounds: limits on what one node can do to the models.
        several_models: whether clients take several models in one message, by the mods
            ``choose_model`` and ``score_models`` of ``coterie.flower.client_mods``.
        classes: number of classes of the labels, for methods that need counts of them. Clients count
            by the mod ``count_labels``.
        seed: of all random draws of the server.
        out: a folder for the run, new or to go on with: it is written after each round, and a run
            that was ended goes on from its last round. Reports and comparisons read it.

    Raises:
        ConfigError: for a method that needs more of its clients, in one line that says what.

    Example:
        >>> import coterie as ct
        >>> strategy = ClusteredStrategy(ct.fedgroup(groups=3, alpha=5), fraction_train=0.3)
        >>> strategy.fraction_train, strategy.weighted_by_key
        (0.3, 'num-examples')
    """

    def __init__(
        self,
        method: Method | Algorithm | InitAndStep,
        fraction_train: float = 1.0,
        fraction_evaluate: float = 1.0,
        min_train_nodes: int = 2,
        min_evaluate_nodes: int = 2,
        min_available_nodes: int = 2,
        weighted_by_key: str = "num-examples",
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        train_metrics_aggr_fn: Aggregator | None = None,
        evaluate_metrics_aggr_fn: Aggregator | None = None,
        *,
        loss_key: str | None = None,
        final_layer: str | None = None,
        first_models: FirstModel | None = None,
        max_nodes: int | None = None,
        min_replies: int = 1,
        bounds: Bounds | None = None,
        several_models: bool = False,
        classes: int = 0,
        seed: int = 0,
        out: str | PathLike[str] | None = None,
    ) -> None:
        super().__init__(
            fraction_train,
            fraction_evaluate,
            min_train_nodes,
            min_evaluate_nodes,
            min_available_nodes,
            weighted_by_key,
            arrayrecord_key,
            configrecord_key,
            train_metrics_aggr_fn,
            evaluate_metrics_aggr_fn,
        )
        self.method = method
        self.keys = RecordKeys(arrayrecord_key, configrecord_key, weighted_by_key, loss_key)
        self.final_layer = final_layer
        self.out = out
        self.several_models = several_models
        self.algorithm = checked_method(method, classes)
        self.classes = classes
        self.first_models = first_models
        self.max_nodes = max_nodes
        self.quorum = Quorum(min_replies)
        self.bounds = bounds or Bounds(scores=True)
        self.seed = seed

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
    ) -> ClusteredResult:
        """Run the rounds; arguments as of ``flwr.serverapp.strategy.Strategy.start``.

        Args:
            timeout: seconds that an exchange of messages takes at most, and a wait for nodes.
            evaluate_fn: called before the first round and after each, with the arrays of
                `ClusteredResult.arrays`. With several groups that is a mean which may fit no node.

        Raises:
            QuorumError: if there are too few nodes, or too few replies in many rounds in a row.
            ConfigError: for arrays that cannot be averaged, or replies without a loss that the method
                compares.
        """
        configs = Configs(dict(train_config or {}), dict(evaluate_config or {}))
        arrays = RecordLayout.of(initial_arrays, self.final_layer)
        messages = OrdinaryMessages(grid, arrays, self.keys, configs, timeout, self.several_models)
        engine = OrdinaryEngine(messages)
        log.info("Starting ClusteredStrategy with %d rounds", num_rounds)
        began = time.monotonic()
        self.summary()
        store = None
        if self.out is not None:
            store = Store.open(Path(self.out), self.method, num_rounds, self.seed)
        with nullcontext() if store is None else store.locked():
            rounds = Rounds(self, engine, num_rounds, store)
            if evaluate_fn is not None:
                rounds.evaluate_start(initial_arrays, evaluate_fn)
            for result in rounds.run():
                if evaluate_fn is not None:
                    arrays = rounds.mean_model(result.groups)
                    rounds.evaluate_on_server(result.round + 1, arrays, evaluate_fn)
            rounds.finish()
        # As Flower's own strategies end.
        log.info("Strategy execution finished in %.2fs", time.monotonic() - began)
        for line in f"Final results:\n{rounds.result}".splitlines():
            log.info("%s", line)
        return rounds.result

    def _refuse_steps(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse a wrapper that would do one exchange a round, with one model."""
        what = "has several models, and rounds of several exchanges"
        raise ConfigError("does-not-fit", "strategy", what, do="call its start")

    # Not used: a round has as many exchanges as its method needs.
    configure_train = aggregate_train = _refuse_steps
    configure_evaluate = aggregate_evaluate = _refuse_steps
