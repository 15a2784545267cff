"""The rounds of a strategy: Coterie's loop over the nodes of a Flower app."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from torch import Tensor

from coterie.clients.clients import Clients, ModelShape
from coterie.core import NO_GROUP, Groups, IntArray, Key
from coterie.core.startup import work_clock
from coterie.core.work import Score
from coterie.engines.flower.ordinary import EVALUATION, OrdinaryEngine
from coterie.errors import ConfigError
from coterie.experiment import Training
from coterie.flower.strategy.methods import WithMethod, fitted
from coterie.flower.strategy.metrics import Aggregator, metrics_of, node_scores, same_metrics
from coterie.flower.strategy.nodes import SPARE, NodePlaces
from coterie.flower.strategy.result import ClusteredResult, unknown_node
from coterie.flower.strategy.store import NodeScores, Store
from coterie.methods.method import Clustered
from coterie.models.initial import shuffled
from coterie.runs.folder.checkpoints import Checkpoint
from coterie.runs.loop import RoundResult, StartingPoint, simulate
from coterie.runs.round_row import counts_by_name
from coterie.runs.schedule import Schedule

log = logging.getLogger("flwr")

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


class Rounds:
    """The rounds of one call of `ClusteredStrategy.start`."""

    def __init__(
        self,
        strategy: WithMethod,
        engine: OrdinaryEngine,
        rounds: int,
        store: Store | None,
    ) -> None:
        self.strategy = strategy
        self.engine = engine
        self.store = store
        self.groups: Groups | None = None
        self.checkpoint: Checkpoint | None = None
        self.key = Key(strategy.seed)
        self.result = ClusteredResult()
        layout = engine.arrays.layout
        messages = engine.messages
        self.algorithm = fitted(strategy.algorithm, layout)
        least = max(
            strategy.min_available_nodes, strategy.min_train_nodes, strategy.min_evaluate_nodes
        )
        self.nodes = NodePlaces(messages.grid, messages.nodes, least, messages.timeout)
        shape = ModelShape(strategy.classes, layout=layout, sums=())
        self.clients = Clients(engine, shape=shape, bounds=strategy.bounds)
        self.schedule = Schedule(
            self._cohort, Training(rounds), self.key, shift=self.nodes, quorum=strategy.quorum
        )
        self.start = self._resumed()

    @property
    def is_over(self) -> bool:
        """Whether the folder has a complete run, which is only read."""
        if self.store is None or self.start is None:
            return False
        return self.store.folder.results.summary() is not None

    def run(self) -> Iterable[RoundResult]:
        """Run the rounds; the result has the metrics of each when it is yielded."""
        start = self.start
        if self.store is not None and self.is_over:
            what = "its run is complete, so nothing is trained; choose another folder for a new run"
            log.warning("coterie: %s: %s", self.store.folder.path, what)
            return
        if start is not None:
            log.info("coterie: continuing after round %d", start.round)
        else:
            self.nodes.places = self.strategy.max_nodes
        # The first models may need nodes, so some have to be there before the first round.
        self.nodes.gather()
        if start is None:
            begin = len(self.nodes.ids)
            self.nodes.places = max(self.nodes.places or 2 * begin + SPARE, begin)
            start = StartingPoint(state=self._first_groups(begin))
        self.groups = start.state
        population = self.nodes.population()
        if self.store is not None:
            self.nodes.joined = self.store.write_nodes
            self.store.write_nodes(self.nodes.ids, population.clients)
            self.store.begin(population, self.checkpoint)
        first = self.engine.arrays.vector(self.engine.arrays.first)
        for result in simulate(
            self.algorithm, self.clients, population, first, self.schedule, start=start
        ):
            self.groups = result.groups
            self._note(result)
            scores = self._evaluate_in_row(result)
            if self.store is not None:
                self.store.add(result, scores)
            yield result

    def finish(self) -> None:
        """The models and groups after the last round, in the result and in the folder."""
        groups = self.groups
        assert groups is not None, "the run has begun"
        self._note_models(groups)
        if self.store is not None and not self.is_over:
            layout = self.engine.arrays.layout
            self.store.finish(layout, self.nodes.ids, groups.models, groups)

    def _resumed(self) -> StartingPoint | None:
        """Where an earlier run in the same folder ended; ``None``: the run begins."""
        if self.store is None:
            return None
        self.checkpoint = self.store.checkpoint()
        self.nodes.ids += self.store.nodes()
        if self.checkpoint is None:
            return None
        groups = self.checkpoint.groups
        self.groups = groups
        self.nodes.places = len(groups.member)
        self.result.rows += self.store.folder.rows()
        return StartingPoint(self.checkpoint.round, groups)

    def evaluate_start(self, initial: ArrayRecord, evaluate: EvaluateFn) -> None:
        """The server's own evaluation of the models that the rounds begin with."""
        if self.start is None or self.groups is None:
            self.evaluate_on_server(0, initial, evaluate)
        else:
            self.evaluate_on_server(self.start.round, self.mean_model(self.groups), evaluate)

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
            what = (
                "the models must begin with different values, but the initial arrays are constant"
            )
            allowed = "a function of the number of a model"
            raise ConfigError("missing", "first_models", what, allowed=allowed)
        return other

    def _cohort(self, round: int, present: Any) -> IntArray:
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
        row["attendance"] = row.pop("shift")
        trained = {
            int(client)
            for block in result.blocks
            if block.up and block.what == "train"
            for client in block.clients
        }
        replies = self.engine.take_metrics("train")
        replies = {client: replies[client] for client in sorted(trained) if client in replies}
        losses = [self.engine.keys.loss_of(metrics_of(one)) for one in replies.values()]
        if all(loss is None for loss in losses):
            row["loss"] = None
        aggregate = self.strategy.train_metrics_aggr_fn
        metrics, groups = self._aggregated(replies, result.groups, aggregate)
        if metrics is not None:
            self.result.train_metrics_clientapp[number] = metrics
            self.result.train_metrics_groups[number] = groups
        self.result.rows.append(row)
        log.info("[ROUND %d/%d] groups %s, %s", number, self.schedule.rounds, row["sizes"], metrics)

    def mean_model(self, groups: Groups) -> ArrayRecord:
        """The mean of the models of all groups with members."""
        return self.engine.arrays.record(groups.auxiliary(filled=True))

    def _note_models(self, groups: Groups) -> None:
        arrays = self.engine.arrays
        self.result.arrays = self.mean_model(groups)
        self.result.models = [arrays.record(model) for model in groups.models]
        members = groups.member.tolist()
        self.result.groups = {
            node: members[at] for at, node in enumerate(self.nodes.ids) if members[at] != NO_GROUP
        }

        served = self.algorithm.serve(groups)

        def serve(node: int) -> ArrayRecord:
            if node not in self.nodes.ids:
                raise unknown_node(node)
            return arrays.record(served.vector(self.nodes.ids.index(node)))

        self.result.serve = serve

    def _evaluate_in_row(self, result: RoundResult) -> NodeScores | None:
        """Nodes evaluate; the row of the round has what that took, too."""
        row = result.row
        began = work_clock()
        scores = self._evaluate(result)
        took = work_clock() - began
        for part in ("evaluation", "total"):
            row["seconds"][part] += took
        lost, row["exchanges"] = self.engine.messages.take_counts()
        lost += self.clients.ledger.read().refused
        row["refused"] = counts_by_name(lost + Counter(row["refused"]))
        return scores

    def _evaluate(self, result: RoundResult) -> NodeScores | None:
        """Nodes evaluate the models that serve them after the round; ``None`` without any score."""
        strategy = self.strategy
        key = self.key.at(result.round).of(EVALUATION)
        ids = self.nodes.sample(strategy.fraction_evaluate, strategy.min_evaluate_nodes, key)
        if not len(ids):
            return None
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
            if len(groups) > 1:
                for group, found in groups.items():
                    log.info("\t     group %d: %s", group, found)
        scores = node_scores(replies, self.engine.keys)
        if scores is not None:
            result.row.update(scores.columns(result.groups))
        return scores

    def _aggregated(
        self, replies: Mapping[int, RecordDict], groups: Groups, aggregate: Aggregator
    ) -> tuple[MetricRecord | None, dict[int, MetricRecord]]:
        """Metrics of some clients together, and of those of each group."""
        replies = same_metrics(replies)
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
