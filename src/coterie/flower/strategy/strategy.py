"""The strategy: its arguments, and its rounds."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from torch import Tensor

from coterie.algorithms.stocfl import PulledToGlobal
from coterie.clients.bounds import Bounds
from coterie.clients.clients import Clients, ModelShape
from coterie.clients.cohort import Quorum
from coterie.core import NO_GROUP, Groups, Key
from coterie.core.training import WithOwnModel
from coterie.core.traits import of_traits, refuse_traits
from coterie.core.work import Score, Train
from coterie.engines.flower.arrays import RecordLayout, shuffled
from coterie.engines.flower.ordinary import EVALUATION, Configs, OrdinaryEngine, RecordKeys
from coterie.errors import ConfigError
from coterie.experiment import Training
from coterie.flower.strategy.nodes import Nodes, places_for
from coterie.flower.strategy.result import ClusteredResult, unknown_node
from coterie.methods.algorithm import Algorithm, InitAndStep, as_algorithm, method_of, with_method
from coterie.methods.fit_to_model import check_records, on_parameters
from coterie.methods.method import Clustered, Method
from coterie.methods.traits import traits_of
from coterie.runs.loop import RoundResult, StartingPoint, simulate
from coterie.runs.schedule import Schedule

log = logging.getLogger("flwr")

Aggregator = Callable[[list[RecordDict], str], MetricRecord]
FirstModel = Callable[[int], ArrayRecord]
EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]

# What an ordinary ClientApp does not do, and what it would have to offer.
_ORDINARY_CLIENTS = of_traits(
    "method",
    "a method whose clients train and evaluate models, and do nothing else",
    {
        "data": "brings all training data to one place",
        "mixture": "clients would have to train several models on weighted samples",
        "own_model": "clients would have to keep and train a model of their own",
        "keeps_layers": "clients would have to keep layers and not send them",
        "phases": "clients would have to train some layers after others",
        "full_gradient": "clients would have to send one gradient of their whole loss",
        "class_labels": "clients would have to send counts of their labels",
        "migrates": "clients would have to notice that their data drifted",
    },
)


class ClusteredStrategy(FedAvg):
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
        seed: of all random draws of the server.

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
        seed: int = 0,
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
        self.method = _checked(method)
        self.keys = RecordKeys(arrayrecord_key, configrecord_key, weighted_by_key, loss_key)
        self.final_layer = final_layer
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
                `ClusteredResult.arrays`.

        Raises:
            QuorumError: if there are too few nodes, or too few replies in many rounds in a row.
            ConfigError: for arrays that cannot be averaged, or replies without a loss that the method
                compares.
        """
        configs = Configs(dict(train_config or {}), dict(evaluate_config or {}))
        arrays = RecordLayout.of(initial_arrays, self.final_layer)
        engine = OrdinaryEngine(grid, arrays, self.keys, configs, timeout)
        log.info("Starting ClusteredStrategy with %d rounds", num_rounds)
        self.summary()
        rounds = _Rounds(self, engine, num_rounds)
        if evaluate_fn is not None:
            rounds.evaluate_on_server(0, initial_arrays, evaluate_fn)
        last = None
        for last in rounds.run():
            if evaluate_fn is not None:
                rounds.evaluate_on_server(last.round + 1, rounds.mean_model(last), evaluate_fn)
        if last is not None:
            rounds.note_models(last)
        return rounds.result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Not used: a round has as many exchanges as its method needs, see `start`."""
        _refuse_steps()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Not used, see `start`."""
        _refuse_steps()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Not used, see `start`."""
        _refuse_steps()

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Not used, see `start`."""
        _refuse_steps()


def _refuse_steps() -> NoReturn:
    """Refuse a wrapper that would do one exchange a round, with one model."""
    what = "has several models, and rounds of several exchanges"
    raise ConfigError("does-not-fit", "strategy", what, do="call its start")


def _checked(method: Method | Algorithm | InitAndStep) -> Algorithm:
    """The method as an algorithm, if ordinary clients can do what it asks of them."""
    if isinstance(method, str) or callable(method):
        found = method if isinstance(method, str) else getattr(method, "__name__", "a function")
        allowed = "a method, such as coterie.fedgroup(groups=3)"
        raise ConfigError("wrong-type", "method", found=found, allowed=allowed)
    algorithm = as_algorithm(method)
    check_records(algorithm)
    name = "a method"
    slots = method_of(algorithm)
    if slots is not None:
        name = str((slots.made_by or {}).get("name", name))
    # Without its pull, what StoCFL's clients do is an ordinary training.
    if slots is not None and slots.local == Train(how=WithOwnModel(PulledToGlobal(lam=0.0))):
        slots = replace(slots, local=Train())
        algorithm = as_algorithm(with_method(algorithm, slots))
    refuse_traits(_ORDINARY_CLIENTS, traits_of(algorithm), name)
    if slots is not None and getattr(slots.local.objective, "form", "") != "cross_entropy":
        what = "clients would have to minimise a loss of the method, and minimise their own"
        raise ConfigError("does-not-fit", "method", what, found=name)
    return algorithm


