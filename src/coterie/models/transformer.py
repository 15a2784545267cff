"""A small transformer for text: tokens or word vectors to classes, or to the next tokens."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from coterie.errors import ConfigError
from coterie.models.residual import Residual
from coterie.models.spec import ModelSpec, Shape

Count = Annotated[int, Field(ge=1)]


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself, ``softmax(Q K^T / sqrt(width / heads)) V``;
    causal: a place sees only itself and those before it.

    Its four maps are linear layers of their own, so that adapters can be put on each.

    Example:
        >>> SelfAttention(8, 2, causal=True)(torch.zeros(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query = self._split(self.query(x))
        key = self._split(self.key(x))
        value = self._split(self.value(x))
        # Written out: texts are short here, and torch's fused kernel cannot be batched over clients.
        scores = query @ key.transpose(2, 3) / key.shape[3] ** 0.5
        if self.causal:
            later = torch.ones(scores.shape[2:], dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        mixed = scores.softmax(dim=3) @ value
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        """``[n, places, width]`` as ``[n, heads, places, width / heads]``."""
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class Positions(nn.Module):
    """Adds a learned vector to each place of a sequence.

    Example:
        >>> Positions(7, 4)(torch.zeros(2, 5, 4)).shape
        torch.Size([2, 5, 4])
    """

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.place = nn.Parameter(0.02 * torch.randn(length, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.place[: x.shape[1]]


class Transformer(nn.Module):
    """An encoder of sequences with a head for the whole text, or for each of its places.

    Args:
        embedding: inputs to vectors ``[n, places, width]``.
        blocks: blocks of attention and dense layers.
        head: vectors to outputs.
        per_token: outputs for each place; otherwise for the mean over all places.
    """

    def __init__(
        self, embedding: nn.Module, blocks: nn.Module, head: nn.Module, per_token: bool
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.blocks = blocks
        self.head = head
        self.per_token = per_token

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.embedding(x))
        if not self.per_token:
            x = x.mean(dim=1)
        return self.head(x)


def transformer(
    width: Count = 64,
    heads: Count = 4,
    layers: Count = 2,
    vocabulary: Count | None = None,
    per_token: bool = False,
) -> ModelSpec:
    """Small transformer: tokens or word vectors, two blocks of four heads, mean -> classes.

    Inputs of one dimension are tokens, which are embedded; inputs ``[words, dim]`` are vectors,
    which a linear layer maps to the width. Blocks normalise first. There is no dropout.

    Args:
        width: width of a position of the sequence.
        heads: number of attention heads; it must divide the width.
        layers: number of blocks.
        vocabulary: number of different tokens ``v``; ``None``: the number of outputs, which is only
            right for the next token.
        per_token: whether there are outputs for each position, which depend only on earlier
            positions, as the task ``next_token`` needs; otherwise for the whole text.

    Source: Vaswani et al., Attention Is All You Need (2017), with normalisation before each
    sub-layer.

    Example:
        >>> transformer().parameters
        121090
        >>> transformer(vocabulary=2000).count((25,), 2)
        229826
    """

    def build(shape: Shape, classes: int) -> nn.Module:
        if width % heads:
            what = f"does not divide the width {width}"
            expected = f"a divisor of {width}"
            raise ConfigError("wrong-shape", "model.heads", what, found=heads, allowed=expected)
        # A token that no target has may still be an input; it is never the likeliest next one.
        outputs = classes
        if per_token and vocabulary is not None:
            outputs = max(vocabulary, classes)
        embedding = nn.Sequential(
            _embedding(shape, width, vocabulary or outputs), Positions(shape[0], width)
        )
        blocks = nn.Sequential(*(_block(width, heads, per_token) for _ in range(layers)))
        head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, outputs))
        return Transformer(embedding, blocks, head, per_token)

    return ModelSpec(build, (), f"transformer, {layers} blocks of {heads} heads", (25, 300), 2)


def _embedding(shape: Shape, width: int, vocabulary: int) -> nn.Module:
    if len(shape) == 1:
        return nn.Embedding(vocabulary, width)
    if len(shape) == 2:
        return nn.Linear(shape[1], width)
    what = "transformer needs sequences"
    got = f"inputs have shape {list(shape)}"
    expected = "tokens [length] or vectors [length, dimensions]"
    raise ConfigError("does-not-fit", "model.name", what, found=got, allowed=expected)


def _block(width: int, heads: int, causal: bool) -> nn.Module:
    """Attention, then two dense layers, each with a shortcut."""
    # Normalised first: such a network trains without a warm-up of the learning rate.
    attention = nn.Sequential(nn.LayerNorm(width), SelfAttention(width, heads, causal))
    dense = nn.Sequential(
        nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
    )
    return nn.Sequential(Residual(attention, nn.Identity()), Residual(dense, nn.Identity()))
