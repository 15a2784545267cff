"""The next token of a sequence, or the class of each of its places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from coterie.config.arguments import validated
from coterie.core import Added, BoolArray, FloatArray, Metric, Sums, SumShapes, at_most, ratio
from coterie.errors import DataError
from coterie.headline import Headline

PADDING = -100  # the target of a place that does not count, as in torch

Name = Literal["perplexity", "token_accuracy"]


@dataclass(frozen=True, slots=True)
class NextToken:
    """Targets are tokens ``[n, l]``, outputs are logits ``[n, l, v]``, the loss of a sample is the
    mean cross-entropy of its tokens. Targets of -100 do not count.

    Args:
        headline: the metric that stands for a run.
        vocabulary: number of tokens ``v``, known when the task is fitted to its targets.
        smoothing: share of a target that the loss spreads over all tokens.
    """

    name: ClassVar[str] = "next_token"
    class_labels: ClassVar[bool] = False
    headline: Name = "perplexity"
    vocabulary: int = 0
    smoothing: float = 0.0

    @property
    def outputs(self) -> int:
        return self.vocabulary

    @property
    def metrics(self) -> tuple[Metric, ...]:
        known = {
            "perplexity": Metric(Headline("perplexity", "lower", ""), perplexity),
            "token_accuracy": Metric(
                Headline("token_accuracy", "higher", "%", "accuracy of a token"), token_accuracy
            ),
        }
        first = known.pop(self.headline)
        return (first, *known.values())

    @property
    def sums(self) -> SumShapes:
        return (("surprise", ()), ("tokens", ()), ("right", ()))

    def fitted(self, y: Tensor, classes: int) -> NextToken:
        """See ``coterie.core.task.Task``. Without a number of classes the vocabulary ends with the
        largest target.

        Raises:
            DataError: for targets that are not rows of tokens.
        """
        if y.ndim != 2 or y.is_floating_point():
            what = "next_token needs rows of integer tokens as targets"
            got = f"they are {str(y.dtype).removeprefix('torch.')} of shape {list(y.shape[1:])} per sample"
            expected = "int64 [n, length]"
            raise DataError("does-not-fit", "task.kind", what, found=got, allowed=expected)
        counted = y[y != PADDING]
        largest = int(counted.max()) if len(counted) else 0
        vocabulary = classes or largest + 1
        if largest >= vocabulary or (len(counted) and int(counted.min()) < 0):
            what = f"tokens from {int(counted.min())} to {largest}"
            expected = f"0 to {vocabulary - 1}, or {PADDING} for a position that does not count"
            raise DataError("out-of-range", "task.kind", what, allowed=expected)
        return replace(self, vocabulary=vocabulary)

    def _surprise(self, outputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """The cross-entropy of each token, 0 where it does not count, ``[n, l]``."""
        # Torch has the classes second.
        logits = outputs.transpose(1, 2)
        return F.cross_entropy(
            logits, targets, reduction="none", ignore_index=PADDING, label_smoothing=smoothing
        )

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        tokens = (targets != PADDING).sum(dim=1)
        surprise = self._surprise(outputs, targets, self.smoothing)
        return surprise.sum(dim=1) / tokens.clamp(min=1)

    def smoothed(self, share: float) -> NextToken:
        return replace(self, smoothing=share)

    def added(self, outputs: Tensor, targets: Tensor) -> Mapping[str, Added]:
        counted = targets != PADDING
        right = (outputs.argmax(dim=2) == targets) & counted
        return {
            "surprise": self._surprise(outputs.double(), targets).sum(dim=1),
            "tokens": counted.sum(dim=1),
            "right": right.sum(dim=1),
        }

    def possible(self, sums: Sums) -> BoolArray:
        """See ``coterie.core.task.KnowsPossibleSums``. How many tokens a sample has is not known
        here."""
        right = (sums["right"] >= 0) & at_most(sums["right"], sums["tokens"])
        return right & (sums["surprise"] >= 0)

    def predict(self, outputs: Tensor) -> Tensor:
        """The likeliest token of each place, int64 ``[n, l]``."""
        return outputs.argmax(dim=2)

    def naive(self, targets: Tensor) -> Tensor:
        """The logits of the shares of tokens, at every place, ``[l, v]``."""
        counted = targets[targets != PADDING]
        # One more of each: a token that only test samples have is not impossible.
        shares = (torch.bincount(counted, minlength=self.vocabulary) + 1).double()
        return (shares / shares.sum()).log().expand(targets.shape[1], self.vocabulary)


def perplexity(sums: Sums) -> FloatArray:
    """``exp`` of the mean cross-entropy of a token."""
    return np.exp(ratio(sums["surprise"], sums["tokens"]))


def token_accuracy(sums: Sums) -> FloatArray:
    """Right tokens over tokens."""
    return ratio(sums["right"], sums["tokens"])


@validated
def next_token(headline: Name = "perplexity") -> NextToken:
    """The next token at each place of a sequence, by cross-entropy; the headline is perplexity.

    Args:
        headline: the headline metric: ``perplexity`` or ``token_accuracy``.

    Example:
        >>> task = next_token().fitted(torch.tensor([[1, 0, -100]]), 0)
        >>> float(perplexity({"surprise": np.log(2.0) * 2, "tokens": np.array(2.0)}))
        2.0
    """
    return NextToken(headline)