class _Rounds:
    """The rounds of one call of `ClusteredStrategy.start`."""

    def __init__(self, strategy: ClusteredStrategy, engine: OrdinaryEngine, rounds: int) -> None:
        self.strategy = strategy
        self.engine = engine
        self.key = Key(strategy.seed)
        self.result = ClusteredResult()
        layout = engine.arrays.layout
        self.algorithm = _fitted(strategy.method, layout.trainable, layout.sizes)
        least = max(
            strategy.min_available_nodes, strategy.min_train_nodes, strategy.min_evaluate_nodes
        )
        self.nodes = Nodes(engine.grid, engine.nodes, least, engine.timeout)
        self.clients = Clients(
            engine, shape=ModelShape(layout=layout, sums=()), bounds=strategy.bounds
        )
        self.schedule = Schedule(
            self._cohort, Training(rounds), self.key, shift=self.nodes, quorum=strategy.quorum
        )

    def run(self) -> Iterable[RoundResult]:
        """Run the rounds; the result has the metrics of each when it is yielded."""
        # The first models may need nodes, so some have to be there before the first round.
        self.nodes.gather()
        begin = len(self.nodes.ids)
        self.nodes.places = max(self.strategy.max_nodes or places_for(begin), begin)
        start = StartingPoint(state=self._first_groups(begin))
        population = self.nodes.population()
        first = self.engine.arrays.vector(self.engine.arrays.first)
        for result in simulate(
            self.algorithm, self.clients, population, first, self.schedule, start=start
        ):
            self._note(result)
            self._evaluate(result)
            yield result

    def evaluate_on_server(self, number: int, arrays: ArrayRecord, evaluate: EvaluateFn) -> None:
        """Metrics of the server's own evaluation, as Flower's strategies have them."""
        found = evaluate(number, arrays)
        if found is not None:
            log.info("Global evaluation after round %d: %s", number, found)
            self.result.evaluate_metrics_serverapp[number] = found

    # --- the beginning ----------------------------------------------------------------------------

    def _first_groups(self, clients: int) -> Groups:
        """The state before the first round, with places for nodes that come later."""
        places = self.nodes.places
        assert places is not None
        if not isinstance(self.algorithm, Clustered):
            return self.algorithm.init(self._first_model, places)
        # A method may begin with at most as many groups as there are nodes now.
        groups = self.algorithm.init(self._first_model, clients)
        return replace(groups, member=np.full(places, NO_GROUP))

    def _first_model(self, number: int) -> Tensor:
        """The model that a group begins with, float32 ``[d]``."""
        arrays = self.engine.arrays
        if number == 0:
            return arrays.vector(arrays.first)
        if self.strategy.first_models is not None:
            return arrays.vector(self.strategy.first_models(number))
        first = arrays.vector(arrays.first)
        rng = self.key.of("model").client(number).generator()
        other = shuffled(first, arrays.layout, rng)
        if torch.equal(first, other):
            what = "models have to begin differently, and the initial arrays are constant"
            allowed = "a function of the number of a model"
            raise ConfigError("missing", "first_models", what, allowed=allowed)
        return other

    def _cohort(self, round: int, present: Any) -> np.ndarray:
        """The nodes that train in a round."""
        strategy = self.strategy
        key = self.key.of("sample").at(round)
        return self.nodes.sample(strategy.fraction_train, strategy.min_train_nodes, key)

    # --- after each round -------------------------------------------------------------------------

    def _note(self, result: RoundResult) -> None:
        """The result after a round's training."""
        number = result.round + 1
        row = result.row
        # Of places that no node has taken nothing is said, nor of steps that only nodes know.
        members = result.groups.member[: len(self.nodes.ids)]
        row["clients_assigned"] = int((members != NO_GROUP).sum())
        row["sizes"] = np.bincount(members + 1, minlength=result.groups.k + 1)[1:].tolist()
        for name in ("local_steps", "changed", "missed"):
            del row[name]
        row["refused"] = dict(sorted((Counter(row["refused"]) + self.engine.take_lost()).items()))
        row["attendance"] = row.pop("shift")
        row["exchanges"] = self.engine.take_exchanges()
        trained = {
            int(client)
            for block in result.blocks
            if block.up and block.what == "train"
            for client in block.clients
        }
        replies = self.engine.take_metrics("train")
        replies = {client: replies[client] for client in sorted(trained) if client in replies}
        if not any(self._has_loss(one) for one in replies.values()):
            row["loss"] = None
        aggregate = self.strategy.train_metrics_aggr_fn
        metrics, groups = self._aggregated(replies, result.groups, aggregate)
        if metrics is not None:
            self.result.train_metrics_clientapp[number] = metrics
            self.result.train_metrics_groups[number] = groups
        self.result.rows.append(row)
        log.info("[ROUND %d/%d] groups %s, %s", number, self.schedule.rounds, row["sizes"], metrics)

    def mean_model(self, result: RoundResult) -> ArrayRecord:
        """The mean of the models of all groups with members after a round."""
        return self.engine.arrays.record(result.groups.auxiliary(filled=True))

    def note_models(self, result: RoundResult) -> None:
        """The models and groups after the last round."""
        groups = result.groups
        arrays = self.engine.arrays
        self.result.arrays = self.mean_model(result)
        self.result.models = [arrays.record(model) for model in groups.models]
        members = groups.member.tolist()
        self.result.groups = {
            node: members[at] for at, node in enumerate(self.nodes.ids) if members[at] != NO_GROUP
        }

        def serve(node: int) -> ArrayRecord:
            if node not in self.nodes.ids:
                raise unknown_node(node)
            return arrays.record(result.served.vector(self.nodes.ids.index(node)))

        self.result.serve = serve

    def _evaluate(self, result: RoundResult) -> None:
        """Nodes evaluate the models that serve them after the round."""
        strategy = self.strategy
        key = self.key.at(result.round).of(EVALUATION)
        ids = self.nodes.sample(strategy.fraction_evaluate, strategy.min_evaluate_nodes, key)
        if not len(ids):
            return
        models, which = result.served.for_clients(ids)
        work = Score("test", sums=())
        reply = self.clients.run(work, ids, models, which, key=key, counts=False)
        replies = self.engine.take_metrics(EVALUATION)
        replies = {client: replies[client] for client in reply.ids.tolist() if client in replies}
        aggregate = strategy.evaluate_metrics_aggr_fn
        metrics, groups = self._aggregated(replies, result.groups, aggregate)
        if metrics is not None:
            self.result.evaluate_metrics_clientapp[result.round + 1] = metrics
            self.result.evaluate_metrics_groups[result.round + 1] = groups
            log.info("\t└──> Aggregated MetricRecord: %s", metrics)

    def _has_loss(self, content: RecordDict) -> bool:
        (metrics,) = content.metric_records.values()
        return self.engine.keys.loss_of(metrics) is not None

    def _aggregated(
        self, replies: Mapping[int, RecordDict], groups: Groups, aggregate: Aggregator
    ) -> tuple[MetricRecord | None, dict[int, MetricRecord]]:
        """Metrics of some clients together, and of those of each group."""
        replies = _alike(replies)
        by_group: dict[int, list[RecordDict]] = {}
        for client, content in replies.items():
            by_group.setdefault(int(groups.member[client]), []).append(content)
        weight = self.engine.keys.weight
        if not replies:
            return None, {}
        of_groups = {
            group: aggregate(some, weight) for group, some in by_group.items() if group != NO_GROUP
        }
        return aggregate(list(replies.values()), weight), dict(sorted(of_groups.items()))


def _fitted(algorithm: Algorithm, trained: int, sizes: tuple[int, ...]) -> Algorithm:
    """The algorithm with a server that averages running statistics."""
    slots = method_of(algorithm)
    if slots is None or trained == len(sizes):
        return algorithm
    server = on_parameters(slots.server, sum(sizes[:trained]))
    return as_algorithm(with_method(algorithm, replace(slots, server=server)))


def _alike(replies: Mapping[int, RecordDict]) -> dict[int, RecordDict]:
    """The replies that have the same metrics as most: others cannot be averaged with them."""

    def form(content: RecordDict) -> tuple[Any, ...]:
        (record,) = content.metric_records.values()
        lengths = {
            name: len(value) if isinstance(value, list) else -1 for name, value in record.items()
        }
        return tuple(sorted(lengths.items()))

    counts = Counter(form(content) for content in replies.values())
    if not counts:
        return {}
    most = counts.most_common(1)[0][0]
    return {client: content for client, content in replies.items() if form(content) == most}
