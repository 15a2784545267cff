"""Bounds of what one client can do: its update and its claim of samples are held to those of the
others in the same request.

Nothing a client sends is checked against the truth, which no server knows. What is known is what
the other clients of the request send. So a number is compared with the typical one (the median),
and the scale of the comparison is how much the numbers of this request differ anyway. Updates of
similar clients differ by a few percent, those of clients with 10 and 1,000 samples by a factor of
ten; the bound follows, and neither case has to be set by hand.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from coterie.clients.robust_scale import FEW, Scale
from coterie.config.arguments import CheckedRecord
from coterie.config.schema import PYTHON_ONLY
from coterie.core import Describe, Reply, Score, Train, Work, one_torch_thread
from coterie.core.arrays import BoolArray, FloatArray, IntArray

# The field of a bounded reply with the samples as they were claimed.
CLAIMED = "claimed"
# The fields whose Euclidean lengths are bounded.
_LENGTHS = ("delta", "subspace", "centres", "latent")
Multiple = Annotated[float, Field(ge=1)]
_LONG = 2**15  # values of a row from which on rows are measured one by one


@dataclass(frozen=True, slots=True)
class Bounds(CheckedRecord):
    """Limits of a reply, relative to the other replies to its request.

    An update that is longer than its limit is scaled down to the typical length
    (``clipped: norm``): at the limit it would still outweigh several others. An update that is
    ``refuse`` times longer than its limit is rejected (``refused: norm``), since training never
    gives one on clients that work. A claim of more samples than its limit is lowered to it
    (``clipped: size``), and the field ``claimed`` has the original claims. As weights are made of
    these claims, no client can take over the mean of its group.

    Updates are those of rounds, of cold starts, and slices of them (the signatures of FedClust).
    Statistics are treated in the same way: a subspace, centres or moments as an update, counts of
    labels as samples. With ``scores``, the results of evaluations are treated in the same way, too:
    the samples of a client that claims too many are lowered to its limit, with the same share of
    correct predictions (``clipped: size``).

    Args:
        enabled: whether replies are bounded.
        floor: multiple of the typical update or claim that is always allowed.
        ceiling: multiple that is never allowed for updates; at least ``floor``.
        refuse: multiple of the limit from which an update is rejected.
        scores: whether evaluations are also bounded. Real clients count their samples themselves;
            in a simulation the simulation counts them.
    """

    enabled: bool = True
    # Chosen on honest runs of six federations, so that hardly anything of them is clipped.
    floor: Multiple = 3.0
    ceiling: Multiple = 20.0
    refuse: float = field(default=100.0, metadata=PYTHON_ONLY)
    scores: bool = field(default=False, metadata=PYTHON_ONLY)

    @property
    def norm(self) -> Scale:
        """Of the Euclidean length of an update, among clients that trained the same model."""
        few = min(self.ceiling, max(self.floor, FEW))
        return Scale(spread=6.0, floor=self.floor, few=few, ceiling=self.ceiling)

    @property
    def size(self) -> Scale:
        """Of samples, among all clients of the request."""
        return Scale(spread=10.0, floor=self.floor, few=max(self.floor, FEW))

    def apply(
        self, work: Work, reply: Reply, which: IntArray
    ) -> tuple[Reply, Counter[str], Counter[str]]:
        """The replies of a validated block within their bounds, and how many were clipped and
        refused, by reason."""
        clipped: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        if isinstance(work, Score):
            return *self.scored(reply), refused
        if not self.enabled or not len(reply) or not isinstance(work, Train | Describe):
            return reply, clipped, refused
        # It places its own client, and moves no model and no other client.
        if isinstance(work, Describe) and not work.labelled:
            return reply, clipped, refused
        group = _group(work, reply, which)
        for name in _LENGTHS:
            if name in reply.fields:
                reply, kept = self._bound_norms(reply, name, group, clipped, refused)
                group = group[kept]
        reply = self._bound_sizes(reply, clipped)
        return reply, +clipped, +refused

    def scored(self, reply: Reply) -> tuple[Reply, Counter[str]]:
        """The replies to an evaluation within their bounds, and how many were clipped, by reason."""
        if not self.enabled or not self.scores:
            return reply, Counter()
        limits = self._most_samples(reply.size)
        reply, scaled = scaled_to_size(reply, limits)
        return reply, +Counter(size=scaled)

    def _bound_norms(
        self, reply: Reply, name: str, group: IntArray, clipped: Counter[str], refused: Counter[str]
    ) -> tuple[Reply, BoolArray]:
        """Long updates scaled down or left out; which replies are kept, bool ``[n]``."""
        lengths = norms(reply.fields[name])
        limits = self.norm.limits(lengths, group)
        long = lengths > limits
        kept = lengths <= self.refuse * limits
        if not long.any():
            return reply, kept
        clipped["norm"] += int((long & kept).sum())
        refused["norm"] += int((~kept).sum())
        # A copy of what is kept: the rows of a simulation lie in memory that its engine owns.
        reply = reply.rows(kept)
        values = reply.fields[name]
        typical = self.norm.typical(lengths, group)
        shorter = typical[long & kept] / lengths[long & kept]
        shape = (-1, *(1,) * (values.ndim - 1))
        values[long[kept]] *= shorter.astype(values.dtype).reshape(shape)
        return reply, kept

    def _most_samples(self, claimed: NDArray[Any]) -> FloatArray:
        """The limit of each client's claim among all claims of a request, float64 ``[n]``."""
        everyone = np.zeros(len(claimed), np.int64)
        return self.size.limits(claimed.astype(np.float64), everyone)

    def _bound_sizes(self, reply: Reply, clipped: Counter[str]) -> Reply:
        """Claims of samples, and counts of labels, lowered to their limit."""
        fields = dict(reply.fields)
        for name in ("size", "histogram", "imbalance"):
            if name not in fields:
                continue
            values = fields[name]
            totals = np.abs(values.astype(np.float64)).reshape(len(values), -1).sum(axis=1)
            limits = self._most_samples(totals)
            many = totals > limits
            if not many.any():
                continue
            factor = limits[many] / totals[many]
            fields[name] = _scaled(values, many, factor)
            if name == "size":
                # A claim also says how many steps a client took, which lowering it would change.
                fields[CLAIMED] = values.astype(np.float64)
                # Sums over the claimed samples weigh as many as these do.
                if "label_sums" in fields:
                    fields["label_sums"] = _scaled(fields["label_sums"], many, factor)
            # One reply is counted once, though a histogram and its size say the same.
            clipped["size"] = max(clipped["size"], int(many.sum()))
        return replace(reply, fields=fields)


