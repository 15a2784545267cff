"""What a client is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import FloatArray
from coterie.core.deliver import Deliver

# The name that users know it by is `coterie.core.work.Describe` (docs/api.md).
from coterie.core.describe import Describe as Describe
from coterie.core.keep import Keep, KeepLayers
from coterie.core.mixtures import ClientShares, SampleWeights
from coterie.core.objective import Objective, for_task
from coterie.core.own_model import OwnModel, TrainsAsSent
from coterie.core.solver import Solver
from coterie.core.task import CORRECT, SumShapes, Task


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a local training in which only some coordinates move.

    Args:
        only: those that move; the others stay as the phase before left them. A method names layers,
            and they become coordinates when it is fitted to its network.
        epochs: local epochs, in place of those of the run's solver.
    """

    only: Keep | KeepLayers
    epochs: int

    @property
    def moves(self) -> Keep:
        """The coordinates that move."""
        assert isinstance(self.only, Keep), "the method was not fitted to its network"
        return self.only


@dataclass(frozen=True, slots=True)
class Train:
    """Local training. What is left ``None`` is as the run's solver says; ``spent`` epochs are taken
    off its budget.

    Args:
        objective: what the client minimises.
        epochs: local epochs; ``None``: those of the run's solver.
        steps: mini-batch steps instead of epochs.
        spent: epochs that the client trained before in this round.
        full_gradient: the update is minus the gradient of the whole local loss.
        upload: ``(start, stop)``: only this slice of the update leaves the client. No coordinate of
            it may stay with the client.
        choose: ``least_loss``: the client is sent ``r`` models (``which`` is ``[n, r]``), computes
            the summed loss of each on its whole training set, and trains from the one with the
            least; ties go to the lowest column. The reply has its number as ``choice``. Losses do
            not leave the client.
        keep: coordinates that never leave the client. The reply's ``delta`` has only the others,
            ``[d - kept]``. The client stores them, and its next training and evaluation start from
            its stored values; a client that never trained uses those of the model it is sent. A
            method names layers, and they become coordinates when it is fitted to its network.
        clip: the longest update that leaves a client that clips by itself: a longer one is scaled to
            this length, and the reply's ``clipped`` is 1, else 0. Clients of a simulation do not.
        trial: the training only shows something of the client: it starts from the model as it was
            sent, also where the client has stored coordinates of its own, and stores nothing. So the
            updates of all clients of a trial are from the same start and can be compared.
        phases: the training in parts, one after another, each of which moves some coordinates, as
            FedRep trains the head and then the body. Each has a budget of its own. The loss of the
            reply is that of the last one.
        own_model: what the client has of its own, and how it trains it. It is stored by the client
            and never sent. A method may send further vectors beside the model: then ``which`` is
            ``[n, r]``, the model first. A trial has none.

        mixture: the client is sent ``r`` models (``which`` is ``[n, r]``) and its shares of them. It
            computes for each of its samples how likely each model explains it, and trains every
            model on its samples weighted by that. The reply's ``delta`` is ``[r, d]``, and it has
            the client's new ``shares [r]``. With a prior of labels it also has ``label_sums [r, c]``,
            the weights of each model's samples by class.
        shares: of the clients of a request, with ``mixture``.
        weights: of the samples of the clients; engines set them.

    Raises:
        ValueError: if a coordinate of ``upload`` stays with the client, for phases together with
            another budget or a full gradient, and for a model of the client's own together with
            phases, a full gradient or, but for a `TrainsAsSent`, kept coordinates.
    """

    objective: Objective
    epochs: int | None = None
    steps: int | None = None
    spent: int = 0
    full_gradient: bool = False
    upload: tuple[int, int] | None = None
    choose: Literal["least_loss"] | None = None
    keep: Keep | KeepLayers | None = None
    clip: float | None = None
    trial: bool = False
    phases: tuple[Phase, ...] = ()
    own_model: OwnModel | None = None
    mixture: bool = False
    shares: ClientShares | None = None
    weights: SampleWeights | None = None

    def __post_init__(self) -> None:
        if self.own_model is not None and self._beside_own_model():
            raise ValueError(
                f"own_model: the rule trains the whole model, got {self.own_model} beside kept "
                "coordinates, phases or a full gradient; expected one of them"
            )
        budget = self.full_gradient or self.spent or self.epochs is not None
        if self.phases and (budget or self.steps is not None):
            raise ValueError(
                f"phases: have budgets of their own, got {len(self.phases)} phases and a budget "
                "beside them; expected one of the two"
            )
        if not isinstance(self.keep, Keep) or self.upload is None:
            return
        if self.keep.overlaps(*self.upload):
            raise ValueError(
                f"upload: stays with the client, got {self.upload}; "
                f"expected a slice apart from {self.keep.spans}"
            )

    def _beside_own_model(self) -> bool:
        """Whether there is something that does not go with what a client has of its own."""
        keeps = self.keep is not None and not isinstance(self.own_model, TrainsAsSent)
        return keeps or self.full_gradient or bool(self.phases)

    def local_steps(self, base: Solver, number: int, sizes: FloatArray, models: int) -> int:
        """Mini-batch steps of clients that did this work, all together. A model of its own, which a
        client trains beside, is not counted.

        Args:
            base: the run's solver.
            number: of the round.
            sizes: ``[n]``, training samples of the clients.
            models: that each was sent; of a mixture it trains all, else one.
        """
        steps = sum(
            solver.count(int(size)) for solver in self.solvers(base, number) for size in sizes
        )
        return steps * models if self.mixture else steps

    def solver(self, base: Solver, number: int) -> Solver:
        """The run's solver with the learning rate of a round and this work's budget."""
        if self.full_gradient:
            return base.for_full_gradient()
        base = base.in_round(number)
        if self.steps is not None:
            return replace(base, steps=self.steps)
        # A run whose budget is a number of steps keeps it, unless the work names epochs.
        if self.epochs is None and (base.steps is not None or not self.spent):
            return base
        epochs = base.epochs if self.epochs is None else self.epochs
        return replace(base, epochs=max(0, epochs - self.spent), steps=None)

    def solvers(self, base: Solver, number: int) -> tuple[Solver, ...]:
        """The solver of each phase; of a training without phases its one solver."""
        if not self.phases:
            return (self.solver(base, number),)
        in_round = base.in_round(number)
        return tuple(replace(in_round, epochs=one.epochs, steps=None) for one in self.phases)

    @property
    def one_by_one(self) -> bool:
        """Whether clients can only be trained one after another: batched steps move all coordinates
        of all clients alike."""
        return bool(self.phases) or self.own_model is not None or self.weights is not None

    @property
    def stays(self) -> Keep | None:
        """The coordinates that stay with the client; ``None``: all of them move."""
        assert not isinstance(self.keep, KeepLayers), "the method was not fitted to its network"
        return self.keep

    def shared_size(self, d: int) -> int:
        """How many coordinates of a model of ``d`` pass between server and client."""
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
        if self.shares is not None and self.shares.label_prior is not None:
            fields["label_sums"] = (self.shares.label_prior.shape, "f")
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
class Evaluate:
    """Score ``r`` models on a client's own split: sums over its samples and, with ``loss``, the
    summed loss.

    Args:
        split: which samples.
        loss: whether the loss is asked for.
        sums: the sums of the task that are asked for, each ``[r, *shape]``; by default the correct
            predictions.
        per: ``client``: the sums above. ``sample_winner``: ``wins [r]`` in place of them, on how
            many of its samples each model has the least loss of all; ties go to the lowest. Losses
            do not leave the client then.
        served_by: the training of a method whose clients have a model of their own: each client is
            scored with the model that serves it, which its rule makes of the one that it is sent.
            ``None``: with the models as they are sent.
        shares: of the clients that are asked. Each is scored on the mixture of what its ``r`` models
            predict, so every sum is ``[1, *shape]``.
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
    -1 where its update has no direction. Clients that are processes of their own keep the rows, so
    they are sent once.

    Args:
        train: the training from row 0.
    """

    train: Train

    def local_steps(self, base: Solver, number: int, sizes: FloatArray, models: int) -> int:
        """Those of the training from the first of the rows."""
        return self.train.local_steps(base, number, sizes, 1)

    def fields(self, d: int, r: int) -> Mapping[str, tuple[tuple[int, ...], str]]:
        return {"choice": ((), "f"), "size": ((), "f")}


Work = Train | Evaluate | Describe | SelectGroup | Deliver


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
