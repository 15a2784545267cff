"""FedRep: Collins et al., Exploiting Shared Representations for Personalized Federated Learning
(2021)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coterie.config.arguments import validated
from coterie.core import KeepLayers, Train
from coterie.core.training import Phase, Phases
from coterie.methods.method import Method
from coterie.rules.assigning import everyone

Epochs = Annotated[int, Field(ge=1)]


@validated
def fedrep(
    # Those of the released code for CIFAR: 11 local epochs, the last of which trains the body.
    head_epochs: Epochs = 10,
    body_epochs: Epochs = 1,
) -> Method:
    """FedRep: each client trains its own classifier first, and then the shared layers below it.

    With the shared representation ``phi`` and the head ``h_i`` of a client (Alg. 1):
    ``h_i <- SGD(f_i(h_i, phi), h_i)``, then ``phi_i <- SGD(f_i(h_i, phi), phi)``, and
    ``phi <- sum n_i / n phi_i``.

    Args:
        head_epochs: local epochs in which only the head is trained.
        body_epochs: subsequent local epochs in which only the other layers are trained.

    Models: one.

    Source: Collins et al., Exploiting Shared Representations for Personalized Federated Learning
    (2021).

    Example:
        >>> [phase.epochs for phase in fedrep().local.how.parts]
        [10, 1]
    """
    head = KeepLayers(("head",))
    body = KeepLayers(("body",))
    # Line by line as in Alg. 1: the head for the representation that was received, then a step of
    # the representation for this head.
    phases = (Phase(head, head_epochs), Phase(body, body_epochs))
    return Method(assign=everyone, local=Train(how=Phases(phases), keep=head), needs=())