def _scaled(values: NDArray[Any], rows: BoolArray, factor: FloatArray) -> NDArray[Any]:
    """A copy of ``[n, ...]``, some rows of which are multiplied by a number each, in float64."""
    scaled = values.astype(np.float64)
    shape = (-1, *(1,) * (values.ndim - 1))
    scaled[rows] *= factor.reshape(shape)
    return scaled.astype(values.dtype)


def _group(work: Work, reply: Reply, which: IntArray) -> IntArray:
    """The model that each client of a reply trained, int64 ``[n]``; 0 where there is none."""
    if which.ndim == 1:
        return which
    if not isinstance(work, Train):
        return np.zeros(len(reply), np.int64)
    if work.choose is None:
        # The model first; what follows is no model to train.
        return which[:, 0]
    column = reply.choice.astype(np.int64)
    return which[np.arange(len(reply)), column]


@one_torch_thread()
def norms(values: NDArray[Any]) -> FloatArray:
    """Euclidean lengths, float64 ``[n]``, of ``[n, ...]``."""
    rows = torch.from_numpy(values).reshape(len(values), -1)
    # Summed in float64 without a copy in float64: a round may hold gigabytes of updates.
    if rows.shape[1] < _LONG:
        return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).numpy()
    # The same sums: torch takes several times as long for all long rows at once.
    return np.array([torch.linalg.vector_norm(row, dtype=torch.float64).item() for row in rows])


def scaled_to_size(reply: Reply, limits: FloatArray) -> tuple[Reply, int]:
    """The results of each client as those of at most ``limits [n]`` samples.

    A server has no test data, so it believes a share of right answers, and compares the number of
    test samples with those of others, as for training. All sums shrink by ``limit / size``: a
    client's own accuracy and mean losses stay as reported, and only their weight is bounded.
    """
    size = reply.size.astype(np.float64)
    many = size > limits
    if not many.any():
        return reply, 0
    most = limits[many]
    # Whole samples: claims are counts.
    most = np.where(most >= 1, np.floor(most), most)
    fields = {}
    for name, values in reply.fields.items():
        lower = values.astype(np.float64)
        shape = (-1, *(1,) * (values.ndim - 1))
        # The rate first: that of `size` is exactly 1, so no count becomes larger than it.
        lower[many] = lower[many] / size[many].reshape(shape) * most.reshape(shape)
        fields[name] = lower.astype(values.dtype)
    return replace(reply, fields=fields), int(many.sum())
