"""Migration: before a rule assigns clients, those whose data drifted lose their group.

Source: FlexCFL Alg. 2 l. 4-6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from coterie.clients.round import Round
from coterie.config.arguments import CheckedFields
from coterie.core import NO_GROUP, BoolArray, Describe, FloatArray, Groups, IntArray, Plan
from coterie.core.groups import GrowingRecord
from coterie.rules.assigning import Assign, PlacesClients
from coterie.rules.hooks import call

Detector = Literal["none", "per_label", "counts", "ordinal"]
Tau = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Migration(CheckedFields):
    """How drift of a client's data is detected; clients that drifted are placed again.

    Args:
        detector: see `distance`; ``none``: clients keep their group.
        tau: a client drifted when its histogram moved by more than ``tau n / C`` (FlexCFL eq. 9).

    Raises:
        ConfigError: for a value out of its range.

    Example:
        >>> Migration("per_label")
        Migration(detector='per_label', tau=0.2)
    """

    detector: Detector = "per_label"
    tau: Tau = 0.2


@dataclass(frozen=True, slots=True)
class DriftMemory(GrowingRecord):
    """What migration remembers of the clients.

    Args:
        previous_group: int64 ``[N]``, the group that a client lost in this round because its data
            drifted, else -1.
        reference: float64 ``[N, C]``, the label histogram of each client when it was last placed.
        assignment_version: int64 ``[N]``, how often each client was placed, where clients detect
            drift themselves and their histograms stay with them.
    """

    record_name: ClassVar[str] = "drift"
    # Their histograms are those of the round in which they are placed.
    newcomer: ClassVar[Mapping[str, float]] = {
        "previous_group": NO_GROUP,
        "reference": 0.0,
        "assignment_version": 0,
    }
    previous_group: IntArray
    reference: Tensor | None = None
    assignment_version: IntArray | None = None


def previous_group(groups: Groups) -> IntArray:
    """The group that each client lost in this round because its data drifted, int64 ``[N]``, -1 for
    none."""
    memory = groups.memory.get(DriftMemory)
    if memory is None:
        return np.full(len(groups.member), NO_GROUP)
    return memory.previous_group


def distance(now: NDArray[Any], reference: NDArray[Any], detector: Detector) -> FloatArray:
    """How far each label histogram ``[n, C]`` moved from its reference, ``[n]``, in the units of
    ``tau n / C``.

    - ``per_label``: ``1/C sum_k |c_k - r_k|``.
    - ``counts``: ``1/C sum_k |sort(c)_k - sort(r)_k|``, what the reference code computes; it cannot
      see which label moved.
    - ``ordinal``: the Wasserstein distance of the normalised histograms on the label axis, times
      ``n / C``.

    Example:
        >>> r, c = np.array([[50, 50, 0, 0]]), np.array([[0, 30, 70, 0]])
        >>> [round(float(distance(c, r, kind)[0]), 6) for kind in ("counts", "per_label", "ordinal")]
        [10.0, 35.0, 30.0]
    """
    now = np.asarray(now, np.float64)
    reference = np.asarray(reference, np.float64)
    classes = now.shape[1]
    # SciPy's `wasserstein_distance` of the histograms taken as samples, which is the code's slip.
    if detector == "counts":
        now = np.sort(now, axis=1)
        reference = np.sort(reference, axis=1)
    if detector != "ordinal":
        return np.abs(now - reference).sum(axis=1) / classes
    size = now.sum(axis=1, keepdims=True)
    past = reference.sum(axis=1, keepdims=True)
    gap = np.cumsum(now / np.maximum(size, 1) - reference / np.maximum(past, 1), axis=1)
    return np.abs(gap).sum(axis=1) * past[:, 0] / classes


@dataclass(frozen=True)
class Migrating(PlacesClients):
    """An assign rule before which drifted clients lose their group.

    A client with a group drifted when its label histogram is farther than ``tau n_i / C`` from the
    one it had when it was last placed. Drifted clients that are present are placed again, whether
    or not they were sampled. A client that the inner rule does not place counts as drifted until it
    does, and keeps its old group, unless the number of groups changed and with it what their
    numbers mean. A missing histogram changes nothing.

    The inner rule finds the groups that were lost by `previous_group`.
    """

    assign: Assign
    migration: Migration

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        if round.clients.drift_reports is not None:
            return self._by_reports(groups, round)
        if round.fixed_data:
            # No client drifts, and histograms of all clients are what a large federation lacks time for.
            return call("assign", self.assign, groups, round)
        memory = groups.memory.get(DriftMemory)
        trainable = round.trainable(len(groups.member))
        classes = round.clients.classes
        # A simulation reads the histograms that real clients would compare themselves; it is a
        # measurement, not a transfer.
        reply = round.clients.run(
            Describe("histogram", classes), trainable, key=round.key, counts=False
        )
        reference = np.zeros((len(groups.member), classes))
        if memory is not None and memory.reference is not None:
            reference = memory.reference.numpy()
        now = reference.copy()
        now[reply.ids] = reply.fields["histogram"]
        # The first histogram of a client is its reference.
        known = reference.any(axis=1, keepdims=True)
        reference = np.where(known, reference, now)
        # n_i at the last assignment. The code has the size at the very beginning, so after an
        # incremental release of data a client would be held to a fraction of what it holds.
        limit = self.migration.tau * reference.sum(axis=1) / classes
        far = distance(now, reference, self.migration.detector) > limit
        drifted = np.flatnonzero((groups.member >= 0) & far)
        groups, plan, placed = self._place(groups, round, drifted)
        kept = _drift_memory(groups)
        # Only of clients that were placed: what drifts slowly adds up until it is seen.
        reference = np.where(placed[:, None], now, reference)
        return groups.remember(replace(kept, reference=torch.from_numpy(reference))), plan

    def _by_reports(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        """The same where clients compare their histograms themselves, so that those stay with
        them."""
        reports = round.clients.drift_reports
        assert reports is not None
        memory = groups.memory.get(DriftMemory)
        version = np.zeros(len(groups.member), np.int64)
        if memory is not None and memory.assignment_version is not None:
            version = memory.assignment_version.copy()
        drifted = reports.compare(version)
        drifted = drifted[groups.member[drifted] >= 0]
        groups, plan, placed = self._place(groups, round, drifted)
        version[placed] += 1
        # What clients report from now on is compared with the assignment they have now.
        reports.compare(version)
        return groups.remember(replace(_drift_memory(groups), assignment_version=version)), plan

    def _place(
        self, before: Groups, round: Round, drifted: IntArray
    ) -> tuple[Groups, Plan, BoolArray]:
        """Drifted clients lose their group, and the inner rule places them with the cohort; the
        plan is of the cohort alone, and the last result is who was placed (bool ``[N]``)."""
        drifted = np.intersect1d(drifted, round.trainable(len(before.member)))
        lost = np.full_like(before.member, NO_GROUP)
        lost[drifted] = before.member[drifted]
        memory = replace(_drift_memory(before), previous_group=lost)
        groups = before.with_members(drifted, NO_GROUP).remember(memory)
        # Alg. 2 l. 4 migrates every warm client, not only those of the cohort.
        asked = round.with_cohort(np.union1d(round.cohort, drifted))
        groups, plan = call("assign", self.assign, groups, asked)
        return _settle(before, groups, plan, drifted, round.cohort)


def _settle(
    before: Groups, groups: Groups, plan: Plan, drifted: IntArray, cohort: IntArray
) -> tuple[Groups, Plan, BoolArray]:
    """What became of the drifted clients, and who was placed: bool ``[N]``."""
    member = groups.member.copy()
    placed = (member >= 0) & (before.member < 0)
    planned = np.isin(drifted, plan.ids)
    placed[drifted] = (member[drifted] >= 0) | planned
    if plan.row.ndim == 2:
        # Clients that choose for themselves are placed by their own training, later in this round.
        placed[plan.ids] |= before.member[plan.ids] < 0
    placed_again = drifted[placed[drifted]]
    # Numbers of groups keep their meaning only while their count stays the same.
    same_numbers = groups.k == before.k
    unplaced = drifted[(member[drifted] < 0) & (planned | same_numbers)]
    member[unplaced] = before.member[unplaced]
    with_group = placed_again[groups.member[placed_again] >= 0]
    moved = int((member[with_group] != before.member[with_group]).sum())
    notes = {
        **plan.notes,
        "newcomers": max(0, int(plan.notes.get("newcomers", 0)) - len(placed_again)),
        "drifted": len(drifted),
        "migrations": moved,
        "same_group": len(with_group) - moved,
        "drifted_ids": drifted,
    }
    # A drifted client outside of the cohort was placed; it does not train in this round.
    in_cohort = np.isin(plan.ids, cohort)
    plan = replace(
        plan,
        ids=plan.ids[in_cohort],
        row=plan.row[in_cohort],
        chain=None if plan.chain is None else plan.chain[in_cohort],
        spent=None if plan.spent is None else plan.spent[in_cohort],
        notes=notes,
    )
    return replace(groups, member=member), plan, placed


def _drift_memory(groups: Groups) -> DriftMemory:
    memory = groups.memory.get(DriftMemory)
    if memory is None:
        return DriftMemory(np.full(len(groups.member), NO_GROUP))
    return memory


def migrating(assign: Assign, migration: Detector | Migration) -> Assign:
    """The rule with this migration in place of its own, if any: a detector with the threshold of
    the paper or another; ``none`` removes migration."""
    if not isinstance(migration, Migration):
        migration = Migration(migration)
    # One migration, not one inside another: a table replaces what the algorithm had.
    inner = assign
    if isinstance(assign, Migrating):
        inner = assign.assign
    if migration.detector == "none":
        return inner
    return Migrating(inner, migration)
