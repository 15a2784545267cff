"""What a client is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import FloatArray
from coterie.core.describe import Describe
from coterie.core.keep import Keep, KeepLayers
from coterie.core.objective import Objective, for_task, plain
from coterie.core.own_model import OwnModel, TrainsAsSent
from coterie.core.plan import ClientShares
from coterie.core.solver import Solver
from coterie.core.task import CORRECT, SumShapes, Task
from coterie.core.training import (
    Epochs,
    FullGradient,
    How,
    Mixture,
    Phases,
    Steps,
    WeightedSamples,
    WithOwnModel,
)


@dataclass(frozen=True, slots=True)
class Train:
    """Local training.

    Args:
        objective: what the client minimises; by default the cross-entropy, or the loss of the run's task.
        how: the kind of training: `Epochs` or `Steps` of the run's solver, `FullGradient`, `Phases`,
            `WithOwnModel` or `Mixture`.
        upload: ``(start, stop)``: only this slice of the update leaves the client. No coordinate of
            it may stay with the client.
        choose: ``least_loss``: the client is sent ``r`` models (``which`` is ``[n, r]``), computes
            the summed loss of each on its whole training set, and trains from the one with the
            lowest; ties go to the lowest column. The reply contains its number as ``choice``.
            Losses do not leave the client.
        keep: coordinates that never leave the client. The reply's ``delta`` has only the others,
            ``[d - kept]``. The client stores them, and its next training and evaluation start from
            its stored values; a client that never trained uses those of the model it is sent. A
            method names layers; they are converted to coordinates when it is fitted to its network.
        clip: the largest length of an update, for clients that clip their own updates: a longer
            update is scaled to this length, and the reply's ``clipped`` is 1, otherwise 0. Clients
            of a simulation do not clip.
        trial: whether the training only gives information about the client: it starts from the
            model as it was sent, even if the client has stored coordinates, and stores nothing. So
            the updates of all clients of a trial have the same start and can be compared.

    Raises:
        ValueError: if a coordinate of ``upload`` stays with the client, for a mixture together with
            ``keep`` or ``choose``, and for a client's own model together with ``keep``, unless its
            rule is a `TrainsAsSent`.
    """

    objective: Objective = plain
    how: How = Epochs()
    upload: tuple[int, int] | None = None
    choose: Literal["least_loss"] | None = None
    keep: Keep | KeepLayers | None = None
    clip: float | None = None
    trial: bool = False

    def __post_init__(self) -> None:
        rule = self.own_model
        if rule is not None and self.keep is not None and not isinstance(rule, TrainsAsSent):
            raise ValueError(
                f"own_model: the rule trains the whole model, got {rule} and kept coordinates; "
                "expected one of them"
            )
        if self.mixture and (self.keep is not None or self.choose is not None):
            raise ValueError(
                "how: a mixture trains whole models, got one with keep or choose; expected "
                "neither of them"
            )
        if not isinstance(self.keep, Keep) or self.upload is None:
            return
        if self.keep.overlaps(*self.upload):
            raise ValueError(
                f"upload: overlaps with kept coordinates, got {self.upload}; "
                f"expected a slice that does not overlap {self.keep.spans}"
            )

    @property
    def own_model(self) -> OwnModel | None:
        """The rule of a training with the client's own model."""
        if isinstance(self.how, WithOwnModel):
            return self.how.rule
        return None

    @property
    def mixture(self) -> Mixture | None:
        """The training of a mixture; ``None`` for the training of one model."""
        if isinstance(self.how, Mixture):
            return self.how
        return None

    def by_rule(self, rule: OwnModel) -> Train:
        """The same training with a rule for the client's own model, in place of its budget or rule."""
        match self.how:
            case Epochs() | Steps():
                return replace(self, how=WithOwnModel(rule, self.how))
            case WithOwnModel():
                return replace(self, how=replace(self.how, rule=rule))
        raise AssertionError("only a training by a budget can become one by a rule")

    def after(self, spent: int) -> Train:
        """The training of clients that have already trained some epochs in this round.

        Raises:
            ValueError: for phases, which have their own epochs.
        """
        match self.how:
            case Epochs() | Steps():
                return replace(self, how=self.how.after(spent))
            case WithOwnModel() | Mixture() | WeightedSamples():
                return replace(self, how=replace(self.how, budget=self.how.budget.after(spent)))
            case Phases() if spent:
                raise ValueError(
                    f"spent: phases have their own budgets, got {spent} epochs; expected 0"
                )
        return self

    def local_steps(self, base: Solver, number: int, sizes: FloatArray, models: int) -> int:
        """The total number of mini-batch steps of clients that did this work. Steps of a client's
        own model are not counted.

        Args:
            models: the number of models that each client was sent; it trains all of a mixture,
                otherwise one.
        """
        steps = sum(
            solver.count(int(size)) for solver in self.solvers(base, number) for size in sizes
        )
        if self.mixture:
            return steps * models
        return steps

    def solvers(self, base: Solver, number: int) -> tuple[Solver, ...]:
        """The run's solver with the learning rate of a round and the budget of this work; one for
        each phase."""
        # The usual kind first: each client of a round asks.
        match self.how:
            case Epochs() | Steps():
                return (self.how.of(base.in_round(number)),)
            case FullGradient():
                return (base.for_full_gradient(),)
            case Phases(parts):
                in_round = base.in_round(number)
                return tuple(replace(in_round, epochs=one.epochs, steps=None) for one in parts)
        return (self.how.budget.of(base.in_round(number)),)

    @property
    def one_by_one(self) -> bool:
        """Whether clients can only be trained one after another, because batched steps move all
        coordinates of all clients."""
        return isinstance(self.how, Phases | WithOwnModel | WeightedSamples)

    @property
    def stays(self) -> Keep | None:
        """The coordinates that stay with the client; ``None``: all of them move."""
        assert not isinstance(self.keep, KeepLayers), "the method was not fitted to its network"
        return self.keep

    def shared_size(self, d: int) -> int:
        """The number of coordinates of a model ``[d]`` that are sent between server and client."""
        if self.stays is None:
            return d
        return d - self.stays.size

    def fields(self, d: int, r: int) -> Mapping[str, tuple[tuple[int, ...], str]]:
        """Exactly what one client's reply holds: name -> (shape, NumPy dtype kind)."""
        start, stop = self.upload or (0, self.shared_size(d))
        models: tuple[int, ...] = (r,) if self.mixture else ()
        fields: dict[str, tuple[tuple[int, ...], str]] = {
            "delta": ((*models, stop - start), "f"),
            "size": ((), "f"),
            "loss": ((), "f"),
        }
        if self.mixture:
            fields["shares"] = ((r,), "f")
            shares = self.mixture.shares
            if shares is not None and shares.label_prior is not None:
                fields["label_sums"] = (shares.label_prior.shape, "f")
        if self.choose is not None:
            # A float as all fields of a reply are, which have one kind to be checked for.
            fields["choice"] = ((), "f")
        if self.clip is not None:
            fields["clipped"] = ((), "f")
        return fields

    def uploaded(self, delta: NDArray[Any]) -> NDArray[Any]:
        """The part of the updates ``[n, d]`` that leaves the client."""
        # Copies: a view of a slice would keep the whole updates in memory, or send them along.
        if self.upload is not None:
            return np.ascontiguousarray(delta[:, self.upload[0] : self.upload[1]])
        if self.stays is not None:
            return np.ascontiguousarray(delta[:, self.stays.shared(delta.shape[1])])
        return delta


