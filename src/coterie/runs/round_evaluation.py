"""What is measured of the rounds of a run: the scores of the models, and whether planted groups were
found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.clients.round import Round
from coterie.core.groups import Groups
from coterie.core.served import Served
from coterie.core.task import headline_of
from coterie.data.shifts import FederationSnapshot
from coterie.headline import Keys
from coterie.measures.groups import agreement, share_error
from coterie.measures.optional import Measure, RoundView
from coterie.measures.scoring import Scoring, post_scores, score_on_training, score_round
from coterie.measures.unseen import score_unseen
from coterie.methods.algorithm import Algorithm
from coterie.rules.soft_groups import known_shares
from coterie.runs.schedule import Schedule


@dataclass(frozen=True, slots=True)
class RoundEvaluation:
    """What is measured after each round of a run.

    Args:
        scoring: which clients, and by what.
        honest: bool ``[N]``, the clients that do not attack.
        unseen: the clients that never train.
        unseen_labels: whether these have labels.
    """

    scoring: Scoring
    measures: Sequence[Measure]
    honest: NDArray[np.bool_]
    unseen: tuple[int, ...] = ()
    unseen_labels: bool = True

    @classmethod
    def of(cls, schedule: Schedule, population: int) -> RoundEvaluation:
        """What a schedule measures of ``population`` clients."""
        evaluation = schedule.evaluation
        scoring = evaluation.scoring(population, schedule.key)
        honest = schedule.honest(population)
        unseen = (evaluation.unseen, evaluation.unseen_labels)
        return cls(scoring, evaluation.measures, honest, *unseen)

    @property
    def keys(self) -> Keys:
        """The names of the task's headline in a row."""
        return headline_of(self.scoring.task).keys

    def scores(
        self,
        round: Round,
        snapshot: FederationSnapshot,
        served: Served,
        groups: Groups,
        *,
        adapts: bool = True,
    ) -> dict[str, Any]:
        """The metrics of the models, each client scored with the one that serves it.

        Args:
            adapts: whether clients are scored after adaptation, too, where the run says so.
        """
        # What the models do for attackers is no figure of the method.
        testable = snapshot.testable & self.honest
        scoring = self.scoring
        if not adapts:
            scoring = replace(scoring, adapt=None)
        clients = round.clients
        stream = round.key.of("evaluate")
        able = round.trainable(len(groups.member))
        found = score_round(clients, testable, served, groups, stream, scoring, able)
        if scoring.training:
            trainable = snapshot.trainable & self.honest
            stream = round.key.of("training")
            found |= score_on_training(clients, trainable, served, groups, stream, scoring)
        return found

    def post_scores(
        self, round: Round, snapshot: FederationSnapshot, served: Served, groups: Groups
    ) -> Callable[[], dict[str, Any]]:
        """The same of the models before a round moves them, read after it: real clients score them
        in the exchange in which they train."""
        testable = snapshot.testable & self.honest
        stream = round.key.of("evaluate")
        return post_scores(round.clients, testable, served, groups, stream, self.scoring)

    def unseen_scores(
        self, algorithm: Algorithm, groups: Groups, snapshot: FederationSnapshot, round: Round
    ) -> dict[str, Any]:
        """The metrics of clients that never train; none where there are none."""
        if not self.unseen:
            return {}
        ids = np.array(self.unseen)
        tested = ids[snapshot.population.sizes("test")[ids] > 0]
        trainable = np.flatnonzero(snapshot.population.sizes("train") > 0)
        of_unseen = replace(round, cohort=tested, key=round.key.of("unseen"))
        scoring = self.scoring
        return score_unseen(
            algorithm,
            groups,
            of_unseen,
            trainable,
            scoring.adapt,
            scoring.task,
            labels=self.unseen_labels,
        )

    def measured(
        self, round: Round, snapshot: FederationSnapshot, groups: Groups, notes: Mapping[str, Any]
    ) -> dict[str, Any]:
        """How well planted groups of honest clients were found, and what the measures find."""
        key = round.key.of("measure")
        population = snapshot.population
        view = RoundView(round.clients, population, groups, notes, key, round.can_train)
        found: dict[str, Any] = {}
        planted = population.planted
        if planted is not None:
            found["agreement"] = agreement(groups.member[self.honest], planted[self.honest])
        shares = population.planted_shares()
        if shares is not None:
            own = known_shares(groups)
            found["share_error"] = share_error(own[self.honest], shares[self.honest])
        for measure in self.measures:
            found |= measure(view)
        return found
