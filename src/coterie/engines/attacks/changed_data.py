"""Attacks by training data: attackers train on samples that they have changed, or on another
client's."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from coterie.config.arguments import validated
from coterie.engines.attacks.attack import Attack, Factor, Ids, Share
from coterie.errors import ConfigError

Class = Annotated[int, Field(ge=0)]


@validated
def label_flip(share: Share = 0.2, clients: Ids = None) -> Attack:
    """Attackers train on the labels ``c - 1 - y`` in place of ``y``, of ``c`` classes.

    Args:
        share: share of the clients that attack.
        clients: the numbers of the attackers, in place of a share.

    Source: Fung et al., The Limitations of Federated Learning in Sybil Settings (2020); the
    permutation of all labels is that of Karimireddy et al., Learning from History (2021).

    Example:
        >>> label_flip().poison(torch.zeros(3, 1), torch.tensor([0, 1, 9]), 10)[1].tolist()
        [9, 8, 0]
    """
    return Attack(share, clients, poison=lambda x, y, classes: (x, classes - 1 - y))


@validated
def backdoor(
    share: Share = 0.2,
    clients: Ids = None,
    target: Class = 0,
    poisoned: Share = 0.5,
    factor: Factor = 1.0,
) -> Attack:
    """Attackers teach the model to answer ``target`` wherever it sees a small pattern.

    They put the pattern (`triggered`) on a share of their training samples, label these with
    ``target``, and send ``factor * delta_i``.

    Args:
        share: share of the clients that attack.
        clients: the numbers of the attackers, in place of a share.
        target: the class that the model should predict wherever it sees the pattern.
        poisoned: the share of an attacker's samples that have the pattern.
        factor: factor by which the update is multiplied.

    Source: Gu et al., BadNets (2017), the pattern; Bagdasaryan et al., How To Backdoor Federated
    Learning (2020).

    Example:
        >>> x, y = backdoor(target=7).poison(torch.zeros(2, 1, 8, 8), torch.tensor([1, 2]), 10)
        >>> y.tolist()
        [7, 2]
    """

    def poison(x: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        if target >= classes:
            what = "no such class"
            expected = f"at most {classes - 1}"
            raise ConfigError("not-found", "attack.target", what, got=target, allowed=expected)
        count = round(poisoned * len(x))
        labels = torch.cat([torch.full_like(y[:count], target), y[count:]])
        return torch.cat([triggered(x[:count]), x[count:]]), labels

    return Attack(share, clients, lambda own, honest, keys: factor * own, poison)


def triggered(x: Tensor) -> Tensor:
    """The inputs with the pattern of `backdoor`: the first three values of the first three rows of
    an image, or the first three of anything else, are the largest value.

    To measure a backdoor, count how often a model answers ``target`` for such inputs.

    Args:
        x: ``[n, ...]``.

    Example:
        >>> image = torch.eye(8)[None, None]
        >>> int(triggered(image).sum())
        14
        >>> triggered(torch.tensor([[0.0, 0.5, 0.0, 1.0]])).tolist()
        [[1.0, 1.0, 1.0, 1.0]]
    """
    marked = x.clone()
    if not marked.numel():
        return marked
    largest = marked.max()
    if marked.ndim >= 4:
        marked[..., :3, :3] = largest
    else:
        marked[..., :3] = largest
    return marked


@validated
def collusion(share: Share = 0.2, clients: Ids = None, factor: Factor = 1.0) -> Attack:
    """All attackers get into the same group, and send ``-factor * delta_i`` there.

    They train on the data of one honest client, the one with the lowest number. While a method
    places them, in a cold start or by a signature, they answer as that client would. Later they
    flip the sign of their updates.

    Args:
        share: share of the clients that attack.
        clients: the numbers of the attackers, in place of a share.
        factor: factor by which the update is multiplied.

    Source: Coterie. An attack on the groups themselves; the copied client is that of "mimic" in
    Karimireddy et al., Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing (2022).

    Example:
        >>> collusion(share=0.1).colludes
        True
    """
    return Attack(share, clients, lambda own, honest, keys: -factor * own, colludes=True)