@dataclass(frozen=True, slots=True)
class Score:
    """Score ``r`` models on a client's own split: sums over its samples and, with ``loss``, the
    summed loss.

    Args:
        split: the samples that are used.
        loss: whether the loss is requested.
        sums: the sums of the task that are requested, each ``[r, *shape]``; by default the correct
            predictions.
        per: ``client``: the sums above. ``sample_winner``: ``wins [r]`` in place of them, the
            number of samples on which each model has the lowest loss; ties go to the lowest number.
            Losses then do not leave the client.
        served_by: the training of a method whose clients have their own models: each client is
            scored with the model that serves it, which the rule computes from the model that it is
            sent. ``None``: each client is scored with the models as they are sent.
        shares: the shares of these clients. Each client is scored on the mixture of the predictions
            of its ``r`` models, so every sum is ``[1, *shape]``.
    """

    split: Literal["train", "test"] = "test"
    loss: bool = True
    sums: SumShapes = CORRECT
    per: Literal["client", "sample_winner"] = "client"
    served_by: Train | None = None
    shares: ClientShares | None = None

    def local_steps(self, base: Solver, number: int, sizes: FloatArray, models: int) -> int:
        """None."""
        return 0

    def fields(self, d: int, r: int) -> Mapping[str, tuple[tuple[int, ...], str]]:
        if self.shares is not None:
            r = 1
        if self.per == "sample_winner":
            return {"wins": ((r,), "f"), "size": ((), "f")}
        return {
            **{name: ((r, *shape), "f") for name, shape in self.sums},
            "size": ((), "f"),
            **({"loss": ((r,), "f")} if self.loss else {}),
        }


@dataclass(frozen=True, slots=True)
class SelectGroup:
    """A newcomer trains from a common model and says which group's direction its update is nearest
    to.

    The client is sent ``1 + m`` rows: row 0 is the model to train from, rows 1..m are the
    directions of the groups. Only the number of the nearest direction, from 0, leaves the client;
    -1 where its update has no direction. Clients that are separate processes are sent the rows
    once.
    """

    train: Train

    def local_steps(self, base: Solver, number: int, sizes: FloatArray, models: int) -> int:
        """Those of the training from the first of the rows."""
        return self.train.local_steps(base, number, sizes, 1)

    def fields(self, d: int, r: int) -> Mapping[str, tuple[tuple[int, ...], str]]:
        return {"choice": ((), "f"), "size": ((), "f")}


@dataclass(frozen=True, slots=True)
class Deliver:
    """A client is sent the model that serves it, to predict by it, and ``by``: how it came to its
    group, in words. A real client stores it; a simulated one predicts by the models of the run."""

    group: int
    by: str

    def local_steps(self, base: Solver, number: int, sizes: FloatArray, models: int) -> int:
        """None."""
        return 0

    def fields(self, d: int, r: int) -> Mapping[str, tuple[tuple[int, ...], str]]:
        return {"size": ((), "f")}


Work = Train | Score | Describe | SelectGroup | Deliver


def work_for_task(work: Work, task: Task) -> Work:
    """The work with the loss of a task in what clients minimise."""
    match work:
        case Train():
            objective = for_task(work.objective, task)
            # The same record where nothing changes: trainers are found by their objectives.
            if objective is work.objective:
                return work
            return replace(work, objective=objective)
        case SelectGroup():
            train = work_for_task(work.train, task)
            assert isinstance(train, Train)
            return SelectGroup(train)
    return work
