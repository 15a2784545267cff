"""Migration for everyone: a wrapper around any assign rule by which clients whose data drifted lose
their group first.

Source: FlexCFL Alg. 2 l. 4-6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.engine import DriftReports
from coterie.core.groups import NO_GROUP, Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.work import Describe

Assign = Callable[[Groups, IntArray, Clients, Key], tuple[Groups, Plan]]
Detector = Literal["per_label", "counts", "ordinal"]
Migration = Literal["none", "per_label", "counts", "ordinal"]


def distance(now: NDArray[Any], reference: NDArray[Any], detector: Detector) -> NDArray[np.float64]:
    """How far label histograms moved, in the units of ``tau = 0.2 n / C``.

    - ``per_label``: ``1/C sum_k |c_k - r_k|``.
    - ``counts``: ``1/C sum_k |sort(c)_k - sort(r)_k|``, what the reference code computes; blind to
      which label moved.
    - ``ordinal``: the Wasserstein distance of the normalised histograms on the label axis, times
      ``n / C``.

    Args:
        now: ``[n, C]``.
        reference: ``[n, C]``.
        detector: which.

    Returns:
        float64 ``[n]``.

    Example:
        >>> r, c = np.array([[50, 50, 0, 0]]), np.array([[0, 30, 70, 0]])
        >>> [round(float(distance(c, r, kind)[0]), 6) for kind in ("counts", "per_label", "ordinal")]
        [10.0, 35.0, 30.0]
    """
    now = np.asarray(now, np.float64)
    reference = np.asarray(reference, np.float64)
    classes = now.shape[1]
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
class Drifting:
    """An assign rule in front of which drifted clients lose their group.

    A warm client drifted when its label histogram is farther than ``tau n_i / C`` from the one it
    had when it was last placed; the comparison is strict. Drifted clients that are there are placed
    anew, selected or not. One that the inner rule does not place counts as drifted until it does;
    meanwhile it keeps its old group, unless the number of groups changed and with it what their
    numbers mean. A histogram that does not come home says nothing.

    The rule inside finds them in ``memory["migrant"]``: int64 ``[N]``, the group that a drifted
    client had, else -1.

    Args:
        assign: the rule inside.
        detector: see ``distance``.
        tau: share of a client's data whose loss just triggers nothing.
    """

    assign: Assign
    detector: Detector = "per_label"
    tau: float = 0.2

    def __call__(
        self, groups: Groups, cohort: IntArray, door: Clients, key: Key
    ) -> tuple[Groups, Plan]:
        if door.drift_reports is not None:
            return self._told(groups, cohort, door, door.drift_reports, key)
        able = np.arange(len(groups.member)) if door.able is None else door.able
        asked = door.measure(
            Describe("histogram", door.classes), able, groups.models[:1], 0 * able, key=key
        )
        first = torch.zeros(len(groups.member), door.classes, dtype=torch.float64)
        kept = groups.memory.get("reference", first).numpy()
        now = kept.copy()
        now[asked.ids] = asked.fields["histogram"]
        kept = np.where(kept.any(axis=1, keepdims=True), kept, now)
        limit = self.tau * kept.sum(axis=1) / door.classes
        drifted = np.flatnonzero(
            (groups.member >= 0) & (distance(now, kept, self.detector) > limit)
        )
        groups, plan, placed = self._place(groups, cohort, drifted, door, key)
        reference = torch.from_numpy(np.where(placed[:, None], now, kept))
        return groups.remember(reference=reference), plan

    def _told(
        self, groups: Groups, cohort: IntArray, door: Clients, reports: DriftReports, key: Key
    ) -> tuple[Groups, Plan]:
        """The same where clients compare their histograms themselves, which then stay where they
        are."""
        none = torch.zeros(len(groups.member), dtype=torch.int64)
        placement = groups.memory.get("placement", none).numpy().copy()
        drifted = reports.compare(placement)
        drifted = drifted[groups.member[drifted] >= 0]
        groups, plan, placed = self._place(groups, cohort, drifted, door, key)
        placement[placed] += 1
        reports.compare(placement)
        return groups.remember(placement=torch.from_numpy(placement)), plan

    def _place(
        self, groups: Groups, cohort: IntArray, drifted: IntArray, door: Clients, key: Key
    ) -> tuple[Groups, Plan, NDArray[np.bool_]]:
        """Drifted clients lose their group and are placed anew, with whom the inner rule places
        besides."""
        if door.able is not None:
            drifted = np.intersect1d(drifted, door.able)
        before = groups
        homeless = before.member.copy()
        migrant = np.full_like(before.member, NO_GROUP)
        homeless[drifted] = NO_GROUP
        migrant[drifted] = before.member[drifted]
        groups = replace(groups, member=homeless).remember(migrant=torch.from_numpy(migrant))
        groups, plan = self.assign(groups, np.union1d(cohort, drifted), door, key)
        return self._settle(groups, plan, before, drifted, cohort)

    def _settle(
        self, groups: Groups, plan: Plan, before: Groups, drifted: IntArray, cohort: IntArray
    ) -> tuple[Groups, Plan, NDArray[np.bool_]]:
        """What became of the drifted, and who was placed: bool ``[N]``."""
        member = groups.member.copy()
        placed = (member >= 0) & (before.member < 0)
        asked = np.isin(drifted, plan.ids)
        placed[drifted] = (member[drifted] >= 0) | asked
        again = drifted[placed[drifted]]
        lost = drifted[(member[drifted] < 0) & (asked | (groups.k == before.k))]
        member[lost] = before.member[lost]
        home = again[groups.member[again] >= 0]
        moved = int((member[home] != before.member[home]).sum())
        notes = {
            **plan.notes,
            "newcomers": max(0, int(plan.notes.get("newcomers", 0)) - len(again)),
            "drifted": len(drifted),
            "migrations": moved,
            "same_group": len(home) - moved,
            "drifted_ids": drifted,
        }
        here = np.isin(plan.ids, cohort)
        chain, spent = (None if a is None else a[here] for a in (plan.chain, plan.spent))
        plan = Plan(plan.ids[here], plan.row[here], chain, spent, notes)
        return replace(groups, member=member), plan, placed


def drifting(assign: Assign, migration: Migration, tau: float = 0.2) -> Assign:
    """``assign`` with migration by the detector named, or as it is."""
    if migration == "none":
        return assign
    return Drifting(assign, migration, tau)
